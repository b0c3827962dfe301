//! One run's figures, and what is made of those of many rounds.

use crate::table::Ratio;

/// A row's figures in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// Per second.
    pub(crate) rate: f64,
    /// Seconds of CPU time, of the whole host, for one.
    pub(crate) cost: f64,
    /// The rate the tool gave itself, as a share of the one that was counted.
    pub(crate) word: Option<f64>,
    /// Datagrams that reached the receiver's host and not the receiver, as a share of all that did.
    pub(crate) lost: f64,
}

/// The figures of one row, round by round; `None` where the run failed.
pub(crate) type Rounds = Vec<Option<Figure>>;

/// The middle of some values; `None` of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// Median, least and most of the ratios of the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    fn of(values: Vec<f64>) -> Option<Self> {
        let (least, most) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        median(values).map(|median| Self { median, least, most })
    }
}

/// A ratio of two rows, or of a row to the best of others, over the rounds in which all of them ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) rate: Spread,
    pub(crate) cost: Spread,
}

impl Ratio {
    /// Takes the ratio within each round; `None` where no round has all the rows.
    pub(crate) fn over<'a>(&self, rounds: impl Fn(&str) -> Option<&'a Rounds>) -> Option<Outcome> {
        let of = rounds(&self.of)?;
        let to: Vec<&Rounds> = self.to.iter().map(|name| rounds(name)).collect::<Option<_>>()?;
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for (round, figure) in of.iter().enumerate() {
            let others: Option<Vec<Figure>> = to.iter().map(|rounds| *rounds.get(round)?).collect();
            let (Some(figure), Some(others)) = (figure, others) else { continue };
            let rate = others.iter().map(|other| other.rate).fold(f64::MIN, f64::max);
            let cost = others.iter().map(|other| other.cost).fold(f64::MAX, f64::min);
            rates.push(figure.rate / rate);
            costs.push(figure.cost / cost);
        }
        Some(Outcome { rate: Spread::of(rates)?, cost: Spread::of(costs)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(figures: &[Option<(f64, f64)>]) -> Rounds {
        let figure = |&(rate, cost)| Figure { rate, cost, word: None, lost: 0.0 };
        figures.iter().map(|pair| pair.as_ref().map(figure)).collect()
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_a_failed_run_takes_its_round_out() {
        // The machine was twice as fast in the second round: the ratio does not see it.
        let haul = rounds(&[Some((110.0, 2.0)), Some((220.0, 1.0)), Some((1.0, 1.0)), Some((90.0, 2.0))]);
        let peer = rounds(&[Some((100.0, 4.0)), Some((200.0, 2.0)), None, Some((100.0, 4.0))]);
        let ratio = Ratio { of: "haul".into(), to: vec!["peer".into()], rate: None, cost: None };
        let outcome = ratio.over(|name| Some(if name == "haul" { &haul } else { &peer })).expect("rounds");
        assert_eq!(outcome.rate, Spread { median: 1.1, least: 0.9, most: 1.1 });
        assert_eq!(outcome.cost, Spread { median: 0.5, least: 0.5, most: 0.5 });
    }

    #[test]
    fn the_best_of_several_is_the_best_of_each_round() {
        let haul = rounds(&[Some((120.0, 1.0)), Some((120.0, 1.0)), Some((120.0, 1.0))]);
        let one = rounds(&[Some((100.0, 2.0)), Some((60.0, 4.0)), Some((100.0, 2.0))]);
        let other = rounds(&[Some((60.0, 1.0)), Some((120.0, 1.0)), Some((80.0, 0.5))]);
        let ratio =
            Ratio { of: "haul".into(), to: vec!["one".into(), "other".into()], rate: None, cost: None };
        let all = |name: &str| match name {
            "haul" => Some(&haul),
            "one" => Some(&one),
            "other" => Some(&other),
            _ => None,
        };
        let outcome = ratio.over(all).expect("rounds");
        assert_eq!(outcome.rate, Spread { median: 1.2, least: 1.0, most: 1.2 });
        assert_eq!(outcome.cost, Spread { median: 1.0, least: 1.0, most: 2.0 });
        let absent = Ratio { to: vec!["none".into()], ..ratio };
        assert_eq!(absent.over(all), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
