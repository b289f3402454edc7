//! The metrics of the engine: hits by limit, the rules in place, switches, and those of its store.

use tidegate_algorithms::Clock;
use tidegate_metrics::Exposition;
use tidegate_rules::Mode;
use tidegate_stores::CounterStore;

use crate::containment::contained_panics;
use crate::engine::Engine;
use crate::hits::{LimitLabels, OTHERS, outcomes};

tidegate_metrics::metrics! {
    /// The metrics of [`Engine`].
    pub ENGINE_METRICS:
    RULE_HITS = Counter "tidegate_rule_hits_total" ["domain", "rule", "limit", "outcome"]
        "Hits by limit and outcome. Limits that were never hit are left out.";
    RULE_NEAR_LIMIT = Counter "tidegate_rule_near_limit_hits_total" ["domain", "rule", "limit"]
        "Hits that were admitted with little left of the limit.";
    UNMATCHED = Counter "tidegate_descriptors_unmatched_total" ["domain"]
        "Descriptors of a known domain that matched no rule. Domains without any are left out.";
    CONTAINED_PANICS = Counter "tidegate_contained_panics_total" ["stage"]
        "Panics of limiter code outside the engine, by stage. Their requests were admitted.";
    RULES_SUMMED = Gauge "tidegate_rules_summed" []
        "Rules beyond the maximum, whose hits are summed.";
    RULES_INFO = Info "tidegate_rules_info" ["version"]
        "The version of the rules in place.";
    RULES = Gauge "tidegate_rules_in_place" []
        "Rules in place.";
    RULES_LIMITS = Gauge "tidegate_rules_limits" []
        "Limits of the rules in place.";
    SWITCHES = Gauge "tidegate_switches" ["mode"]
        "Limits that are switched at run time, by the mode they are switched to.";
}

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// Writes the metrics of the engine and of its store. Rules and domains beyond `rules_max` are summed.
    pub fn collect(&self, rules_max: usize, out: &mut Exposition) {
        self.collect_hits(rules_max, out);
        self.collect_unmatched(rules_max, out);
        let snapshot = self.snapshot();
        let version = format!("{:016x}", snapshot.version());
        out.by_label(RULES_INFO, [(&*version, 1)]);
        out.single(RULES, snapshot.rules().len());
        out.single(RULES_LIMITS, snapshot.limits().len());
        self.collect_switches(out);
        out.by_label(CONTAINED_PANICS, contained_panics());
        self.store().collect(self.clock().now(), out);
    }

    fn collect_hits(&self, rules_max: usize, out: &mut Exposition) {
        let hits = self.hits(rules_max);
        let mut by_outcome = out.family(RULE_HITS);
        for (LimitLabels { domain, rule, limit }, hits) in &hits.limits {
            for (outcome, count) in outcomes(&hits.tally) {
                by_outcome.sample(&[domain, rule, limit, outcome], count);
            }
        }
        let mut near = out.family(RULE_NEAR_LIMIT);
        for (LimitLabels { domain, rule, limit }, hits) in &hits.limits {
            near.sample(&[domain, rule, limit], hits.tally.near);
        }
        out.single(RULES_SUMMED, hits.rules_summed);
    }

    fn collect_unmatched(&self, domains_max: usize, out: &mut Exposition) {
        let (mut listed, mut others) = (0, 0_u64);
        let mut family = out.family(UNMATCHED);
        for (domain, count) in self.active_rules().unmatched().read() {
            if listed < domains_max {
                listed += 1;
                family.sample(&[domain], count);
            } else {
                others = others.saturating_add(count);
            }
        }
        if others > 0 {
            family.sample(&[OTHERS], others);
        }
    }

    fn collect_switches(&self, out: &mut Exposition) {
        let mut switched = [0_u64; Mode::WORDS.len()];
        self.for_each_switch(|_, _, _, mode| {
            for (word, count) in Mode::WORDS.iter().zip(&mut switched) {
                *count += u64::from(*word == mode.as_str());
            }
        });
        out.by_label(SWITCHES, Mode::WORDS.iter().copied().zip(switched));
    }
}
