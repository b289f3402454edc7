//! Simulated sites with planted faults, to measure findings: one for each seed.
//!
//! A site has callers of some behaviour, one rule, and fifteen days of traffic through the production engine. Its limit
//! is chosen so that it has one fault, or none. The findings about it are compared with what was planted.

mod behaviour;
mod day;
mod site;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_insight::FindingKind;

pub use day::{DAY_DOMAIN, DayCounts, DayRequest, SimulatedDay};
pub use site::{PlantedSite, SiteResult};

/// Seeds after which the kinds of sites repeat: three sites with each fault, and ten clean ones.
const SITES_PER_ROUND: u64 = 49;
/// Sites of each round with each fault.
const SITES_PER_KIND: u64 = 3;

/// The findings on many sites, against what was planted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteScores {
    /// By planted kind, or [`None`] for clean sites: how often each kind was found, and how many sites there were.
    rows: BTreeMap<Option<FindingKind>, (u64, BTreeMap<FindingKind, u64>)>,
    /// For sites that are too strict: callers, and those that the suggested limit refuses in the next week.
    pub suggested: (u64, u64),
    /// For sites that are too strict: what the busiest callers want, and the suggested limits; sums.
    pub headroom: (u64, u64),
    /// For sites with bursts: refusals before and with the suggested burst.
    pub bursts: (u64, u64),
}

/// The fault of the site of a seed; [`None`] for a clean one.
fn planted(seed: u64) -> Option<FindingKind> {
    let kind = usize::try_from(seed % SITES_PER_ROUND / SITES_PER_KIND).ok()?;
    FindingKind::ALL.get(kind).copied()
}

impl SiteScores {
    /// Simulates the sites of these seeds, on every processor.
    pub fn of_seeds(seeds: &Range<u64>) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let next = AtomicU64::new(seeds.start);
        let work = || {
            let mut scores = SiteScores::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return scores;
                }
                scores.add_seed(seed);
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut all = SiteScores::default();
            for worker in workers {
                all.merge(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            all
        })
    }

    /// Simulates the site of a seed.
    pub fn add_seed(&mut self, seed: u64) {
        let kind = planted(seed);
        self.add(kind, &PlantedSite::new(kind, seed).run());
    }

    /// Adds the scores of other sites.
    pub fn merge(&mut self, other: SiteScores) {
        for (kind, (sites, found)) in other.rows {
            let (all_sites, all_found) = self.rows.entry(kind).or_default();
            *all_sites += sites;
            for (kind, count) in found {
                *all_found.entry(kind).or_default() += count;
            }
        }
        add_pair(&mut self.suggested, other.suggested);
        add_pair(&mut self.headroom, other.headroom);
        add_pair(&mut self.bursts, other.bursts);
    }

    fn add(&mut self, planted: Option<FindingKind>, result: &SiteResult) {
        let (sites, found) = self.rows.entry(planted).or_default();
        *sites += 1;
        for kind in &result.found {
            *found.entry(*kind).or_default() += 1;
        }
        add_pair(&mut self.suggested, result.suggested);
        add_pair(&mut self.headroom, result.headroom);
        add_pair(&mut self.bursts, result.bursts);
    }

    /// Found and planted; found and not planted; planted and not found.
    fn counts(&self, kind: FindingKind) -> (u64, u64, u64) {
        let (mut hits, mut false_alarms, mut missed) = (0, 0, 0);
        for (planted, (sites, found)) in &self.rows {
            let count = found.get(&kind).copied().unwrap_or(0);
            if *planted == Some(kind) {
                hits += count;
                missed += sites - count;
            } else {
                false_alarms += count;
            }
        }
        (hits, false_alarms, missed)
    }

    /// The harmonic mean of precision and recall over all kinds.
    pub fn f1(&self) -> f64 {
        let sum = FindingKind::ALL.into_iter().map(|kind| self.counts(kind));
        let (hits, alarms, missed) =
            sum.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        f1(hits, alarms, missed)
    }

    /// How often a kind was found on clean sites.
    pub fn found_on_clean(&self, kind: FindingKind) -> u64 {
        self.rows.get(&None).and_then(|(_, found)| found.get(&kind)).copied().unwrap_or(0)
    }

    /// The scores of each kind, and the confusion table: planted kinds in rows, found kinds in columns.
    pub fn render(&self) -> String {
        let mut out = String::from("| Planted | Sites | Precision | Recall | F1 |");
        let numbered = FindingKind::ALL.into_iter().zip(1..);
        numbered.clone().for_each(|(_, number)| out += &format!(" {number} |"));
        out += "\n|---|---|---|---|---|";
        out += &"---|".repeat(FindingKind::ALL.len());
        for (kind, number) in numbered {
            let (hits, alarms, missed) = self.counts(kind);
            let name = format!("{number} `{}`", kind.as_str());
            let precision = crate::replay::share(hits, hits + alarms);
            let recall = crate::replay::share(hits, hits + missed);
            let scores = format!("{precision:.3} | {recall:.3} | {:.3}", f1(hits, alarms, missed));
            self.render_row(&mut out, Some(kind), &name, &scores);
        }
        self.render_row(&mut out, None, "(clean)", " | | ");
        let share = |(whole, part): (u64, u64)| crate::replay::share(part, whole);
        let _ = write!(
            out,
            "\n\nF1 {:.4}. Callers that suggested limits refuse in the next week: {} of {} ({:.3} %). Suggested \
             limits are {:.2} times what the busiest callers want. Refusals with a suggested burst, of those before: \
             {:.3}.\n",
            self.f1(),
            self.suggested.1,
            self.suggested.0,
            share(self.suggested) * 100.0,
            share(self.headroom),
            share(self.bursts),
        );
        out
    }

    fn render_row(&self, out: &mut String, planted: Option<FindingKind>, name: &str, scores: &str) {
        let none = (0, BTreeMap::new());
        let (sites, found) = self.rows.get(&planted).unwrap_or(&none);
        let _ = write!(out, "\n| {name} | {sites} | {scores} |");
        for kind in FindingKind::ALL {
            let _ = match found.get(&kind) {
                Some(count) => write!(out, " {count} |"),
                None => write!(out, " |"),
            };
        }
    }
}

