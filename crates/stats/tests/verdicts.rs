//! What a comparison says, case by case: verdicts, directions, gates, reasons and doubts.

use haul_stats::compare::{Decide, Pairs, Verdict, correct, min_pairs};
use haul_stats::{Cell, CellValue, Comparison, DoubtId, Metric, Scope};
use proptest::prelude::*;
use serde_json::json;

const BETTER: Option<Verdict> = Some(Verdict::Better);
const WORSE: Option<Verdict> = Some(Verdict::Worse);
const EQUIVALENT: Option<Verdict> = Some(Verdict::Equivalent);
const UNDECIDED: Option<Verdict> = Some(Verdict::Undecided);

fn compare_failed(rules: Decide, metric: Metric, values: &[(f64, f64)], failed: [usize; 2]) -> Comparison {
    let [base_failed, arm_failed] = failed;
    let cell = &Cell::from([("message_bytes".to_owned(), CellValue::Int(131_072))]);
    rules.compare(&Pairs {
        metric,
        scope: Scope::Sender,
        cell,
        base: "off",
        arm: "on",
        values,
        base_failed,
        arm_failed,
    })
}

fn compare(metric: Metric, values: &[(f64, f64)]) -> Comparison {
    compare_failed(Decide::default(), metric, values, [0, 0])
}

/// Pairs whose changes are `changes` and whose base wavers by half a percent.
fn pairs(changes: &[f64]) -> Vec<(f64, f64)> {
    let base = |i: usize| 1000.0 + 5.0 * f64::from([0u8, 2, 1, 3, 1, 0, 2][i % 7]);
    changes.iter().enumerate().map(|(i, change)| (base(i), base(i) * (1.0 + change))).collect()
}

fn reason(comparison: &Comparison) -> &str {
    comparison.reason.as_deref().unwrap_or("")
}

fn doubts(comparison: &Comparison) -> Vec<DoubtId> {
    comparison.doubts.iter().map(|doubt| doubt.id).collect()
}

#[test]
fn the_direction_of_better_is_the_metrics_own() {
    let up = pairs(&[0.05, 0.06, 0.04, 0.05, 0.055, 0.045, 0.052, 0.048]);
    let down: Vec<_> = up.iter().map(|(base, arm)| (*arm, *base)).collect();
    let cases = [
        (Metric::Throughput, BETTER, WORSE),
        (Metric::ServiceDemand, WORSE, BETTER),
        (Metric::Retransmits, WORSE, BETTER),
        (Metric::Rtt, None, None),
    ];
    for (metric, if_up, if_down) in cases {
        let (rose, fell) = (compare(metric, &up), compare(metric, &down));
        assert_eq!((rose.verdict, fell.verdict), (if_up, if_down), "{metric}");
        assert!(rose.change_pct > Some(4.5) && fell.change_pct < Some(-4.5), "{metric}");
        assert_eq!(rose.unit, metric.facts().unit);
    }
}

#[test]
fn too_few_pairs_cannot_decide_and_say_how_many_could() {
    for n in 0..6 {
        for change in [0.0, 0.5] {
            let comparison = compare(Metric::Throughput, &pairs(&vec![change; n]));
            assert_eq!(comparison.verdict, UNDECIDED, "{n} pairs");
            assert_eq!(
                reason(&comparison),
                format!("n = {n} cannot decide at 95 %: at least 6 pairs are needed")
            );
            assert_eq!((comparison.interval_pct, comparison.p_value), (None, None));
        }
    }
    assert_eq!(compare(Metric::Throughput, &pairs(&[0.5; 6])).verdict, BETTER);
}

#[test]
fn the_fewest_pairs_are_those_with_an_interval() {
    for (confidence, fewest) in [(0.5, 2), (0.9, 5), (0.95, 6), (0.99, 8), (0.999, 11)] {
        assert_eq!(min_pairs(confidence), fewest, "{confidence}");
        let rules = Decide { confidence, ..Decide::default() };
        for n in [fewest - 1, fewest] {
            let comparison = compare_failed(rules, Metric::Throughput, &pairs(&vec![0.5; n]), [0, 0]);
            assert_eq!(comparison.interval_pct.is_some(), n == fewest, "{n} pairs at {confidence}");
        }
    }
    for impossible in [1.0, 2.0, f64::NAN] {
        assert!(min_pairs(impossible) > 1000);
    }
}

