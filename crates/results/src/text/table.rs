//! Tables: a heading of up to three lines (quantity, whose, unit), a rule, rows of numbers.
//!
//! A table too wide for its page is not squeezed: no number is ever cut or wrapped. Instead, a mean and its spread are
//! first set below each other, and if that is not enough the table is [folded](Table::render): what does not fit
//! follows in a further table which repeats those key columns that tell its rows apart. Columns that are
//! [joined](Column::joined) stay together.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table as Grid, TableStyle};

use super::number::{NONE, Number, Scale};

/// Blanks between two columns.
const GAP: usize = 2;

/// What of it is the column's own; the rest is the blank that stands for a border between columns.
const PADDING: u16 = 1;

/// Which edge the entries of a column share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// One column: heading lines from the top, entries from the first row.
#[derive(Debug, Clone)]
pub(super) struct Column {
    heading: Vec<String>,
    align: Align,
    entries: Entries,
    /// Whether it is read together with the column before it.
    joined: bool,
}

#[derive(Debug, Clone)]
enum Entries {
    Text(Vec<String>),
    /// Shown numbers as (mean, spread).
    Spread {
        shown: Vec<(String, Option<String>)>,
        /// Whether all are in one scale, so that the spreads can stand below each other.
        aligned: bool,
    },
}

impl Column {
    /// A column of texts; an entry may have several lines.
    pub(super) fn text(heading: &[&str], align: Align, entries: Vec<String>) -> Self {
        let heading = heading.iter().map(|&line| line.to_owned()).collect();
        Self { heading, align, entries: Entries::Text(entries), joined: false }
    }

    /// A column of numbers of one metric; its unit becomes the last line of the heading.
    pub(super) fn numbers(heading: &[&str], unit: &str, entries: &[Option<Number>]) -> Self {
        let known: Vec<Number> = entries.iter().copied().flatten().collect();
        Self::numbers_beside(heading, unit, entries, &known)
    }

    /// The same where `all` are to be in one unit, as the percentiles of one distribution are.
    pub(super) fn numbers_beside(
        heading: &[&str],
        unit: &str,
        entries: &[Option<Number>],
        all: &[Number],
    ) -> Self {
        let known: Vec<Number> = entries.iter().copied().flatten().collect();
        let scale = Scale::beside(unit, &known, all);
        let scales = vec![scale.clone(); entries.len()];
        let mut column = Self::spread(heading, entries, &scales);
        column.heading.push(scale.unit);
        column
    }

    /// A column of numbers in which every row has its own scale.
    pub(super) fn spread(heading: &[&str], entries: &[Option<Number>], scales: &[Scale]) -> Self {
        let shown = entries.iter().zip(scales).map(|(entry, scale)| match entry {
            Some(number) => (scale.show(number.mean), number.stddev.map(|spread| scale.show(spread))),
            None => (NONE.to_owned(), None),
        });
        let heading = heading.iter().map(|&line| line.to_owned()).collect();
        let aligned = scales.windows(2).all(|pair| pair[0] == pair[1]);
        let entries = Entries::Spread { shown: shown.collect(), aligned };
        Self { heading, align: Align::Right, entries, joined: false }
    }

    /// The column as one that is read together with the column before it.
    pub(super) fn joined(self, joined: bool) -> Self {
        Self { joined, ..self }
    }

    /// The entries as text, the spread beside the mean or below it.
    fn cells(&self, stacked: bool) -> Vec<String> {
        match &self.entries {
            Entries::Text(entries) => entries.clone(),
            Entries::Spread { shown, .. } if stacked => shown
                .iter()
                .map(|(mean, spread)| match spread {
                    Some(spread) => format!("{mean}\n±{spread}"),
                    None => mean.clone(),
                })
                .collect(),
            Entries::Spread { shown, aligned } => {
                let spreads = shown.iter().filter_map(|(_, spread)| spread.as_ref());
                let widest = spreads.map(|spread| spread.chars().count()).max().filter(|_| *aligned);
                shown
                    .iter()
                    .map(|(mean, spread)| match (spread, widest) {
                        (Some(spread), widest) => {
                            format!("{mean} ± {spread:>width$}", width = widest.unwrap_or(0))
                        }
                        // Keeps a mean without spread below the other means.
                        (None, Some(widest)) => format!("{mean}{}", " ".repeat(widest + 3)),
                        (None, None) => mean.clone(),
                    })
                    .collect()
            }
        }
    }

