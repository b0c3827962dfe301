//! A connection for each byte there and back: what opening and closing cost.
//!
//! The client closes first, so `TIME_WAIT` stays with it, as with any client. A run opens more connections than there are
//! ports, and takes back those that have been in `TIME_WAIT` for a second.

use crate::counter::Counts;
use crate::said::Says;
use crate::table::{Place, Row, Table};

pub(super) fn tables() -> Vec<Table> {
    let elsewhere = Table { again: true, ..table(Place::Anywhere) };
    vec![table(Place::Same), elsewhere]
}

fn table(place: Place) -> Table {
    let title = format!("TCP, a connection for each byte there and back, {}", place.text());
    let haul = |name: &str, option: &str| {
        let options = format!("--request 1 --response 1 --flows 1 {option}");
        Row::haul(name, "crr", &options, "transactions").at(place)
    };
    let bare = |name: &str, option: &str| {
        Row::bare(name, ("bare-crr-serve", ""), ("bare-crr-ask", option)).at(place).says(Says::Number)
    };
    Table::new(title, Counts::Connections)
        .row(haul("haul", ""))
        .row(haul("haul --close reset", "--close reset"))
        .row(bare("bare loop", ""))
        .row(bare("bare loop, reset", "--reset"))
        .like("haul", "bare loop")
        .like("haul --close reset", "bare loop, reset")
}
