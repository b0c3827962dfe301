//! The table of thresholds: what is printed reads back, what is read is bounded and never a panic, what is chosen is the table's.

use haul_copy::selection::{Alignment, Cpu, LONGEST, MOST, SelectionError, Threshold, Wrong};
use haul_copy::{Routine, Selection};
use proptest::prelude::*;

const TABLE: &str = "haul-copy selection 1\ncpu Some-Vendor 6 207 8\n# by hand\n\nlines 0 bytes\nlines 64 words\nsame 0 words\n\
                     words 0 words\ndst-line 0 words-shift\napart 0 bytes\napart 4096 words-shift\n";

fn wrong(text: &str) -> (usize, Wrong) {
    let SelectionError { line, what } = Selection::parse(text).expect_err(text);
    (line, what)
}

#[test]
fn a_table_chooses_by_alignment_and_length() {
    let table = Selection::parse(TABLE).unwrap();
    assert_eq!((table.cpu().vendor(), table.cpu().numbers()), ("Some-Vendor", [6, 207, 8]));
    let chosen = |len, src: usize, dst: usize| {
        table.select(len, std::ptr::without_provenance(src), std::ptr::without_provenance(dst)).name()
    };
    for (len, src, dst, name) in [
        (0, 0, 0, "bytes"),
        (63, 64, 4096, "bytes"),
        (64, 64, 4096, "words"),
        (usize::MAX, 64, 4096, "words"),
        (9, 65, 129, "words"),
        (9, 0, 8, "words"),
        (9, 1, 0, "words-shift"),
        (4095, 3, 5, "bytes"),
        (4096, 3, 5, "words-shift"),
    ] {
        assert_eq!(chosen(len, src, dst), name, "{len} bytes from {src} to {dst}");
    }
    let src: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let mut dst = vec![0; 5000];
    table.copy_slice(&mut dst, &src);
    assert_eq!(dst, src);
}

#[test]
fn the_example_of_a_class_lies_in_it() {
    for class in Alignment::ALL {
        let (src, dst) = class.example();
        assert_eq!(Alignment::of(4096 + src, 64 + dst), class);
    }
}

#[test]
fn what_is_no_table_is_refused_by_line_and_reason() {
    let cut = |upto: &str| TABLE[..TABLE.find(upto).unwrap()].to_owned();
    assert_eq!(wrong(""), (1, Wrong::Head));
    assert_eq!(wrong("haul-copy selection 2\n"), (1, Wrong::Head));
    assert_eq!(wrong("haul-copy selection 1"), (2, Wrong::Cpu));
    assert_eq!(wrong("haul-copy selection 1\ncpu x 1 2"), (2, Wrong::Cpu));
    assert_eq!(wrong(&TABLE.replace("Some-Vendor", "a-name-of-17-byte")), (2, Wrong::Cpu));
    assert_eq!(wrong(&cut("apart 0")), (9, Wrong::Missing(Alignment::Apart)));
    assert_eq!(wrong(&TABLE.replace("same 0", "like 0")), (7, Wrong::Class));
    assert_eq!(wrong(&TABLE.replace("same 0", "same +0")), (7, Wrong::Number));
    assert_eq!(wrong(&TABLE.replace("same 0", "same 99999999999999999999999")), (7, Wrong::Number));
    assert_eq!(wrong(&TABLE.replace("same 0 words", "same 0 words more")), (7, Wrong::Form));
    assert_eq!(wrong(&TABLE.replace("same 0 words", "same 0 memcpy")), (7, Wrong::Routine));
    assert_eq!(wrong(&TABLE.replace("same 0", "same 8")), (7, Wrong::Order));
    assert_eq!(wrong(&TABLE.replace("apart 4096", "apart 0")), (11, Wrong::Order));
    assert_eq!(wrong(&format!("{TABLE}{}", " ".repeat(LONGEST))), (1, Wrong::TooLong));
    let many = (1..=MOST).fold(String::new(), |text, at| text + &format!("same {at} words\n"));
    assert_eq!(wrong(&format!("{TABLE}{many}")), (11 + MOST, Wrong::TooMany));
    let reads = Selection::parse(&TABLE.replace("same 0", "same 8")).unwrap_err().to_string();
    assert_eq!(reads, "line 7: the thresholds of a class begin with 0 and ascend");
}

