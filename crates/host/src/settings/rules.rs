//! Which feature needs which: what the kernel will make of a request, and why it made something else of it.
//!
//! The kernel drops features whose needs are not met without saying so; these are its rules, by name, so that an error
//! can say "tx-scatter-gather is off". Drivers have further rules of their own, which nobody outside can know. So a
//! prediction made here is advice for [`super::Plan`]; what counts is what is read back.
//!
//! Source: `netdev_fix_features` in `net/core/dev.c`.

use std::collections::BTreeSet;

use crate::ethtool::Features;

/// A feature is dropped unless all features of one of the alternatives are on.
const NEEDS: &[(&str, &[&[&str]])] = &[
    ("tx-tcp-segmentation", SCATTER_GATHER),
    ("tx-tcp-segmentation", CHECKSUM_V4),
    ("tx-tcp6-segmentation", SCATTER_GATHER),
    ("tx-tcp6-segmentation", CHECKSUM_V6),
    ("tx-tcp-ecn-segmentation", SCATTER_GATHER),
    ("tx-tcp-ecn-segmentation", CHECKSUM_V4),
    ("tx-tcp-ecn-segmentation", &[&["tx-tcp-segmentation"], &["tx-tcp6-segmentation"]]),
    ("tx-tcp-mangleid-segmentation", SCATTER_GATHER),
    ("tx-tcp-mangleid-segmentation", &[&["tx-tcp-segmentation"]]),
    ("tx-generic-segmentation", SCATTER_GATHER),
    ("tx-udp-segmentation", CHECKSUM_BOTH),
    ("tls-hw-tx-offload", CHECKSUM_BOTH),
    ("tls-hw-rx-offload", &[&["rx-checksum"]]),
    ("rx-gro-hw", &[&["rx-checksum"]]),
];

const SCATTER_GATHER: &[&[&str]] = &[&["tx-scatter-gather"]];
const CHECKSUM_V4: &[&[&str]] = &[&["tx-checksum-ip-generic"], &["tx-checksum-ipv4"]];
const CHECKSUM_V6: &[&[&str]] = &[&["tx-checksum-ip-generic"], &["tx-checksum-ipv6"]];
const CHECKSUM_BOTH: &[&[&str]] = &[&["tx-checksum-ip-generic"], &["tx-checksum-ipv4", "tx-checksum-ipv6"]];

/// The first is dropped while the second is on.
const BARS: &[(&str, &str)] = &[
    ("tx-checksum-ipv4", "tx-checksum-ip-generic"),
    ("tx-checksum-ipv6", "tx-checksum-ip-generic"),
    ("rx-lro", "rx-fcs"),
    ("rx-lro", "rx-gro-hw"),
    ("rx-gro-hw", "rx-fcs"),
];

/// What keeps `feature` from being on, given the features that are.
fn obstacle(feature: &str, on: &BTreeSet<String>) -> Option<String> {
    let met = |alternative: &&&[&str]| alternative.iter().all(|need| on.contains(*need));
    let unmet = NEEDS.iter().find(|(name, needs)| *name == feature && !needs.iter().any(|need| met(&need)));
    if let Some((_, needs)) = unmet {
        let needs: Vec<String> = needs.iter().map(|need| need.join(" with ")).collect();
        return Some(format!("it needs {}, which is off", needs.join(" or ")));
    }
    let bar = BARS.iter().find(|(name, by)| *name == feature && on.contains(*by));
    bar.map(|(_, by)| format!("it cannot be on together with {by}"))
}

