//! Prose in a given width, and text from elsewhere made safe to print.
//!
//! Names, reasons and facts come from the other end as often as from this one, and a terminal obeys what it is sent:
//! [`clean`] turns every control and direction-changing character into its visible escape. Words longer than the
//! width are left whole, because a path or an option broken in two can no longer be copied.

use std::fmt::Write as _;

/// The text with nothing in it that a terminal would act upon; line ends and tabs become spaces.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            // Bidirectional controls reorder what follows them (UAX #9), so they can make one text look like another.
            '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{2028}'
            | '\u{2029}' => {
                let _ = write!(out, "{}", c.escape_unicode());
            }
            c if c.is_control() => {
                let _ = write!(out, "{}", c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// The name, cleaned, and with its end cut off where it is longer than `limit`: for labels only, never for numbers.
pub(super) fn label(name: &str, limit: usize) -> String {
    let name = clean(name);
    if name.chars().count() <= limit {
        return name;
    }
    let mut short: String = name.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Longest text kept on one line; a longer one would leave holes in the lines around it.
const LONGEST_BOUND: usize = 36;

/// Binds what reads badly in two pieces: its blanks are not broken at, and are plain when printed.
pub(super) fn bound(text: &str) -> String {
    if text.chars().count() > LONGEST_BOUND { text.to_owned() } else { text.replace(' ', "\u{a0}") }
}

/// Whether a word must not begin a line: it belongs to the one before it.
fn belongs(before: &str, word: &str) -> bool {
    const UNITS: [&str; 15] = [
        "%",
        "s",
        "ms",
        "µs",
        "1/s",
        "k/s",
        "M/s",
        "Gbit/s",
        "Mbit/s",
        "kbit/s",
        "µs/KiB",
        "µs/transaction",
        "segments",
        "packets",
        "transactions",
    ];
    let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
    let joined = ["…", "→"];
    (before.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&bare))
        || joined.contains(&before)
        || joined.contains(&word)
}

/// Appends the text after `lead`, wrapped to `width`, further lines indented by `indent`, and a line end.
pub(super) fn paragraph(out: &mut String, lead: &str, text: &str, indent: usize, width: usize) {
    let mut pieces: Vec<String> = Vec::new();
    let mut before = "";
    let text = clean(text);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match pieces.last_mut() {
            Some(piece) if belongs(before, word) => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        before = word;
    }
    let mut line = lead.to_owned();
    let mut used = line.chars().count();
    for (index, piece) in pieces.iter().enumerate() {
        let length = piece.chars().count();
        if index > 0 && used + 1 + length > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            used = indent;
        } else if index > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&piece.replace('\u{a0}', " "));
        used += length;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(lead: &str, text: &str, indent: usize, width: usize) -> String {
        let mut out = String::new();
        paragraph(&mut out, lead, text, indent, width);
        out
    }

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        for (from, shown) in [
            ("plain µs/KiB", "plain µs/KiB"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\r\nb\tc", "a  b c"),
            ("on\u{202e}ffo", "on\\u{202e}ffo"),
            ("\u{9b}31m", "\\u{9b}31m"),
        ] {
            assert_eq!(clean(from), shown);
        }
    }

    #[test]
    fn lines_end_before_the_width_and_numbers_keep_their_units() {
        assert_eq!(wrapped("- ", "the change is 24.3 % here", 4, 18), "- the change is\n    24.3 % here\n");
        assert_eq!(
            wrapped("", "between -2.00 … +1.00 %: undecided", 2, 20),
            "between\n  -2.00 … +1.00 %:\n  undecided\n"
        );
        assert_eq!(wrapped("", &format!("a {}", bound("mss 1448")), 2, 8), "a\n  mss 1448\n");
    }

    #[test]
    fn a_word_longer_than_the_line_stays_whole() {
        assert_eq!(
            wrapped("", "see /sys/class/net/eth0/device now", 0, 10),
            "see\n/sys/class/net/eth0/device\nnow\n"
        );
    }

    #[test]
    fn labels_lose_their_end_only_beyond_the_limit() {
        assert_eq!((label("off", 3), label("tx-off", 4)), ("off".to_owned(), "tx-…".to_owned()));
    }
}
