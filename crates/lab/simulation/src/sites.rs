//! Simulated sites with planted faults, to measure findings.
//!
//! A site has callers of some behaviour, one rule, and fifteen days of traffic through the production engine. Its limit
//! is chosen so that it has one fault, or none. The findings about it are compared with what was planted.

mod behaviour;
mod site;

use std::collections::BTreeMap;
use std::fmt::Write;

use tidegate_insight::FindingKind;

pub use site::{PlantedSite, SiteResult};

/// Clean sites of each seed.
const CLEAN_SITES: u64 = 10;
/// Sites of each seed with each fault.
const SITES_PER_KIND: u64 = 3;

/// The findings on many sites, against what was planted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteScores {
    /// By planted kind, or [`None`] for clean sites: how often each kind was found, and how many sites there were.
    rows: BTreeMap<Option<FindingKind>, (u64, BTreeMap<FindingKind, u64>)>,
    /// For sites that are too strict: callers, and those that the suggested limit refuses in the next week.
    pub suggested: (u64, u64),
    /// For sites with bursts: refusals before and with the suggested burst.
    pub bursts: (u64, u64),
}

impl SiteScores {
    /// Simulates the sites of a seed.
    pub fn add_seed(&mut self, seed: u64) {
        let planted = FindingKind::ALL
            .into_iter()
            .flat_map(|kind| (0..SITES_PER_KIND).map(move |number| (Some(kind), number)));
        let clean = (0..CLEAN_SITES).map(|number| (None, number));
        for (kind, number) in planted.chain(clean) {
            let result =
                PlantedSite::new(kind, seed.wrapping_mul(1_000).wrapping_add(number)).run();
            self.add(kind, &result);
        }
    }

    fn add(&mut self, planted: Option<FindingKind>, result: &SiteResult) {
        let (sites, found) = self.rows.entry(planted).or_default();
        *sites += 1;
        for kind in &result.found {
            *found.entry(*kind).or_default() += 1;
        }
        let add = |sum: &mut (u64, u64), (one, two): (u64, u64)| {
            sum.0 += one;
            sum.1 += two;
        };
        add(&mut self.suggested, result.suggested);
        add(&mut self.bursts, result.bursts);
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

    /// The scores of each kind and what was found where, as a table in Markdown.
    pub fn render(&self) -> String {
        let mut out = String::from("| Planted | Sites | F1 | Found |\n|---|---|---|---|\n");
        for (planted, (sites, found)) in &self.rows {
            let name = planted.map_or("(clean)", FindingKind::as_str);
            let score = planted.map(|kind| {
                let (hits, alarms, missed) = self.counts(kind);
                format!("{:.3}", f1(hits, alarms, missed))
            });
            let found: Vec<String> =
                found.iter().map(|(kind, count)| format!("{} {count}", kind.as_str())).collect();
            let _ = writeln!(
                out,
                "| `{name}` | {sites} | {} | {} |",
                score.unwrap_or_default(),
                found.join(", ")
            );
        }
        let share = |(whole, part): (u64, u64)| crate::replay::share(part, whole);
        let _ = write!(
            out,
            "\nF1 {:.4}. Callers that suggested limits refuse in the next week: {:.3} %. Refusals with a \
             suggested burst, of those before: {:.3}.\n",
            self.f1(),
            share(self.suggested) * 100.0,
            share(self.bursts),
        );
        out
    }
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
        scores.add_seed(0);
        assert!(scores.f1() >= 0.95, "{}", scores.render());
        assert_eq!(scores.found_on_clean(FindingKind::TooStrict), 0, "{}", scores.render());
    }
}
