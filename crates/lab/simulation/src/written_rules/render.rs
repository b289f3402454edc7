//! The rules as YAML.

use std::fmt::{self, Display};

use super::{Kind, Level, Limits, Values, Window, WrittenLimit, WrittenRule, WrittenRules};
use crate::time::MILLISECOND;

impl Display for WrittenRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain: {}", super::DOMAIN)?;
        writeln!(f, "charge: {}", self.charge.as_str())?;
        if !self.plans.is_empty() {
            writeln!(f, "plans:")?;
        }
        for plan in &self.plans {
            writeln!(f, "  {}:", plan.name)?;
            write_limits(f, "    ", &plan.limits)?;
        }
        writeln!(f, "descriptors:")?;
        let rules: Vec<&WrittenRule> = self.rules.iter().collect();
        write_level(f, &rules, 0)
    }
}

/// The rules, which have their levels up to `depth` in common, one level further down.
fn write_level(f: &mut fmt::Formatter<'_>, rules: &[&WrittenRule], depth: usize) -> fmt::Result {
    let mut written: Vec<&Level> = Vec::new();
    for rule in rules {
        let Some(level) = rule.levels.get(depth) else { continue };
        if written.contains(&level) {
            continue;
        }
        written.push(level);
        let under: Vec<&WrittenRule> =
            rules.iter().copied().filter(|rule| rule.levels.get(depth) == Some(level)).collect();
        let indent = "    ".repeat(depth);
        write!(f, "{indent}  - key: {}", level.key)?;
        write_values(f, &indent, &level.values)?;
        if let Some(rule) = under.iter().find(|rule| rule.levels.len() == depth + 1) {
            write_rule(f, &indent, rule)?;
        }
        if under.iter().any(|rule| rule.levels.len() > depth + 1) {
            writeln!(f, "{indent}    descriptors:")?;
            write_level(f, &under, depth + 1)?;
        }
    }
    Ok(())
}

fn write_values(f: &mut fmt::Formatter<'_>, indent: &str, values: &Values) -> fmt::Result {
    writeln!(f)?;
    let shared = match values {
        Values::Any | Values::PlanName => false,
        Values::Address => {
            writeln!(f, "{indent}    address: true")?;
            false
        }
        Values::Exactly(value) => {
            writeln!(f, "{indent}    value: {value:?}")?;
            false
        }
        Values::Like { prefix, shared } => {
            writeln!(f, "{indent}    value: \"{prefix}*\"")?;
            *shared
        }
        Values::Within { net, shared } => {
            writeln!(f, "{indent}    cidr: \"{net}\"")?;
            *shared
        }
    };
    if shared { writeln!(f, "{indent}    share_threshold: true") } else { Ok(()) }
}

fn write_rule(f: &mut fmt::Formatter<'_>, indent: &str, rule: &WrittenRule) -> fmt::Result {
    if let Some(mode) = rule.mode {
        writeln!(f, "{indent}    mode: {}", mode.as_str())?;
    }
    if let Some(percent) = rule.enforce_percent {
        writeln!(f, "{indent}    enforce_percent: {percent}")?;
    }
    if rule.quota {
        writeln!(f, "{indent}    quota_mode: true")?;
    }
    match &rule.limits {
        Limits::Own(limits) => write_limits(f, &format!("{indent}    "), limits),
        Limits::Unlimited { replaces } => {
            write!(f, "{indent}    rate_limit: {{unlimited: true")?;
            write_replaces(f, replaces.as_deref())?;
            writeln!(f, "}}")
        }
        Limits::Plan(name) => writeln!(f, "{indent}    plan: {name}"),
        Limits::PlanNamedByValue { default: None } => {
            writeln!(f, "{indent}    plan: {{from: value}}")
        }
        Limits::PlanNamedByValue { default: Some(name) } => {
            writeln!(f, "{indent}    plan: {{from: value, default: {name}}}")
        }
    }
}

fn write_limits(f: &mut fmt::Formatter<'_>, indent: &str, limits: &[WrittenLimit]) -> fmt::Result {
    writeln!(f, "{indent}limits:")?;
    for limit in limits {
        write!(f, "{indent}  - {{name: {}, algorithm: {}", limit.name, limit.terms.algorithm())?;
        write_kind(f, limit.terms.kind)?;
        if limit.terms.counts_refused() {
            f.write_str(", count_refused: true")?;
        }
        if let Some(soft) = limit.terms.soft {
            let lasting = soft.lasting / MILLISECOND;
            write!(f, ", soft: {{over: {}%, for: {lasting}ms}}", soft.over_percent)?;
        }
        if let Some(mode) = limit.mode {
            write!(f, ", mode: {}", mode.as_str())?;
        }
        if let Some(percent) = limit.enforce_percent {
            write!(f, ", enforce_percent: {percent}")?;
        }
        if limit.cost != 1 {
            write!(f, ", cost: {}", limit.cost)?;
        }
        write_replaces(f, limit.replaces.as_deref())?;
        writeln!(f, "}}")?;
    }
    Ok(())
}

fn write_replaces(f: &mut fmt::Formatter<'_>, replaces: Option<&str>) -> fmt::Result {
    match replaces {
        Some(name) => write!(f, ", replaces: [{{name: {name}}}]"),
        None => Ok(()),
    }
}

fn write_kind(f: &mut fmt::Formatter<'_>, kind: Kind) -> fmt::Result {
    let per = |period: u64| format!("per: {}ms", period / MILLISECOND);
    match kind {
        Kind::TokenBucket { amount, period, burst } => {
            write!(f, ", requests_per_unit: {amount}, {}, burst: {burst}", per(period))
        }
        Kind::LeakyBucket { amount, period, queue } => {
            write!(f, ", requests_per_unit: {amount}, {}, queue: {queue}", per(period))
        }
        Kind::FixedWindow { limit, window, .. } => {
            write!(f, ", requests_per_unit: {limit}, ")?;
            match window {
                Window::Every(length) => f.write_str(&per(length)),
                Window::DayInTokyo => {
                    f.write_str("unit: day, calendar: true, time_zone: Asia/Tokyo")
                }
                Window::Week => f.write_str("unit: week, calendar: true"),
            }
        }
        Kind::SlidingLog { limit, period, .. } => {
            write!(f, ", requests_per_unit: {limit}, {}", per(period))
        }
        Kind::SlidingWindow { limit, period, buckets, rounds_down, .. } => {
            write!(f, ", requests_per_unit: {limit}, {}, buckets: {buckets}", per(period))?;
            f.write_str(if rounds_down { ", rounding: down" } else { "" })
        }
        Kind::Concurrency { limit, time_to_live } => {
            let millis = time_to_live / MILLISECOND;
            write!(f, ", requests_per_unit: {limit}, time_to_live: {millis}ms")
        }
    }
}
