//! Lists for people: columns of words, the last of which is prose and runs on below itself.

use super::wrap::{clean, paragraph};
use super::{Layout, Tone};

/// Blanks between two columns.
const GAP: &str = "  ";

/// A column but the last keeps so much; what is longer pushes the others of its row to the right.
const LEAST: usize = 8;

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
    let lengths = |column: usize| {
        let entries = rows.iter().map(move |row| row[column].chars().count());
        entries.chain([headings[column].chars().count()])
    };
    let mut widths: [usize; N] = std::array::from_fn(|column| lengths(column).max().unwrap_or(0));
    widths[N - 1] = 0;
    // A few long entries must not push every row out of the page: what most gains for the fewest rows pushed is cut.
    while widths.iter().sum::<usize>() + (N - 1) * GAP.len() + NARROWEST > layout.columns() {
        let cut = |column: usize| {
            let next = lengths(column).filter(|length| *length < widths[column]).max()?.max(LEAST);
            let gain = widths[column].checked_sub(next).filter(|gain| *gain > 0)?;
            let pushed = lengths(column).filter(|length| *length > next).count();
            Some((gain * 1000 / pushed, column, next))
        };
        let Some((_, column, next)) = (0..N - 1).filter_map(cut).max() else { break };
        widths[column] = next;
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
        let expected = "\
setting   state           can be
nic.tso   on              on, off
sysctl.net.ipv4.tcp_rmem  4096 \\u{1b}[1m  of this network
                                          namespace, and of no
                                          other one
";
        assert_eq!(text, expected);
        // With room for all of it they stand below each other.
        let text = columns(["setting", "state", "can be"], &rows, Width(120));
        assert!(text.contains("nic.tso                   on              on, off\n"), "{text}");
    }
}
