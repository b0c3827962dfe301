//! JSON: one valid document whatever happened, exact both ways, and strict on the way in.

use std::io;

use haul_results::ResultsError;
use haul_results::json::{parse, write};
use haul_results::record::{Document, Kind, Status};
use haul_stats::{Metric, Reading, Scope, Value};
use proptest::prelude::*;

use crate::any::{self, Numbers};
use crate::sample;

fn written(document: &Document) -> String {
    let mut bytes = Vec::new();
    write(document, &mut bytes).expect("a Vec takes everything");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

fn one_run(readings: Vec<Reading>) -> Document {
    sample::document(Kind::Stream, "haul stream lab", vec![sample::run(0, sample::cell(&[]), readings)])
}

#[test]
fn a_document_is_one_value_and_one_newline() {
    let mut interrupted = one_run(sample::two_hosts(53.2));
    interrupted.status = Status::Interrupted;
    let mut failed = one_run(Vec::new());
    failed.status = Status::Failed;
    failed.runs.clear();
    for document in [one_run(sample::shared_host(53.2)), interrupted, failed, sample::four_verdicts()] {
        let text = written(&document);
        assert!(text.ends_with("}\n") && text.starts_with('{'));
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
        assert!(values.next().expect("a value").is_ok());
        assert!(values.next().is_none(), "something follows the document");
        assert_eq!(parse(&text).expect("our own"), document);
    }
}

#[test]
fn counts_keep_all_their_digits() {
    for count in [0, (1 << 53) + 1, u64::MAX] {
        let document = one_run(vec![Reading::count(Metric::BytesTotal, Scope::Receiver, count, "sum")]);
        let text = written(&document);
        assert!(text.contains(&format!("\"value\": {count},")), "{text}");
        assert_eq!(parse(&text).expect("our own").runs[0].readings[0].value, Some(Value::Int(count)));
    }
}

#[test]
fn a_number_that_is_none_becomes_null_with_a_reason() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut document = one_run(vec![Reading {
            metric: Metric::Throughput,
            scope: Scope::Receiver,
            value: Some(Value::Real(bad)),
            source: "".into(),
            reason: None,
        }]);
        document.elapsed_s = bad;
        let back = parse(&written(&document)).expect("our own");
        let reading = &back.runs[0].readings[0];
        assert_eq!((reading.value, reading.reason.as_deref()), (None, Some("not a finite number")));
        assert!(back.elapsed_s.is_nan());
    }
}

#[test]
fn what_is_not_a_document_of_haul_is_named() {
    let good = written(&one_run(sample::two_hosts(53.2)));
    let newer = good.replace("\"schema\": 1", "\"schema\": 2, \"new\": true").replace("0.1.0", "3.2.1");
    for (text, says) in [
        (String::new(), "not a JSON document: EOF while parsing"),
        ("hello".to_owned(), "not a JSON document: expected value at line 1 column 1"),
        (good.clone() + "interrupted", "not a JSON document: trailing characters"),
        (good.clone() + &good, "not a JSON document: trailing characters"),
        ("[1, 2]".to_owned(), "not a document of haul: it has no 'haul'"),
        ("{\"haul\": {\"schema\": null}}".to_owned(), "its 'haul.schema' is no number"),
        (
            newer,
            "the document has schema 2, this haul reads up to 1: use the haul that wrote it (3.2.1) or a newer one",
        ),
        (
            "{\"haul\": {\"schema\": 1, \"version\": \"0.1.0\"}}".to_owned(),
            "shape of schema 1: missing field `id`",
        ),
        (
            good.replace("\"kind\": \"stream\"", "\"kind\": \"dream\""),
            "shape of schema 1: unknown variant `dream`",
        ),
        (good.replacen("53200000000.0", "NaN", 1), "not a JSON document: expected value"),
    ] {
        let error = parse(&text).expect_err(says).to_string();
        assert!(error.contains(says), "{error}\n  where this was expected: {says}");
    }
}

#[test]
fn a_key_that_stands_twice_is_refused_with_the_way_to_it() {
    for (text, at) in [
        ("{\"a\": 1, \"a\": 1}", "a"),
        ("{\"runs\": [{}, {\"cell\": {\"flows\": 1, \"flows\": 2}}]}", "runs[1].cell.flows"),
        ("[[{\"x\": {}}, {\"y\": 0, \"x\": 0, \"\\u0078\": 0}]]", "[0][1].x"),
    ] {
        match parse(text) {
            Err(ResultsError::DuplicateKey { path }) => assert_eq!(path, at),
            other => panic!("{text} gave {other:?}"),
        }
    }
}

#[test]
fn fields_added_within_a_schema_do_not_stop_an_older_reader() {
    let document = one_run(sample::two_hosts(53.2));
    let text = written(&document).replacen('{', "{\"added_later\": [1, {\"x\": null}],", 1);
    assert_eq!(parse(&text).expect("known schema"), document);
}

#[test]
fn a_reader_who_left_is_told_from_a_full_disk() {
    struct Broken(io::ErrorKind);
    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for (kind, closed) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
        let error = write(&one_run(Vec::new()), Broken(kind)).expect_err("nothing was taken");
        assert_eq!(error.is_closed_pipe(), closed, "{error}");
        assert!(
            error.to_string().starts_with("the result could not be written to standard output: "),
            "{error}"
        );
    }
}

proptest! {
    #![proptest_config(any::config())]

    #[test]
    fn every_document_comes_back_as_it_was(document in any::document(Numbers::Finite)) {
        prop_assert_eq!(parse(&written(&document)).expect("our own"), document);
    }

    #[test]
    fn every_document_can_be_read_whatever_its_numbers(document in any::document(Numbers::Any)) {
        let text = written(&document);
        let back = parse(&text).expect("our own");
        prop_assert_eq!(written(&back), text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,60}", cut in 0usize..4000) {
        let _ = parse(&text);
        let good = written(&sample::four_verdicts());
        let cut = (0..=cut.min(good.len())).rev().find(|at| good.is_char_boundary(*at)).unwrap_or(0);
        prop_assert!(matches!(parse(&good[..cut]), Err(ResultsError::Syntax(_))));
    }
}
