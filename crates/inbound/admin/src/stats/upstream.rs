//! The statistics of envoyproxy/ratelimit, by their names there.
//!
//! A rule has one limit there; if ours has several, the limit's name follows the path. Rules whose metrics show values of
//! requests are listed by those values, up to the maximum of such series.

use tidegate_engine::{Clock, Tally};

use tidegate_statsd::StatsReading;

use super::name::clean;
use super::timer;
use crate::observations::{Reason, Series};
use crate::service::Inner;

/// The meter of the door that envoyproxy/ratelimit has too.
const RLS: &str = "grpc";

pub(super) fn read<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    let mut stats = StatsReading::default();
    let hits = door.engine.hits(door.parts.settings.rules_max);
    for (of, hits) in &hits.limits {
        if hits.shows_values {
            continue;
        }
        let limit = if hits.one_of_several { of.limit.as_str() } else { "" };
        limit_stats(&mut stats, &of.domain, &of.rule, limit, &hits.tally);
    }
    for Series { labels, tally } in door.parts.observations.values() {
        let limit = if labels.one_of_several { labels.limit.as_str() } else { "" };
        limit_stats(&mut stats, &labels.domain, &labels.path, limit, &tally);
    }
    for (domain, count) in door.parts.observations.unknown_domains() {
        let domain = clean(&domain);
        stats.add(format!("ratelimit.service.rate_limit.{domain}.domain_not_found"), count);
    }
    service_stats(&mut stats, door);
    stats
}

fn limit_stats(stats: &mut StatsReading, domain: &str, path: &str, limit: &str, tally: &Tally) {
    let (domain, path, limit) = (clean(domain), clean(path), clean(limit));
    let dot = if limit.is_empty() { "" } else { "." };
    let mut add = |name: &str, count: u64| {
        let prefix = "ratelimit.service.rate_limit";
        stats.add(format!("{prefix}.{domain}.{path}{dot}{limit}.{name}"), count);
    };
    add("total_hits", tally.within.saturating_add(tally.over));
    add("over_limit", tally.over);
    add("near_limit", tally.near);
    add("within_limit", tally.within);
    add("shadow_mode", tally.shadow);
    // The embedded store needs no cache of keys over their limit.
    add("over_limit_with_local_cache", 0);
}

fn service_stats<S, C: Clock>(stats: &mut StatsReading, door: &Inner<S, C>) {
    let parts = &door.parts;
    let rules = parts.rules.as_ref().map(|ask| ask()).unwrap_or_default();
    let mut add = |name: &str, count: u64| {
        stats.add(format!("ratelimit.service.{name}"), count);
    };
    add("config_load_success", rules.loads);
    add("config_load_error", rules.failures);
    add("global_shadow_mode", parts.globally_shadowed.as_ref().map_or(0, |ask| ask()));
    let service_errors = parts.service_errors.as_ref().map_or(0, |ask| ask());
    add("call.should_rate_limit.service_error", service_errors);
    for reason in Reason::ALL {
        let word = if reason.is_store() { "redis_error" } else { "service_error" };
        add(&format!("call.should_rate_limit.{word}"), parts.observations.undecided(reason));
    }
    let calls = parts
        .meters
        .iter()
        .filter(|meter| meter.door() == RLS)
        .map(|meter| ("ShouldRateLimit", meter));
    let checks = parts.health_meter.iter().map(|meter| ("Check", meter));
    for (method, meter) in calls.chain(checks) {
        let (prefix, reading) = (format!("ratelimit_server.{method}"), meter.read());
        stats.add(format!("{prefix}.total_requests"), reading.answers.iter().sum());
        stats.timers.push(timer(format!("{prefix}.response_time"), &reading));
    }
}
