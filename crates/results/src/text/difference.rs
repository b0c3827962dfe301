//! The difference of two fingerprints as text: what changed, and what only one knows, in groups of related facts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::wrap::{label, paragraph};
use super::{Layout, Tone, foreign};
use crate::difference::{EnvironmentDiff, FactsDiff, Lone};

/// Longest name of a file in a heading.
const LONGEST_FILE: usize = 60;

/// The difference of the two, by the names given for them.
#[must_use]
pub fn difference(names: [&str; 2], found: &EnvironmentDiff, layout: impl Into<Layout>) -> String {
    let layout = layout.into();
    let mut out = String::new();
    for (sign, name) in ["A", "B"].into_iter().zip(names) {
        let _ = writeln!(out, "{sign}: {}", label(name, LONGEST_FILE));
    }
    let both = found.client.is_some() && found.server.is_some();
    for (end, found) in [("client", &found.client), ("server", &found.server)] {
        if let Some(found) = found {
            one_end(&mut out, if both { Some(end) } else { None }, found, layout);
        }
    }
    if found.client.is_none() && found.server.is_none() {
        out.push_str("\nneither describes a host\n");
    }
    out
}

fn one_end(out: &mut String, end: Option<&str>, found: &FactsDiff, layout: Layout) {
    let of_end = end.map_or_else(String::new, |end| format!("{end}: "));
    if found.is_same() {
        let _ = writeln!(out, "\n{of_end}{} facts, all the same", found.same);
        return;
    }
    let _ = writeln!(
        out,
        "\n{of_end}{} changed, {} only in A, {} only in B, {} the same",
        found.changed.len(),
        found.only_in_a.len(),
        found.only_in_b.len(),
        found.same
    );
    let mut groups: BTreeMap<&str, Vec<(&str, Vec<String>)>> = BTreeMap::new();
    for fact in &found.changed {
        let lines = vec![format!("A  {}", foreign(&fact.a)), format!("B  {}", foreign(&fact.b))];
        groups.entry(group(&fact.name)).or_default().push((&fact.name, lines));
    }
    section(out, "changed", &groups, layout);
    for (title, facts) in [("only in A", &found.only_in_a), ("only in B", &found.only_in_b)] {
        let mut groups: BTreeMap<&str, Vec<(&str, Vec<String>)>> = BTreeMap::new();
        for fact in facts {
            groups.entry(group(&fact.name)).or_default().push((&fact.name, vec![shown(fact)]));
        }
        section(out, title, &groups, layout);
    }
}

/// The first part of a dotted name.
fn group(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn shown(fact: &Lone) -> String {
    let value = foreign(&fact.value);
    match &fact.reason {
        Some(reason) => format!("{value} (the other: {})", foreign(reason)),
        None => value,
    }
}

fn section(out: &mut String, title: &str, groups: &BTreeMap<&str, Vec<(&str, Vec<String>)>>, layout: Layout) {
    if groups.is_empty() {
        return;
    }
    out.push('\n');
    out.push_str(&layout.paint(Tone::Heading, title));
    out.push('\n');
    for facts in groups.values() {
        for (name, lines) in facts {
            let _ = writeln!(out, "  {}", foreign(name));
            for line in lines {
                paragraph(out, "    ", line, 7, layout.columns());
            }
        }
    }
}
