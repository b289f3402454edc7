//! Contenders taking turns, until enough rounds were quiet.
//!
//! A round measures each contender once. It is quiet if other processes hardly used
//! the machine during it. If there are too few quiet rounds, the quietest count and
//! the table says so.

use std::collections::BTreeMap;

use crate::spread::Spread;

/// Processors that other processes may keep busy in a quiet round.
const OTHERS_MAX: f64 = 0.15;
/// Attempts for each wanted round.
const TRIES: usize = 2;

/// The measurement of one contender in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement<F> {
    pub(crate) figures: F,
    /// Processors that other processes kept busy meanwhile.
    pub(crate) others: f64,
}

/// One round: a measurement of each contender.
type Round<W, F> = BTreeMap<W, Measurement<F>>;

/// The rounds that count.
#[derive(Debug)]
pub(crate) struct Rounds<W, F> {
    rounds: Vec<Round<W, F>>,
    tried: usize,
}

impl<W: Copy + Ord, F> Rounds<W, F> {
    /// Runs a warm-up round, then as many as it takes to have `wanted` quiet ones, up to a maximum.
    /// Contenders come with their names.
    ///
    /// # Errors
    /// When a measurement fails.
    pub(crate) fn run<C>(
        contenders: impl IntoIterator<Item = (W, C)>,
        wanted: usize,
        mut visit: impl FnMut(&C) -> anyhow::Result<Measurement<F>>,
    ) -> anyhow::Result<Self> {
        let mut contenders: Vec<(W, C)> = contenders.into_iter().collect();
        Rounds::collect(wanted, || {
            // Rotated, so that the order does not favour any contender.
            if !contenders.is_empty() {
                contenders.rotate_left(1);
            }
            contenders.iter().map(|(who, contender)| Ok((*who, visit(contender)?))).collect()
        })
    }

    fn collect(
        wanted: usize,
        mut round: impl FnMut() -> anyhow::Result<Round<W, F>>,
    ) -> anyhow::Result<Self> {
        round()?;
        let mut rounds = Vec::new();
        let mut quiet = 0;
        while quiet < wanted && rounds.len() < wanted * TRIES {
            let round = round()?;
            quiet += usize::from(others_in(&round) <= OTHERS_MAX);
            rounds.push(round);
        }
        let tried = rounds.len();
        rounds.sort_by(|one, other| others_in(one).total_cmp(&others_in(other)));
        rounds.truncate(wanted);
        Ok(Rounds { rounds, tried })
    }

    /// Whether this contender was measured.
    pub(crate) fn has(&self, who: W) -> bool {
        self.rounds.iter().any(|round| round.contains_key(&who))
    }

    /// The figures of its measurements.
    pub(crate) fn figures(&self, who: W) -> impl Iterator<Item = &F> {
        self.rounds.iter().filter_map(move |round| Some(&round.get(&who)?.figures))
    }

    /// The median of a figure.
    pub(crate) fn median(&self, who: W, figure: impl Fn(&F) -> f64) -> f64 {
        Spread::of(self.figures(who).map(figure).collect()).median
    }

    /// The figure of one contender divided by that of another, within each round.
    pub(crate) fn ratio(&self, who: W, other: W, figure: fn(&F) -> f64) -> Spread {
        let ratios = self.rounds.iter().filter_map(|round| {
            let (one, other) = (round.get(&who)?, round.get(&other)?);
            Some(figure(&one.figures) / figure(&other.figures))
        });
        Spread::of(ratios.collect())
    }

    /// The reliability of the figures, in words.
    pub(crate) fn quality(&self) -> String {
        let others = self.rounds.iter().map(others_in).fold(0.0, f64::max);
        let (count, tried) = (self.rounds.len(), self.tried);
        let quiet = if others <= OTHERS_MAX { "quiet" } else { "NOT quiet" };
        format!(
            "the {count} quietest of {tried} rounds, in which others kept up to {others:.2} processors busy: {quiet}"
        )
    }
}

/// The highest usage of the machine by other processes during a round.
fn others_in<W, F>(round: &Round<W, F>) -> f64 {
    round.values().map(|visit| visit.others).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum TestContender {
        Tidegate,
        BareTonic,
        Limitador,
    }

    /// Rounds of two contenders on a machine with this load.
    fn rounds(others: &[f64], wanted: usize) -> Rounds<TestContender, f64> {
        let mut at = 0;
        Rounds::collect(wanted, || {
            let others = others.get(at).copied().unwrap_or(1.0);
            at += 1;
            let visit = |figures| Measurement { figures, others };
            let figure = at as f64;
            Ok(BTreeMap::from([
                (TestContender::Tidegate, visit(figure)),
                (TestContender::BareTonic, visit(2.0 * figure)),
            ]))
        })
        .unwrap()
    }

    const fn itself(figure: &f64) -> f64 {
        *figure
    }

    #[test]
    fn noisy_rounds_do_not_count() {
        let rounds = rounds(&[0.0, 0.1, 0.9, 0.1, 0.9, 0.1, 0.0], 3);
        let quality =
            "the 3 quietest of 5 rounds, in which others kept up to 0.10 processors busy: quiet";
        assert_eq!(rounds.quality(), quality);
        let counted: Vec<f64> =
            rounds.rounds.iter().map(|round| round[&TestContender::Tidegate].figures).collect();
        assert_eq!(counted, [2.0, 4.0, 6.0]);
        let ratio = rounds.ratio(TestContender::Tidegate, TestContender::BareTonic, itself);
        assert_eq!(ratio.to_string(), "0.50 (0.50–0.50)");
        assert!(rounds.figures(TestContender::BareTonic).eq(&[4.0, 8.0, 12.0]));
    }

    #[test]
    fn the_quietest_rounds_count_where_the_machine_is_never_quiet() {
        let rounds = rounds(&[0.0, 0.9, 0.3, 0.8, 0.5, 0.7], 2);
        let quality = "the 2 quietest of 4 rounds, in which others kept up to 0.50 processors busy: NOT quiet";
        assert_eq!(rounds.quality(), quality);
    }

    #[test]
    fn contenders_take_turns_at_being_first() {
        let mut visited = Vec::new();
        let contenders = [
            (TestContender::Tidegate, 'a'),
            (TestContender::BareTonic, 'b'),
            (TestContender::Limitador, 'c'),
        ];
        Rounds::run(contenders, 2, |contender| {
            visited.push(*contender);
            Ok(Measurement { figures: 0.0, others: 0.0 })
        })
        .unwrap();
        assert_eq!(visited.iter().collect::<String>(), "bcacababc");
    }

    #[test]
    fn who_took_no_part_has_no_figure() {
        let rounds = rounds(&[0.0; 4], 3);
        assert!(rounds.has(TestContender::Tidegate) && !rounds.has(TestContender::Limitador));
        assert!(
            rounds.ratio(TestContender::Tidegate, TestContender::Limitador, itself).median.is_nan()
        );
    }
}