#[test]
fn a_significant_but_tiny_change_is_equivalent() {
    let comparison =
        compare(Metric::Throughput, &pairs(&[0.004, 0.005, 0.006, 0.005, 0.0045, 0.0055, 0.005, 0.0052]));
    let [low, _] = comparison.interval_pct.unwrap();
    assert!(low > 0.0, "the interval excludes no change at all");
    assert_eq!(comparison.verdict, EQUIVALENT);
}

#[test]
fn an_interval_across_the_minimum_effect_is_undecided_and_says_what_would_decide() {
    let comparison =
        compare(Metric::ServiceDemand, &pairs(&[0.03, -0.01, 0.05, 0.0, 0.04, 0.01, 0.03, 0.015]));
    assert_eq!(comparison.verdict, UNDECIDED);
    let text = reason(&comparison);
    assert!(
        text.starts_with("the interval ") && text.contains("neither beyond nor within ±1 %; about "),
        "{text}"
    );
    assert!(text.ends_with("pairs would decide if the estimate holds"), "{text}");

    let at_the_bound =
        compare(Metric::ServiceDemand, &pairs(&[-0.01, 0.03, 0.01, 0.01, 0.01, 0.01, 0.0, 0.02]));
    assert!(reason(&at_the_bound).ends_with("too close to the minimum effect for more pairs to decide"));
}

#[test]
fn a_change_only_one_half_shows_is_not_a_verdict() {
    let mut changes = vec![0.03; 30];
    changes[..6].fill(-0.001);
    changes[6..10].fill(0.02);
    let whole = compare(Metric::Throughput, &pairs(&changes));
    assert_eq!(whole.verdict, BETTER, "both halves rise: {whole:?}");

    let mut changes = vec![0.05; 40];
    changes[..11].fill(-0.000_1);
    changes[11..20].fill(-0.000_05);
    changes[20..].fill(0.05);
    let rules = Decide { min_effect: 0.0, confidence: 0.5, ..Decide::default() };
    let split = compare_failed(rules, Metric::Throughput, &pairs(&changes), [0, 0]);
    assert!(split.interval_pct.unwrap()[0] > 0.0);
    assert_eq!(split.verdict, UNDECIDED);
    assert_eq!(
        reason(&split),
        "the halves of the experiment disagree: -0.01 % in the first, +5.00 % in the second"
    );
}

#[test]
fn the_interval_is_of_the_estimate_and_narrows_while_the_spread_stays() {
    let changes = |n: usize| (0..n).map(|i| 0.03 + 0.01 * (i as f64 * 2.4).sin()).collect::<Vec<_>>();
    let [few, many] = [10, 60].map(|n| compare(Metric::Throughput, &pairs(&changes(n))));
    let width = |comparison: &Comparison| comparison.interval_pct.map(|[low, high]| high - low).unwrap();
    assert!(width(&many) < width(&few) / 2.0);
    assert!(many.base.stddev.unwrap() > few.base.stddev.unwrap() * 0.8);
}

#[test]
fn two_modes_are_never_one_mean_without_a_doubt() {
    let modes = [0.56, 1.0, 0.57, 1.01, 1.0, 0.56, 0.57, 1.02, 0.56, 0.99];
    let values: Vec<_> = modes.iter().enumerate().map(|(i, arm)| (9e9 + 1e7 * i as f64, 9e9 * arm)).collect();
    let comparison = compare(Metric::Throughput, &values);
    let doubt = comparison.doubts.iter().find(|doubt| doubt.id == DoubtId::TwoModes).expect("two modes");
    assert_eq!(doubt.text, "on has two groups of runs: 5 are about 44 % below the other 5");
    assert!(doubt.advice.contains("--pin"));
}