#[test]
fn thresholds_that_no_text_could_say_are_not_set() {
    let words = Routine::by_name("words").unwrap();
    let mut table = Selection::new(Cpu::new("x", [0; 3]).unwrap(), words);
    let before = table;
    let at = |from| Threshold { from, routine: words };
    let many: Vec<Threshold> = (0..=MOST).map(at).collect();
    for bad in [&[][..], &[at(1)], &[at(0), at(5), at(5)], &many] {
        assert_eq!(table.set(Alignment::Same, bad), None);
        assert_eq!(table, before);
    }
    assert_eq!(table.set(Alignment::Same, &many[..MOST]), Some(()));
    assert_eq!(table.thresholds(Alignment::Same), &many[..MOST]);
    for vendor in ["", "two words", "ü", "a-name-of-17-byte"] {
        assert_eq!(Cpu::new(vendor, [0; 3]), None, "{vendor}");
    }
}

fn a_table() -> impl Strategy<Value = Selection> {
    let routines: Vec<Routine> = Routine::all().collect();
    let class =
        proptest::collection::btree_map(1..usize::MAX, proptest::sample::select(routines.clone()), 0..MOST);
    let classes =
        proptest::collection::vec((class, proptest::sample::select(routines)), Alignment::ALL.len());
    (classes, "[!-~]{1,16}", any::<[u64; 3]>()).prop_map(|(classes, vendor, numbers)| {
        let mut table = Selection::new(Cpu::new(&vendor, numbers).unwrap(), Routine::best());
        for (class, (later, first)) in Alignment::ALL.into_iter().zip(classes) {
            let later = later.into_iter().map(|(from, routine)| Threshold { from, routine });
            let all: Vec<_> = [Threshold { from: 0, routine: first }].into_iter().chain(later).collect();
            table.set(class, &all).unwrap();
        }
        table
    })
}

/// The rule as the text has it: the last threshold that is reached.
fn by_the_rule(table: &Selection, len: usize, src: usize, dst: usize) -> &'static str {
    let ahead = dst.wrapping_sub(src);
    let class = match (ahead % 64, dst % 64) {
        (0, 0) => Alignment::Lines,
        (0, _) => Alignment::Same,
        (ahead, _) if ahead % 8 == 0 => Alignment::Words,
        (_, 0) => Alignment::DstLine,
        _ => Alignment::Apart,
    };
    assert_eq!(Alignment::of(src, dst), class);
    let reached = table.thresholds(class).iter().rev().find(|threshold| threshold.from <= len);
    reached.expect("the first is at 0").routine.name()
}

proptest! {
    #[test]
    fn what_is_chosen_is_the_last_threshold_that_is_reached(
        table in a_table(), src in any::<usize>(), dst in any::<usize>(), bits in 0..64_u32, more in any::<usize>(),
        near in any::<prop::sample::Index>(), off in 0..3_usize,
    ) {
        let all: Vec<usize> =
            Alignment::ALL.into_iter().flat_map(|class| table.thresholds(class)).map(|of| of.from).collect();
        let near = all[near.index(all.len())].wrapping_add(off).wrapping_sub(1);
        for len in [more >> bits, near, 0, usize::MAX] {
            let chosen =
                table.select(len, std::ptr::without_provenance(src), std::ptr::without_provenance(dst)).name();
            prop_assert_eq!(chosen, by_the_rule(&table, len, src, dst), "{} bytes", len);
        }
    }

    #[test]
    fn what_is_printed_reads_back(table in a_table()) {
        let text = table.to_string();
        prop_assert!(text.len() <= LONGEST);
        prop_assert_eq!(Selection::parse(&text).unwrap(), table);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Selection::parse(&text);
    }

    #[test]
    fn no_change_of_a_table_panics(table in a_table(), at in any::<prop::sample::Index>(), with in "[ -~\n]{0,9}") {
        let mut text = table.to_string();
        let at = at.index(text.len());
        text.replace_range(at..=at, &with);
        if let Ok(read) = Selection::parse(&text) {
            prop_assert_eq!(Selection::parse(&read.to_string()).unwrap(), read);
        }
    }
}
