//! The text of surveys: one axis as a table, two as a map, more as several.

use haul_results::figures;
use haul_results::record::{Document, Kind, Run, Status};
use haul_results::text::{self, Beside, BesideRow, Layout, Shape, Style, Width};
use haul_stats::{Cell, CellValue, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

use crate::sample::{document, failed, run};
use crate::text::shown;

fn readings(rate: f64) -> Vec<Reading> {
    let real = |metric, value| Reading::real(metric, Scope::Run, value, "CLOCK_MONOTONIC around the sample");
    vec![
        real(Metric::ReadTime, 262_144.0 / rate),
        real(Metric::CopyRate, rate),
        real(Metric::CopyTime, 8192.0 / rate * 1e9),
        real(Metric::CopyCpu, 1024.0 / rate * 1e9),
    ]
}

/// Nine rounds over the cells, each with a rate of its own.
fn survey(command: &str, requested: &Json, cells: &[(Cell, f64)]) -> Document {
    // Of no order that a cell could keep in step with.
    let noise = (0..u32::try_from(cells.len()).unwrap() * 9)
        .map(|at| 0.99 + f64::from(at.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 * 0.02);
    // Not in the order of the cells, as a survey goes through them.
    let runs = (0..9).flat_map(|round| cells.iter().cycle().skip(round * 5 % cells.len()).take(cells.len()));
    let runs: Vec<Run> = runs
        .zip(noise)
        .enumerate()
        .map(|(index, ((cell, rate), noise))| {
            let index = u32::try_from(index).unwrap();
            let mut run = run(index, cell.clone(), readings(rate * noise));
            (run.effective, run.block) = (Json::Null, Some(index / u32::try_from(cells.len()).unwrap()));
            run
        })
        .collect();
    let mut document = document(Kind::Read, command, runs);
    document.elapsed_s = 4.2;
    document.environment.server = None;
    document.options.requested = requested.clone();
    document.options.effective = json!({
        "source": {"name": "haul's own file in memory", "own": true},
        "sampling": {"cpu": 1, "rounds": 9, "clock_step_s": 22e-9, "sample_s": 0.001},
    });
    document.cells = figures::cells(&document);
    document
}

fn at(levels: &[(&str, u64)]) -> Cell {
    levels.iter().map(|(axis, value)| ((*axis).to_owned(), CellValue::Int(*value))).collect()
}

fn requested(more: Json) -> Json {
    let mut requested = json!({
        "source": "memfd", "direction": "read", "block_bytes": 8192, "file_offset_bytes": 0, "working_set_bytes": 262_144,
        "with": "pread", "rounds": 9, "seed": 7,
    });
    let Json::Object(more) = more else { panic!("an object") };
    requested.as_object_mut().unwrap().extend(more);
    requested
}

fn offsets() -> Document {
    let cells: Vec<(Cell, f64)> = [(0, 21.6e9), (1, 17.8e9), (8, 17.9e9), (32, 17.8e9), (64, 21.58e9)]
        .map(|(offset, rate)| (at(&[("offset_bytes", offset)]), rate))
        .to_vec();
    survey("haul read --offset 0,1,8,32,64", &requested(json!({"offset_bytes": [0, 1, 8, 32, 64]})), &cells)
}

fn of_2002() -> Beside {
    let row = |level, kernel, routine| BesideRow { level, values: vec![Some(kernel), routine] };
    Beside {
        axis: "offset_bytes".to_owned(),
        title: "beside the cached reads of 2002: seconds to read 1 GiB".to_owned(),
        bytes: 1 << 30,
        columns: vec!["2.5.41".to_owned(), "routine".to_owned()],
        note: "2002: as published".to_owned(),
        rows: vec![
            row(0, 4.373, Some(4.387)),
            row(1, 10.024, Some(6.41)),
            row(8, 9.725, None),
            row(32, 4.442, Some(4.423)),
        ],
    }
}

#[test]
fn one_axis_is_a_table_with_intervals_and_a_mark_where_there_may_be_no_change() {
    let text = shown(&offsets(), 100);
    let line =
        |offset: &str| text.lines().find(|line| line.split_whitespace().next() == Some(offset)).unwrap();
    assert!(line("1").contains("-17.") && !line("1").contains('~'), "{text}");
    assert!(line("64").contains('~'), "a quarter of a percent is within the noise\n{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_published_figures_stand_beside_todays() {
    let document = offsets();
    insta::assert_snapshot!(text::survey(&document, Some(&of_2002()), Shape::Maps, Width::PAGE));
    let plain = text::document(&document, Width::PAGE);
    assert_eq!(text::survey(&document, None, Shape::Maps, Width::PAGE), plain);
    let elsewhere = Beside { axis: "block_bytes".to_owned(), ..of_2002() };
    assert_eq!(
        text::survey(&document, Some(&elsewhere), Shape::Maps, Width::PAGE),
        plain,
        "of another axis they say nothing"
    );
}

#[test]
fn two_axes_are_a_map_whose_numbers_are_there_without_colour() {
    let mut cells = Vec::new();
    for offset in [0, 1, 2, 63, 64] {
        for (set, base) in [(256 << 10, 21.6e9), (1 << 30, 6.5e9)] {
            let rate = if offset % 64 == 0 || set > 1 << 20 { base } else { base * 0.83 };
            cells.push((at(&[("offset_bytes", offset), ("working_set_bytes", set)]), rate));
        }
    }
    let asked = json!({"offset_bytes": [0, 1, 2, 63, 64], "working_set_bytes": [256 << 10, 1 << 30]});
    let document = survey("haul read --offset 0..2,63,64 --working-set 256K,1G", &requested(asked), &cells);
    let plain = shown(&document, 80);
    insta::assert_snapshot!(plain);
    let colour = text::document(&document, Layout { width: Width::PAGE, style: Style::Colour });
    let (slow, fast) = ("\u{1b}[30;48;5;167m", "\u{1b}[30;48;5;71m");
    assert!(colour.contains(slow) && colour.contains(fast), "{colour}");
    let mut bare = colour;
    while let Some(start) = bare.find('\u{1b}') {
        let end = start + bare[start..].find('m').unwrap();
        bare.replace_range(start..=end, "");
    }
    // A coloured blank before the end of a line is seen, and stays.
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&bare), lines(&plain), "colour says nothing that the numbers don't");
}

#[test]
fn a_map_that_is_too_wide_goes_on_below() {
    let mut cells = Vec::new();
    for offset in 0..20 {
        for file_offset in 0..18 {
            let rate = 20e9 + 1e8 * (offset + file_offset) as f64;
            cells.push((at(&[("offset_bytes", offset), ("file_offset_bytes", file_offset)]), rate));
        }
    }
    let document = survey("haul read FILE --offset 0..19 --file-offset 0..17", &requested(json!({})), &cells);
    let text = shown(&document, 80);
    assert_eq!(text.matches("offset \\ file offset").count(), 3, "{text}");
    assert_eq!(shown(&document, 300).matches("offset \\ file offset").count(), 1);
}

#[test]
fn further_axes_are_a_map_each_in_the_order_given() {
    let mut cells = Vec::new();
    for with in ["read", "io_uring"] {
        for offset in [0, 1, 2] {
            for block in [4096, 8192] {
                let mut cell = at(&[("offset_bytes", offset), ("block_bytes", block)]);
                cell.insert("with".to_owned(), CellValue::Text(with.to_owned()));
                cells.push((cell, if with == "read" { 18e9 } else { 15e9 }));
            }
        }
    }
    let asked = json!({"with": ["read", "io_uring"], "offset_bytes": [0, 1, 2], "block_bytes": [4096, 8192]});
    let document =
        survey("haul read --with read,io_uring --offset 0..2 --block 4K,8K", &requested(asked), &cells);
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_survey_that_was_stopped_early_says_how_little_there_is() {
    let mut document = offsets();
    document.runs.truncate(12);
    document.cells = figures::cells(&document);
    document.status = Status::Interrupted;
    document.options.effective["sampling"]["rounds"] = json!(2);
    let text = shown(&document, 100);
    assert!(text.contains("too few for an interval") && text.contains("2 rounds of 9"), "{text}");
    assert!(text.lines().filter(|line| line.contains('~')).count() > 4, "no change can be told\n{text}");

    document.runs =
        vec![failed(run(0, at(&[("offset_bytes", 1)]), Vec::new()), Status::Failed, 1, "the file shrank")];
    document.cells = figures::cells(&document);
    let text = shown(&document, 80);
    assert!(text.contains("no sample gave a number") && text.contains("the file shrank"), "{text}");
}

#[test]
fn what_was_asked_for_first_is_the_reference() {
    let cells: Vec<(Cell, f64)> =
        [(64, 21.6e9), (0, 20e9)].map(|(offset, rate)| (at(&[("offset_bytes", offset)]), rate)).to_vec();
    let document = survey("haul read --offset 64,0", &requested(json!({"offset_bytes": [64, 0]})), &cells);
    let text = shown(&document, 100);
    let place =
        |offset: &str| text.lines().position(|line| line.split_whitespace().next() == Some(offset)).unwrap();
    assert!(place("64") < place("0") && text.contains("-7."), "{text}");
}