/// What a feature needs and what it excludes, in words; `None` where the kernel has no rule for it.
pub(super) fn needs(feature: &str) -> Option<String> {
    let needs = NEEDS.iter().filter(|(name, _)| *name == feature).map(|(_, needs)| {
        let alternatives: Vec<String> = needs.iter().map(|need| need.join(" with ")).collect();
        alternatives.join(" or ")
    });
    let mut words: Vec<String> = needs.map(|needs| format!("needs {needs}")).collect();
    words.extend(BARS.iter().filter(|(name, _)| *name == feature).map(|(_, by)| format!("not with {by}")));
    let needed = |(_, needs): &&(&str, &[&[&str]])| needs.iter().any(|need| need.contains(&feature));
    let mut dependants: Vec<&str> = NEEDS.iter().filter(needed).map(|(name, _)| *name).collect();
    dependants.dedup();
    if !dependants.is_empty() {
        words.push(format!("{} can go off with it", dependants.join(", ")));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Why a feature asked to be `requested` is not, judged by the features in force.
pub(super) fn reason(feature: &str, requested: bool, active: &BTreeSet<String>) -> String {
    if !requested {
        return "the driver keeps it on".to_owned();
    }
    obstacle(feature, active)
        .unwrap_or_else(|| "the driver refused it, and the kernel log may say why".to_owned())
}

/// The features in force once `wanted` is what was asked for.
///
/// Where the driver now deviates from a request in a way no rule explains, it is taken to go on doing so.
pub(super) fn predict(now: &Features, wanted: &BTreeSet<String>) -> BTreeSet<String> {
    let unexplained = |name: &String| {
        now.is_changeable(name)
            && now.is_wanted(name) != now.is_active(name)
            && wanted.contains(name) == now.is_wanted(name)
            && (!now.is_wanted(name) || obstacle(name, &now.active).is_none())
    };
    let mut on: BTreeSet<String> = now
        .names
        .iter()
        .filter(|name| {
            if now.is_changeable(name) && !unexplained(name) {
                wanted.contains(*name)
            } else {
                now.is_active(name)
            }
        })
        .cloned()
        .collect();
    // A dropped feature may be what another needs. Each round drops one at least, so this ends.
    while let Some(dropped) =
        on.iter().find(|name| now.is_changeable(name) && obstacle(name, &on).is_some()).cloned()
    {
        on.remove(&dropped);
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A device on which everything named can be changed and is on.
    fn device(names: &[&str]) -> Features {
        Features {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            hw: set(names),
            wanted: set(names),
            active: set(names),
            nochange: BTreeSet::new(),
        }
    }

    #[test]
    fn an_obstacle_names_the_feature_that_is_missing_or_in_the_way() {
        let cases: [(&str, &[&str], Option<&str>); 6] = [
            (
                "tx-tcp-segmentation",
                &["tx-checksum-ip-generic"],
                Some("it needs tx-scatter-gather, which is off"),
            ),
            (
                "tx-tcp6-segmentation",
                &["tx-scatter-gather"],
                Some("it needs tx-checksum-ip-generic or tx-checksum-ipv6, which is off"),
            ),
            (
                "tx-udp-segmentation",
                &["tx-checksum-ipv4"],
                Some(
                    "it needs tx-checksum-ip-generic or tx-checksum-ipv4 with tx-checksum-ipv6, which is off",
                ),
            ),
            ("tx-udp-segmentation", &["tx-checksum-ipv4", "tx-checksum-ipv6"], None),
            ("rx-lro", &["rx-fcs"], Some("it cannot be on together with rx-fcs")),
            ("tx-nocache-copy", &[], None),
        ];
        for (feature, on, expected) in cases {
            assert_eq!(obstacle(feature, &set(on)).as_deref(), expected, "{feature} with {on:?}");
        }
    }

    #[test]
    fn what_a_dropped_feature_was_needed_for_is_dropped_too() {
        let all = [
            "tx-scatter-gather",
            "tx-checksum-ip-generic",
            "tx-tcp-segmentation",
            "tx-tcp-mangleid-segmentation",
        ];
        let wanted = set(&["tx-scatter-gather", "tx-tcp-segmentation", "tx-tcp-mangleid-segmentation"]);
        assert_eq!(predict(&device(&all), &wanted), set(&["tx-scatter-gather"]));
    }

    #[test]
    fn a_driver_that_deviates_for_reasons_of_its_own_is_taken_to_go_on() {
        let mut now = device(&["rx-gro", "rx-hashing"]);
        now.active.remove("rx-gro");
        assert_eq!(predict(&now, &set(&["rx-gro"])), set(&[]), "wanted and off before, wanted and off after");
        now.wanted.remove("rx-gro");
        assert_eq!(
            predict(&now, &set(&["rx-gro"])),
            set(&["rx-gro"]),
            "not asked for before: nothing is known"
        );
    }

    #[test]
    fn a_feature_that_comes_back_is_foreseen() {
        let mut now = device(&["tx-scatter-gather", "tx-generic-segmentation"]);
        now.active.clear();
        now.wanted.remove("tx-scatter-gather");
        let all = set(&["tx-scatter-gather", "tx-generic-segmentation"]);
        assert_eq!(predict(&now, &all), all);
    }

    #[test]
    fn a_reason_without_a_rule_points_at_the_driver() {
        assert!(reason("rx-gro", true, &BTreeSet::new()).contains("driver"));
        assert!(reason("tx-tcp-segmentation", false, &BTreeSet::new()).contains("keeps it on"));
        assert!(reason("tx-generic-segmentation", true, &BTreeSet::new()).contains("tx-scatter-gather"));
    }
}