#[test]
fn a_wide_spread_gets_no_verdict() {
    let values: Vec<_> =
        [1142.0, 5000.0, 8790.0, 2000.0, 7000.0, 4000.0, 3000.0, 6000.0].map(|arm| (arm, arm * 1.2)).to_vec();
    let comparison = compare(Metric::Throughput, &values);
    assert_eq!(comparison.verdict, UNDECIDED);
    assert_eq!(reason(&comparison), "the spread of off is 56.2 % of its mean, more than 30 %");
    assert_eq!(doubts(&comparison), [DoubtId::Spread, DoubtId::Spread]);
    // A change larger than the spread is not explained by it.
    let collapse: Vec<_> = values.iter().map(|(base, arm)| (*base, arm * 0.1)).collect();
    let comparison = compare(Metric::Throughput, &collapse);
    assert_eq!((comparison.verdict, comparison.reason.as_deref()), (WORSE, None));
    assert_eq!(doubts(&comparison), [DoubtId::Spread, DoubtId::Spread], "the doubt stays");
    let wide = Decide { max_spread: 1.0, ..Decide::default() };
    assert_eq!(compare_failed(wide, Metric::Throughput, &values, [0, 0]).verdict, BETTER);
}

#[test]
fn failed_runs_are_counted_and_above_a_tenth_withhold_the_verdict() {
    let values = pairs(&[0.05, 0.06, 0.04, 0.05, 0.055, 0.045, 0.052, 0.048, 0.05]);
    // (pairs with values, failed runs of base and arm, verdict)
    for (n, failed, verdict) in [
        (9, [0, 0], BETTER),
        (9, [0, 1], BETTER),
        (9, [1, 0], BETTER),
        (8, [0, 2], UNDECIDED),
        (8, [2, 0], UNDECIDED),
    ] {
        let comparison = compare_failed(Decide::default(), Metric::Throughput, &values[..n], failed);
        assert_eq!(comparison.verdict, verdict, "{failed:?}");
        assert_eq!([comparison.base.failed, comparison.arm.failed], failed);
        assert_eq!((comparison.base.n, comparison.arm.n), (n, n));
        assert_eq!(doubts(&comparison).contains(&DoubtId::FailedRuns), failed != [0, 0]);
        assert!(comparison.change_pct.is_some(), "the numbers are shown either way");
    }
    let withheld = compare_failed(Decide::default(), Metric::Throughput, &values[..8], [0, 2]);
    assert_eq!(reason(&withheld), "withheld: 2 of 10 runs of on failed, more than 10 %");
}

#[test]
fn a_value_that_is_no_number_fails_its_pair() {
    let mut values = pairs(&[0.05; 20]);
    values[3].1 = f64::NAN;
    let comparison = compare(Metric::Throughput, &values);
    assert_eq!((comparison.base.n, comparison.base.failed, comparison.arm.failed), (19, 1, 1));
    assert_eq!(comparison.verdict, BETTER);
    assert!(comparison.arm.mean.unwrap().is_finite());
}

#[test]
fn counts_that_reach_zero_are_compared_by_difference() {
    let judge = |values: &[(f64, f64)]| compare(Metric::Retransmits, values);

    let none = judge(&[(0.0, 0.0); 6]);
    assert_eq!((none.verdict, none.change_pct, none.interval_pct), (EQUIVALENT, Some(0.0), Some([0.0, 0.0])));

    let fewer = judge(&[(10.0, 2.0), (12.0, 0.0), (9.0, 1.0), (11.0, 0.0), (8.0, 2.0), (10.0, 1.0)]);
    assert_eq!((fewer.verdict, fewer.change_pct, fewer.interval_pct), (BETTER, None, None));
    assert_eq!(reason(&fewer), "a count that is often 0 has no percentage");
    assert_eq!(doubts(&fewer), [], "such a count spreads by its nature");

    let from_nothing = judge(&[(0.0, 3.0), (0.0, 5.0), (0.0, 4.0), (0.0, 6.0), (0.0, 3.5), (0.0, 9.0)]);
    assert_eq!(
        (from_nothing.verdict, from_nothing.change_pct, from_nothing.interval_pct),
        (WORSE, None, None)
    );
    assert_eq!(reason(&from_nothing), "a count that is often 0 has no percentage");

    let hardly = judge(&[(0.0, 3.0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0)]);
    assert_eq!(hardly.verdict, UNDECIDED);
}

