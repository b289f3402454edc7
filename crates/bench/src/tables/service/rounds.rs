//! Contenders taking turns, until enough rounds were quiet.
//!
//! A round visits each contender once. It is quiet if nobody else used the
//! machine during any of its visits; others do not count. Where the machine is
//! never quiet all rounds count, and the table says so.

use std::collections::BTreeMap;

use super::contender::{Contender, Who};
use crate::spread::Spread;

/// Processors that others may keep busy in a quiet round.
const OTHERS_MAX: f64 = 0.15;
/// Rounds that are tried for each that is wanted.
const TRIES: usize = 3;
/// Fewer quiet rounds have no median worth the name.
const QUIET_MIN: usize = 3;

/// What came of visiting one contender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit<F> {
    pub(super) figures: F,
    /// How many processors others kept busy meanwhile.
    pub(super) others: f64,
}

/// One round: a visit to each.
type Round<F> = BTreeMap<Who, Visit<F>>;

/// The rounds that count.
#[derive(Debug)]
pub(super) struct Rounds<F> {
    rounds: Vec<Round<F>>,
    tried: usize,
    are_quiet: bool,
}

impl<F> Rounds<F> {
    /// Makes a round that does not count, then as many as it takes to have
    /// `wanted` quiet ones, but not forever.
    ///
    /// # Errors
    /// When a visit fails.
    pub(super) fn run<'c, 's: 'c>(
        contenders: impl IntoIterator<Item = &'c Contender<'s>>,
        wanted: usize,
        visit: impl Fn(&Contender<'s>) -> anyhow::Result<Visit<F>>,
    ) -> anyhow::Result<Self> {
        let contenders: Vec<&Contender<'s>> = contenders.into_iter().collect();
        Rounds::collect(wanted, || {
            let visits = contenders.iter().map(|contender| Ok((contender.who, visit(contender)?)));
            visits.collect()
        })
    }

    fn collect(
        wanted: usize,
        mut round: impl FnMut() -> anyhow::Result<Round<F>>,
    ) -> anyhow::Result<Self> {
        round()?;
        let (mut quiet, mut noisy) = (Vec::new(), Vec::new());
        while quiet.len() < wanted && quiet.len() + noisy.len() < wanted * TRIES {
            let round = round()?;
            let is_quiet = round.values().all(|visit| visit.others <= OTHERS_MAX);
            if is_quiet { &mut quiet } else { &mut noisy }.push(round);
        }
        let tried = quiet.len() + noisy.len();
        let are_quiet = quiet.len() >= QUIET_MIN.min(wanted);
        if !are_quiet {
            quiet.append(&mut noisy);
        }
        Ok(Rounds { rounds: quiet, tried, are_quiet })
    }

    /// Whether this one took part.
    pub(super) fn has(&self, who: Who) -> bool {
        self.rounds.iter().any(|round| round.contains_key(&who))
    }

    /// The median of a figure.
    pub(super) fn median(&self, who: Who, figure: fn(&F) -> f64) -> f64 {
        let visits = self.rounds.iter().filter_map(|round| round.get(&who));
        Spread::of(visits.map(|visit| figure(&visit.figures)).collect()).median
    }

    /// How many times another's figure one has, within each round.
    pub(super) fn ratio(&self, who: Who, other: Who, figure: fn(&F) -> f64) -> Spread {
        let ratios = self.rounds.iter().filter_map(|round| {
            let (one, other) = (round.get(&who)?, round.get(&other)?);
            Some(figure(&one.figures) / figure(&other.figures))
        });
        Spread::of(ratios.collect())
    }

    /// How far the figures can be trusted, in words.
    pub(super) fn quality(&self) -> String {
        let (count, tried) = (self.rounds.len(), self.tried);
        if self.are_quiet {
            format!("{count} quiet rounds of {tried}.")
        } else {
            format!(
                "All {count} rounds count: in fewer than {QUIET_MIN} of them others left the machine alone."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of two contenders, the machine being as busy as told.
    fn rounds(others: &[f64], wanted: usize) -> Rounds<f64> {
        let mut at = 0;
        Rounds::collect(wanted, || {
            let others = others.get(at).copied().unwrap_or(1.0);
            at += 1;
            let visit = |figures| Visit { figures, others };
            let figure = at as f64;
            Ok(BTreeMap::from([
                (Who::Tidegate, visit(figure)),
                (Who::BareTonic, visit(2.0 * figure)),
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
        assert_eq!(rounds.quality(), "3 quiet rounds of 5.");
        let counted: Vec<f64> =
            rounds.rounds.iter().map(|round| round[&Who::Tidegate].figures).collect();
        assert_eq!(counted, [2.0, 4.0, 6.0]);
        assert_eq!(
            rounds.ratio(Who::Tidegate, Who::BareTonic, itself).to_string(),
            "0.50 (0.50–0.50)"
        );
    }

    #[test]
    fn all_rounds_count_where_the_machine_is_never_quiet() {
        let rounds = rounds(&[], 3);
        assert_eq!(rounds.rounds.len(), 9);
        assert!(rounds.quality().starts_with("All 9 rounds count"));
    }

    #[test]
    fn who_took_no_part_has_no_figure() {
        let rounds = rounds(&[0.0; 4], 3);
        assert!(rounds.has(Who::Tidegate) && !rounds.has(Who::Limitador));
        assert!(rounds.ratio(Who::Tidegate, Who::Limitador, itself).median.is_nan());
    }
}
