//! The page of metrics: every family of the vocabulary, read now.

use std::time::Duration;

use tidegate_engine::{Clock, Mode};

use super::door::Inner;
use super::exposition::{Exposition, Format};
use super::hits::{HitLimit, HitsReading, outcomes};
use super::observations::Reason;
use super::overload;
use super::process::ProcessReading;
use super::remote;
use super::vocabulary as metric;
use tidegate_metrics::{Answered, DURATION_BOUNDS_MICROS};

pub(super) fn page<S, C: Clock>(door: &Inner<S, C>, format: Format) -> String {
    let mut page = Exposition::new(format);
    requests(&mut page, door);
    hits(&mut page, door);
    rules(&mut page, door);
    store(&mut page, door);

    if let Some(ask) = &door.parts.gateway {
        super::gateway::show(&mut page, &ask());
    }

    if let Some(ask) = &door.parts.gateway_document {
        super::gateway::show_document(&mut page, &ask().delivery);
    }
    overload::show(&mut page, &door.board);
    switches(&mut page, door);
    process(&mut page, door);
    page.finish()
}

fn requests<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    let readings: Vec<_> =
        door.parts.meters.iter().map(|meter| (meter.door(), meter.read())).collect();
    let mut requests = page.family(metric::REQUESTS);
    for (name, reading) in &readings {
        for (answer, count) in Answered::ALL.iter().zip(reading.answers) {
            requests.sample(&[name, answer.as_str()], count);
        }
    }
    let mut durations = page.family(metric::REQUEST_DURATION);
    for (name, reading) in &readings {
        let mut count = 0;
        let up_to = DURATION_BOUNDS_MICROS.iter().zip(reading.buckets).map(|(bound, within)| {
            count += within;
            (Duration::from_micros(*bound), count)
        });
        // All are counted from the buckets, so that a request that is being
        // counted cannot be in one sample and not in the other.
        let all = reading.buckets.iter().sum();
        durations.histogram(&[name], up_to, all, reading.total.as_secs_f64());
    }
    let observations = &door.parts.observations;
    let mut undecided = page.family(metric::UNDECIDED);
    for reason in Reason::ALL {
        undecided.sample(&[reason.as_str()], observations.undecided(reason));
    }
    let unknown: u64 = observations.unknown_domains().iter().map(|(_, count)| count).sum();
    page.single(metric::UNKNOWN_DOMAINS, unknown);
}

fn hits<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    let reading = HitsReading::of(&door.engine, door.parts.settings.rules_max);
    let mut by_outcome = page.family(metric::RULE_HITS);
    for (HitLimit { domain, rule, limit }, hits) in &reading.limits {
        for (outcome, count) in outcomes(&hits.tally) {
            by_outcome.sample(&[domain, rule, limit, outcome], count);
        }
    }
    let mut near = page.family(metric::RULE_NEAR_LIMIT);
    for (HitLimit { domain, rule, limit }, hits) in &reading.limits {
        near.sample(&[domain, rule, limit], hits.tally.near);
    }
    let observations = &door.parts.observations;
    let mut by_value = page.family(metric::VALUE_HITS);
    for series in observations.values() {
        for (outcome, count) in outcomes(&series.tally) {
            by_value.sample(&[&series.domain, &series.path, &series.limit, outcome], count);
        }
    }
    let mut dropped = page.family(metric::METRICS_DROPPED);
    dropped.sample(&["value_hits"], observations.hits_beyond_series());
    dropped.sample(&["contention"], observations.missed());
    page.single(metric::RULES_SUMMED, reading.rules_beyond);
}

fn rules<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    let snapshot = door.engine.snapshot();
    let version = format!("{:016x}", snapshot.version());
    page.family(metric::RULES_INFO).sample(&[&version], 1);
    page.single(metric::RULES, snapshot.rules().len());
    page.single(metric::RULES_LIMITS, snapshot.limits().len());
    let Some(ask) = &door.parts.rules else { return };
    let reading = ask();
    page.single(metric::RULES_LOADS, reading.loads);
    page.single(metric::RULES_FAILURES, reading.failures);
    if let Some(last_load) = reading.last_load {
        page.single(metric::RULES_LAST_LOAD, seconds(last_load.as_nanos()));
    }
    page.single(metric::RULES_STALE, u8::from(reading.stale));
}

fn store<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    let Some(ask) = &door.parts.store else { return };
    let reading = ask();
    if let Some(remote) = &reading.remote {
        return remote::show(page, remote);
    }
    page.single(metric::STORE_KEYS, reading.stats.keys);
    page.single(metric::STORE_BYTES, reading.stats.bytes);
    page.single(metric::STORE_BUDGET, reading.budget_bytes);
    page.single(metric::STORE_SHARED, reading.stats.shared);
    page.single(metric::STORE_UNMETERED, reading.stats.unmetered);
}

fn switches<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    page.single(metric::KILL_SWITCH, u8::from(door.board.is_off()));
    let mut switched = [0_u64; Mode::WORDS.len()];
    door.engine.for_each_switch(|_, _, _, mode| {
        for (word, count) in Mode::WORDS.iter().zip(&mut switched) {
            *count += u64::from(*word == mode.as_str());
        }
    });
    let mut family = page.family(metric::SWITCHES);
    for (word, count) in Mode::WORDS.iter().zip(switched) {
        family.sample(&[word], count);
    }
    let mut changes = page.family(metric::CHANGES);
    for (change, count) in door.changes.read() {
        changes.sample(&[change], count);
    }
    page.single(metric::DENIED, door.denied.load(std::sync::atomic::Ordering::Relaxed));
}

fn process<S, C: Clock>(page: &mut Exposition, door: &Inner<S, C>) {
    page.family(metric::BUILD_INFO).sample(&[door.parts.version], 1);
    let reading = ProcessReading::now();
    let mut show = |metric, value: Option<f64>| {
        if let Some(value) = value {
            page.single(metric, value);
        }
    };
    show(metric::PROCESS_CPU, reading.cpu_seconds);
    show(metric::PROCESS_START, reading.start_seconds);
    let mut show = |metric, value: Option<u64>| {
        if let Some(value) = value {
            page.single(metric, value);
        }
    };
    show(metric::PROCESS_RESIDENT, reading.resident_bytes);
    show(metric::PROCESS_VIRTUAL, reading.virtual_bytes);
    show(metric::PROCESS_FDS, reading.open_fds);
    show(metric::PROCESS_FDS_MAX, reading.max_fds);
}

/// Nanoseconds as seconds, exactly.
pub(super) fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
