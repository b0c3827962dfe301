//! Lists for people: columns of words, the last of which is prose and runs on below itself.

use super::wrap::{clean, paragraph};
use super::{Layout, Tone};

/// Blanks between two columns.
const GAP: &str = "  ";

/// The widest a column but the last gets; what is longer pushes its row's others to the right.
const WIDEST: usize = 48;

/// The narrowest strip prose is wrapped to.
const NARROWEST: usize = 24;

/// The rows under their headings, each with as many entries. The last column is wrapped to the page where there is room for it.
#[must_use]
pub fn columns<const N: usize>(
    headings: [&str; N],
    rows: &[[String; N]],
    layout: impl Into<Layout>,
) -> String {
    const { assert!(N > 0, "a list has a column") };
    let layout = layout.into();
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|entry| clean(entry))).collect();
    let mut widths = [0; N];
    for (column, width) in widths.iter_mut().enumerate() {
        let entries = rows.iter().map(|row| row[column].chars().count());
        let wide = entries.chain([headings[column].chars().count()]).filter(|wide| *wide <= WIDEST);
        *width = wide.max().unwrap_or(WIDEST);
    }
    let line = |entries: &[String; N]| {
        let mut lead = String::new();
        for (entry, width) in entries[..N - 1].iter().zip(widths) {
            let padding = " ".repeat(width.saturating_sub(entry.chars().count()));
            lead.extend([entry.as_str(), &padding, GAP]);
        }
        let (mut line, indent) = (String::new(), lead.chars().count());
        // Prose in a strip a few words wide is harder to read than a line that runs on.
        let width = layout.columns().max(indent + NARROWEST);
        paragraph(&mut line, &lead, &entries[N - 1], indent, width);
        line
    };
    let mut out = layout.paint(Tone::Heading, line(&headings.map(str::to_owned)).trim_end());
    out.push('\n');
    out.extend(rows.iter().map(line));
    out
}

#[cfg(test)]
mod tests {
    use super::super::Width;
    use super::*;

    #[test]
    fn a_list_has_its_columns_below_each_other_and_its_prose_in_the_page() {
        let rows = [
            ["nic.tso", "on", "on, off"],
            ["sysctl.net.ipv4.tcp_rmem", "4096 \u{1b}[1m", "of this network namespace, and of no other one"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned));
        let text = columns(["setting", "state", "can be"], &rows, Width(60));
        assert_eq!(
            text,
            "\
setting                   state           can be
nic.tso                   on              on, off
sysctl.net.ipv4.tcp_rmem  4096 \\u{1b}[1m  of this network
                                          namespace, and of no
                                          other one
"
        );
    }
}