#[test]
fn what_stands_alone_may_not_stand_in_a_family() {
    let found = compare(Metric::Throughput, &pairs(&[0.05, 0.06, 0.04, 0.05, 0.055, 0.045]));
    let lost = compare(Metric::Throughput, &pairs(&[0.05, -0.06, 0.04, -0.05, 0.055, -0.045]));
    let unjudged = compare(Metric::Rtt, &pairs(&[0.05; 6]));
    assert_eq!((found.verdict, found.verdict_corrected), (BETTER, BETTER));

    let mut family = [found.clone(), unjudged, lost];
    correct(&mut family);
    assert_eq!(family.each_ref().map(|c| c.verdict), [BETTER, None, UNDECIDED], "the plain verdict stays");
    assert_eq!(family.each_ref().map(|c| c.verdict_corrected), [UNDECIDED, None, UNDECIDED]);
    assert_eq!(reason(&family[0]), "does not stand among 2 comparisons: at least 7 pairs are needed");

    let mut alone = [found.clone()];
    correct(&mut alone);
    assert_eq!(alone, [found]);

    let mut strong = [0.05, 0.0].map(|change| compare(Metric::Throughput, &pairs(&[change; 12])));
    correct(&mut strong);
    assert_eq!(strong.each_ref().map(|c| c.verdict_corrected), [BETTER, EQUIVALENT]);
    let once = strong.clone();
    correct(&mut strong);
    assert_eq!(strong, once);
}

#[test]
fn a_comparison_is_written_as_documented_and_reads_back() {
    let comparison = compare(Metric::ServiceDemand, &[(1.0, 1.5); 6]);
    let written = serde_json::to_value(&comparison).unwrap();
    assert_eq!(written["p_value"], json!(0.03125));
    let change = comparison.change_pct.unwrap();
    assert!((change - 50.0).abs() < 1e-9);
    let expected = json!({
        "metric": "service_demand", "scope": "sender", "unit": "us/KiB", "cell": {"message_bytes": 131_072},
        "base": {"arm": "off", "mean": 1.0, "stddev": 0.0, "n": 6, "failed": 0},
        "arm": {"arm": "on", "mean": 1.5, "stddev": 0.0, "n": 6, "failed": 0},
        "change_pct": change, "interval_pct": [change, change], "confidence": 0.95, "min_effect_pct": 1.0,
        "p_value": 0.03125, "verdict": "worse", "verdict_corrected": "worse", "reason": null, "doubts": []
    });
    assert_eq!(written, expected);
    assert_eq!(serde_json::from_value::<Comparison>(written).unwrap(), comparison);
}

proptest! {
    #[test]
    fn no_runs_make_a_verdict_without_an_interval_that_says_the_same(
        values in proptest::collection::vec((0u32..2000, 0u32..2000), 0..30), min_effect in 0.0f64..1.5,
    ) {
        let values: Vec<_> = values.into_iter().map(|(base, arm)| (f64::from(base), f64::from(arm))).collect();
        let rules = Decide { min_effect, max_spread: f64::INFINITY, ..Decide::default() };
        let comparison = compare_failed(rules, Metric::Throughput, &values, [0, 0]);
        if let Some([low, high]) = comparison.interval_pct {
            let (bound, slack) = (min_effect * 100.0, 1e-9);
            match comparison.verdict.unwrap() {
                Verdict::Better => prop_assert!(low >= bound - slack),
                Verdict::Worse => prop_assert!(high <= slack - bound),
                Verdict::Equivalent => prop_assert!(low >= -bound - slack && high <= bound + slack),
                Verdict::Undecided => prop_assert!(comparison.reason.is_some()),
            }
            let change = comparison.change_pct.unwrap();
            prop_assert!(low <= change && change <= high);
        }
    }
}
