//! The limits in place, one line each.
//!
//! Lines begin like those of envoyproxy/ratelimit, so that scripts keep working; members that it does not have follow.

use std::fmt::Write;
use std::time::Duration;

use tidegate_engine::{Algorithm, Mode, Nanos, Rule, RuleLimit, Snapshot};

/// Every limit, sorted.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let mut lines = Vec::new();
    for rule in snapshot.rules() {
        if rule.unlimited() {
            let terms = "unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false";
            lines.push(format!("{}{terms}, unlimited: true{}\n", head(rule), plan(rule)));
        }
        for limit in snapshot.limits_of(rule) {
            lines.push(line(snapshot, rule, limit));
        }
    }
    // By rule; the limits of one rule stay in the order of the file.
    lines.sort_by(|one, other| rule_of(one).cmp(rule_of(other)));
    lines.concat()
}

fn rule_of(line: &str) -> &str {
    line.split_once(": unit=").map_or(line, |(rule, _)| rule)
}

fn head(rule: &Rule) -> String {
    format!("{}.{}: ", rule.domain().escape_debug(), rule.path().escape_debug())
}

fn plan(rule: &Rule) -> String {
    rule.plan().map(|plan| format!(", plan: {}", plan.escape_debug())).unwrap_or_default()
}

fn line(snapshot: &Snapshot, rule: &Rule, limit: &RuleLimit) -> String {
    let algorithm = limit.limit.algorithm();
    let unit = limit.unit.map_or("UNKNOWN".to_owned(), |unit| unit.as_str().to_uppercase());
    let mut line = head(rule);
    let _ = write!(
        line,
        "unit={unit} requests_per_unit={}, shadow_mode: {}, quota_mode: {}",
        algorithm.quota(),
        limit.mode == Mode::Shadow,
        limit.quota,
    );
    if let Some(name) = limit.name {
        let _ = write!(line, ", name: {}", snapshot.name(name).escape_debug());
    }
    if !matches!(algorithm, Algorithm::FixedWindow(_)) {
        let _ = write!(line, ", algorithm: {}", algorithm.name());
    }
    if limit.unit.is_none() && !algorithm.holds_slots() {
        let _ = write!(line, ", per: {:?}", Duration::from_nanos(Nanos::get(algorithm.period())));
    }
    if let Some((key, value)) = algorithm.own_parameter() {
        let _ = write!(line, ", {key}: {value}");
    }
    if limit.mode == Mode::Off {
        line.push_str(", mode: off");
    }
    if limit.mode.enforce_percent() < 100 {
        let _ = write!(line, ", enforce_percent: {}", limit.mode.enforce_percent());
    }
    line.push_str(&plan(rule));
    line.push('\n');
    line
}