fn add_pair(sum: &mut (u64, u64), (one, two): (u64, u64)) {
    sum.0 += one;
    sum.1 += two;
}

fn f1(hits: u64, false_alarms: u64, missed: u64) -> f64 {
    crate::replay::share(2 * hits, 2 * hits + false_alarms + missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_faults_are_found_and_clean_sites_are_left_alone() {
        let mut scores = SiteScores::default();
        // One of each kind, and four clean ones: `tidegate-simulation sites` measures whole rounds.
        let faults = (0..SITES_PER_ROUND - 10).step_by(3);
        faults.chain(SITES_PER_ROUND - 4..SITES_PER_ROUND).for_each(|seed| scores.add_seed(seed));
        assert_eq!(scores.rows.len(), FindingKind::ALL.len() + 1, "{}", scores.render());
        assert!(scores.f1() >= 0.95, "{}", scores.render());
        assert_eq!(scores.found_on_clean(FindingKind::TooStrict), 0, "{}", scores.render());
    }

    #[test]
    fn a_round_of_seeds_has_three_sites_with_each_fault_and_ten_clean_ones() {
        let of = |kind| (0..SITES_PER_ROUND).filter(|seed| planted(*seed) == kind).count();
        assert!(FindingKind::ALL.into_iter().all(|kind| of(Some(kind)) == 3));
        assert_eq!(of(None), 10);
    }

    #[test]
    fn the_confusion_table_has_what_was_found_beside_what_was_planted() {
        let mut scores = SiteScores::default();
        let found =
            |kinds: &[FindingKind]| SiteResult { found: kinds.to_vec(), ..SiteResult::default() };
        scores.add(Some(FindingKind::Idle), &found(&[FindingKind::Idle]));
        scores.add(Some(FindingKind::Idle), &found(&[]));
        let mut others = SiteScores::default();
        others.add(None, &found(&[FindingKind::Idle]));
        scores.merge(others);
        let table = scores.render();
        assert!(table.contains("| 2 `idle` | 2 | 0.500 | 0.500 | 0.500 | | 1 |"), "{table}");
        assert!(table.contains("| (clean) | 1 |  | |  | | 1 |"), "{table}");
        assert_eq!(scores.found_on_clean(FindingKind::Idle), 1);
    }
}