    /// Whether it tells one row from another.
    fn varies(&self) -> bool {
        match &self.entries {
            Entries::Text(entries) => entries.windows(2).any(|pair| pair[0] != pair[1]),
            Entries::Spread { shown, .. } => shown.windows(2).any(|pair| pair[0] != pair[1]),
        }
    }

    fn width(&self, stacked: bool) -> usize {
        let cells = self.cells(stacked);
        let lines = self.heading.iter().map(String::as_str).chain(cells.iter().flat_map(|cell| cell.lines()));
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }
}

/// A table: columns that name a row, and columns that say something of it.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) keys: Vec<Column>,
    pub(super) values: Vec<Column>,
    /// Whether spreads stand below their means even where there is room beside them: the keys have two lines as well.
    pub(super) stacked: bool,
}

impl Table {
    /// The table in at most `width` columns where one value column beside the keys fits in them at all.
    pub(super) fn render(&self, width: usize) -> String {
        let total = |columns: &[&Column], stacked: bool| {
            columns.iter().map(|column| column.width(stacked) + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let all: Vec<&Column> = self.keys.iter().chain(&self.values).collect();
        if let Some(stacked) = [self.stacked, true].into_iter().find(|&stacked| total(&all, stacked) <= width)
        {
            return grid(&all, stacked);
        }
        let again: Vec<&Column> = self.keys.iter().filter(|key| key.varies()).collect();
        let joint = |page: &[&Column], group: &[Column]| {
            total(&page.iter().copied().chain(group).collect::<Vec<_>>(), true)
        };
        let mut pages = Vec::new();
        let mut page: Vec<&Column> = self.keys.iter().collect();
        let mut keys = page.len();
        for group in self.values.chunk_by(|_, next| next.joined) {
            if page.len() > keys && joint(&page, group) > width && joint(&again, group) <= width {
                pages.push(grid(&page, true));
                (page, keys) = (again.clone(), again.len());
            }
            for column in group {
                page.push(column);
                if page.len() > keys + 1 && total(&page, true) > width {
                    page.pop();
                    pages.push(grid(&page, true));
                    (page, keys) = (again.clone(), again.len());
                    page.push(column);
                }
            }
        }
        pages.push(grid(&page, true));
        pages.join("\n")
    }

    /// Whether every mean has its spread beside it in that width.
    pub(super) fn fits_inline(&self, width: usize) -> bool {
        let all = self.keys.iter().chain(&self.values);
        all.map(|column| column.width(false) + GAP).sum::<usize>() <= width + GAP
    }
}

fn grid(columns: &[&Column], stacked: bool) -> String {
    let mut grid = Grid::new();
    grid.load_style(TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-')));
    grid.set_content_arrangement(ContentArrangement::Disabled);
    let depth = columns.iter().map(|column| column.heading.len()).max().unwrap_or(0);
    let headings = columns.iter().map(|column| {
        // The unit stands directly above its numbers, whatever stands above the unit.
        let blank = "\n".repeat(depth - column.heading.len().max(1).min(depth));
        Cell::new(format!("{blank}{}", column.heading.join("\n")))
    });
    grid.set_header(headings.collect::<Vec<_>>());
    let cells: Vec<Vec<String>> = columns.iter().map(|column| column.cells(stacked)).collect();
    for row in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
        let entries = cells.iter().map(|column| Cell::new(column.get(row).map_or("", String::as_str)));
        grid.add_row(entries.collect::<Vec<_>>());
    }
    let last = columns.len().saturating_sub(1);
    for (index, (column, shown)) in columns.iter().zip(grid.column_iter_mut()).enumerate() {
        shown.set_padding((0, if index == last { 0 } else { PADDING }));
        shown.set_cell_alignment(match column.align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        });
    }
    let mut text = grid.trim_fmt();
    text.push('\n');
    text
}
