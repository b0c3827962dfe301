//! What differs between two fingerprints, fact by fact.
//!
//! A fact is known or it is not; two reasons for not knowing are no difference. Ends are compared by their part: the
//! client of one record with the client of the other, the server with the server.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::record::{Environment, Facts};

/// A fact that has another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// Its value in the first.
    pub a: String,
    /// Its value in the second.
    pub b: String,
}

/// A fact that only one of the two knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lone {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Why the other does not know it; `None` where it does not have the fact at all.
    pub reason: Option<String>,
}

/// What differs between two fingerprints of one end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FactsDiff {
    /// Known in both, with different values.
    pub changed: Vec<Changed>,
    /// Known in the first only.
    pub only_in_a: Vec<Lone>,
    /// Known in the second only.
    pub only_in_b: Vec<Lone>,
    /// How many are known in both and the same.
    pub same: usize,
}

/// What differs between two records' environments. An end that neither has is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EnvironmentDiff {
    /// Of the end that drove it, or of a host alone.
    pub client: Option<FactsDiff>,
    /// Of the other end.
    pub server: Option<FactsDiff>,
}

impl FactsDiff {
    /// Compares two fingerprints.
    #[must_use]
    pub fn of(a: &Facts, b: &Facts) -> Self {
        let mut found = Self::default();
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for name in names {
            let value = |facts: &Facts| facts.get(name).and_then(|fact| fact.value.clone());
            let lone = |value, other: &Facts| Lone {
                name: name.clone(),
                value,
                reason: other.get(name).and_then(|fact| fact.reason.clone()),
            };
            match (value(a), value(b)) {
                (None, None) => {}
                (Some(a), Some(b)) if a == b => found.same += 1,
                (Some(a), Some(b)) => found.changed.push(Changed { name: name.clone(), a, b }),
                (Some(a), None) => found.only_in_a.push(lone(a, b)),
                (None, Some(b)) => found.only_in_b.push(lone(b, a)),
            }
        }
        found
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.changed.is_empty() && self.only_in_a.is_empty() && self.only_in_b.is_empty()
    }
}

impl EnvironmentDiff {
    /// Compares two environments, end by end. An end that only one of them has differs in all its facts.
    #[must_use]
    pub fn of(a: &Environment, b: &Environment) -> Self {
        let end = |a: &Option<Facts>, b: &Option<Facts>| {
            let none = Facts::new();
            (a.is_some() || b.is_some())
                .then(|| FactsDiff::of(a.as_ref().unwrap_or(&none), b.as_ref().unwrap_or(&none)))
        };
        Self { client: end(&a.client, &b.client), server: end(&a.server, &b.server) }
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        [&self.client, &self.server].into_iter().flatten().all(FactsDiff::is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Fact;

    fn facts(facts: &[(&str, Result<&str, &str>)]) -> Facts {
        let fact = |known: Result<&str, &str>| match known {
            Ok(value) => Fact { value: Some(value.to_owned()), reason: None },
            Err(reason) => Fact { value: None, reason: Some(reason.to_owned()) },
        };
        facts.iter().map(|(name, known)| ((*name).to_owned(), fact(*known))).collect()
    }

    #[test]
    fn what_changed_and_what_only_one_knows_is_told_and_two_reasons_are_no_difference() {
        let a =
            facts(&[("a", Ok("1")), ("b", Ok("x")), ("c", Err("one")), ("d", Ok("gone")), ("e", Ok("lost"))]);
        let b = facts(&[
            ("a", Ok("1")),
            ("b", Ok("y")),
            ("c", Err("two")),
            ("e", Err("permission")),
            ("f", Ok("new")),
        ]);
        let found = FactsDiff::of(&a, &b);
        let lone = |name: &str, value: &str, reason: Option<&str>| Lone {
            name: name.to_owned(),
            value: value.to_owned(),
            reason: reason.map(str::to_owned),
        };
        let expected = FactsDiff {
            changed: vec![Changed { name: "b".to_owned(), a: "x".to_owned(), b: "y".to_owned() }],
            only_in_a: vec![lone("d", "gone", None), lone("e", "lost", Some("permission"))],
            only_in_b: vec![lone("f", "new", None)],
            same: 1,
        };
        assert_eq!(found, expected);
        assert!(!found.is_same() && FactsDiff::of(&a, &a).is_same());
        assert_eq!(FactsDiff::of(&b, &a).only_in_a, found.only_in_b);
    }

    #[test]
    fn ends_are_compared_by_their_part_and_one_that_is_missing_differs() {
        let end = facts(&[("a", Ok("1"))]);
        let one = Environment { client: Some(end.clone()), server: None };
        let two = Environment { client: Some(end.clone()), server: Some(end) };
        let found = EnvironmentDiff::of(&one, &two);
        assert!(found.client.as_ref().is_some_and(FactsDiff::is_same));
        assert!(!found.is_same() && found.server.is_some_and(|end| end.only_in_b.len() == 1));
        assert!(EnvironmentDiff::of(&one, &one).is_same());
        assert_eq!(EnvironmentDiff::of(&one, &one).server, None);
    }
}
