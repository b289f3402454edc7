//! The metrics of one episode.

use std::ops::Range;

use tidegate_overload::Category;

use super::contender::Contender;
use super::record::{Record, Second};
use super::report::ContenderResult;
use super::scenario::Script;
use crate::time::SECOND;

/// The smallest relative change of the level that counts as a turn.
const TURN: f64 = 0.02;
/// The seconds of a window of availability.
const JUDGED: usize = 5;
/// The share that must be served for a category to be available.
const AVAILABLE: f64 = 0.99;

/// The metrics of one episode. `None` where one has no meaning: without critical requests, or when
/// nothing was restored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measures {
    /// The share of critical requests answered in time in the first seconds of the overload.
    pub(crate) critical_onset: Option<f64>,
    /// The same in the steady part.
    pub(crate) critical_steady: Option<f64>,
    /// Requests answered in time in the steady part, in capacities.
    pub(crate) goodput: f64,
    /// Requests answered in time in the whole episode.
    pub(crate) served: f64,
    /// The same over the number that the gate alone serves with the same seed.
    pub(crate) served_of_gate: Option<f64>,
    /// Goodput over the possible goodput.
    pub(crate) of_optimum: f64,
    /// Latencies of critical requests in milliseconds.
    pub(crate) critical_p50: Option<f64>,
    pub(crate) critical_p99: Option<f64>,
    pub(crate) critical_p999: Option<f64>,
    /// The 99th percentile over that of an unloaded server.
    pub(crate) p99_ratio: Option<f64>,
    /// The most less the fewest requests admitted in a second, in capacities.
    pub(crate) oscillation: f64,
    /// The same over means of ten seconds, which average out random service times.
    pub(crate) oscillation_10s: f64,
    /// Turns of the level, each minute.
    pub(crate) reversals: f64,
    /// Seconds until the level has settled.
    pub(crate) shed_after: Option<f64>,
    /// Seconds from the end of the overload until every category is available.
    pub(crate) restored_after: Option<f64>,
    /// How often it was shed again after that.
    pub(crate) shed_again: f64,
    /// The share of seconds of the overload in which critical requests were refused and others
    /// admitted.
    pub(crate) inversion: f64,
    /// Refused requests in the whole episode.
    pub(crate) refused: f64,
    /// Refused critical requests.
    pub(crate) refused_critical: f64,
    /// The relative growth of the limit.
    pub(crate) limit_growth: f64,
    /// The relative growth of the admitted share.
    pub(crate) level_growth: f64,
    /// Worker time spent on refusing.
    pub(crate) refusing: f64,
    /// Jain's index of the tenants' GET requests: 1 when all are treated alike.
    pub(crate) jain: f64,
    /// How certain a tenant can be of the outcome of its GET requests: 1/2 is a coin toss.
    pub(crate) stickiness: f64,
    /// Tasks of which every call was answered in time.
    pub(crate) tasks: f64,
    /// Tripwire's score: success × seconds / √latency.
    pub(crate) score: f64,
    /// Requests sent for each first attempt.
    pub(crate) amplification: f64,
}

impl Measures {
    pub(crate) fn of(script: &Script, record: &Record) -> Self {
        let seconds = &record.seconds;
        let capacity = script.capacity();
        let steady = within(seconds, &script.steady);
        let length = steady.len().max(1) as f64;
        let good = sum(steady, |second| total(&second.good)) / length;
        let offered = sum(steady, |second| total(&second.offered)) / length;
        let critical = |percent| critical_latency(record, percent);
        let unloaded = script.service.percentile(99.0) as f64 / 1e6;
        let (jain, stickiness) = fairness(&record.tenants.admitted_shares(Category::Get));
        Measures {
            critical_onset: critical_share(within(seconds, &script.onset)),
            critical_steady: critical_share(steady),
            goodput: good / capacity,
            served: sum(seconds, |second| total(&second.good)),
            served_of_gate: None,
            of_optimum: good / offered.min(capacity).max(1.0),
            critical_p50: critical(50.0),
            critical_p99: critical(99.0),
            critical_p999: critical(99.9),
            p99_ratio: critical(99.0).map(|p99| p99 / unloaded),
            oscillation: swing(steady, 1) / capacity,
            oscillation_10s: swing(steady, 10) / capacity,
            reversals: reversals(steady) / (length / 60.0),
            shed_after: shed_after(seconds, script),
            restored_after: restored(seconds, script).map(|(after, _)| after),
            shed_again: restored(seconds, script).map_or(0.0, |(_, again)| again),
            inversion: inversion(within(seconds, &(script.onset.start..script.steady.end))),
            refused: sum(seconds, |second| total(&second.refused)),
            refused_critical: sum(seconds, |second| second.refused[Category::Critical.rank()]),
            limit_growth: growth(steady, |second| second.controls.limit),
            level_growth: growth(steady, |second| second.controls.level),
            refusing: record.refusing / (f64::from(script.workers) * length * SECOND as f64),
            jain,
            stickiness,
            tasks: sum(steady, |second| second.tasks_good)
                / sum(steady, |second| second.tasks_offered).max(1.0),
            score: score(record),
            amplification: 1.0 + sum(steady, |second| second.retries) / (offered * length).max(1.0),
        }
    }
}

/// Compares what each seed served with what the gate alone served with the same seed, if it took
/// part.
pub(crate) fn compare_served(standings: &mut [ContenderResult]) {
    let gate = standings.iter().find(|one| one.contender == Contender::GateOnly);
    let Some(gate) = gate.map(|gate| gate.seeds.clone()) else { return };
    for standing in standings {
        for (ours, gate) in standing.seeds.iter_mut().zip(&gate) {
            ours.served_of_gate = Some(ours.served / gate.served.max(1.0));
        }
    }
}

fn within<'a>(seconds: &'a [Second], range: &Range<usize>) -> &'a [Second] {
    seconds.get(range.start..range.end.min(seconds.len())).unwrap_or(&[])
}

fn total(counts: &[u32; 4]) -> u32 {
    counts.iter().sum()
}

fn sum(seconds: &[Second], count: impl Fn(&Second) -> u32) -> f64 {
    seconds.iter().map(|second| f64::from(count(second))).sum()
}

fn critical_share(seconds: &[Second]) -> Option<f64> {
    let rank = Category::Critical.rank();
    let offered = sum(seconds, |second| second.offered[rank]);
    (offered > 0.0).then(|| sum(seconds, |second| second.good[rank]) / offered)
}

fn critical_latency(record: &Record, percent: f64) -> Option<f64> {
    let nanos = record.critical.percentile(percent);
    (nanos > 0.0).then_some(nanos / 1e6)
}

/// The most less the fewest requests admitted in a second, as means over so many seconds.
fn swing(seconds: &[Second], over: usize) -> f64 {
    let admitted: Vec<f64> =
        seconds.iter().map(|second| f64::from(total(&second.admitted))).collect();
    let means = admitted.windows(over).map(|window| window.iter().sum::<f64>() / over as f64);
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for mean in means {
        least = least.min(mean);
        most = most.max(mean);
    }
    (most - least).max(0.0)
}

/// How often the level turned.
fn reversals(seconds: &[Second]) -> f64 {
    let mut levels = seconds.iter().map(|second| second.controls.level);
    let Some(first) = levels.next() else { return 0.0 };
    let (mut extreme, mut rising, mut turns) = (first, None, 0.0);
    for level in levels {
        let moved = (level - extreme) / extreme.max(1e-9);
        match rising {
            None if moved.abs() > TURN => (rising, extreme) = (Some(moved > 0.0), level),
            Some(up) if (moved > 0.0) == up => extreme = level,
            Some(up) if moved.abs() > TURN => {
                turns += 1.0;
                (rising, extreme) = (Some(!up), level);
            }
            _ => {}
        }
    }
    turns
}

/// Whether a contender sheds by a level. Others have a limit or a queue only.
fn has_level(steady: &[Second]) -> bool {
    steady.iter().any(|second| !second.is_open())
}

/// The first second in which the level, or without one the admitted rate, is within a tenth of its
/// settled value.
fn shed_after(seconds: &[Second], script: &Script) -> Option<f64> {
    let steady = within(seconds, &script.steady);
    let has_level = has_level(steady);
    let value = |second: &Second| {
        if has_level { second.controls.level } else { f64::from(total(&second.admitted)) }
    };
    let settled = steady.iter().map(value).sum::<f64>() / steady.len().max(1) as f64;
    let trouble = within(seconds, &(script.onset.start..script.steady.end));
    let near = |second: &Second| (value(second) / settled.max(1e-9) - 1.0).abs() <= 0.1;
    trouble.iter().position(near).map(|index| index as f64)
}

/// Seconds until every category was available again after the overload, and how often requests
/// were shed after that: the level fell, or without a level a category was unavailable.
fn restored(seconds: &[Second], script: &Script) -> Option<(f64, f64)> {
    let after = within(seconds, &(script.relief?..seconds.len()));
    let available: Vec<bool> = after.windows(JUDGED).map(all_available).collect();
    let restored = available.iter().position(|available| *available)?;
    let later = available.get(restored..)?;
    let again = if has_level(within(seconds, &script.steady)) {
        let levels = after.get(restored + 1..)?;
        levels.windows(2).filter(|pair| pair[0].is_open() && !pair[1].is_open()).count()
    } else {
        later.windows(2).filter(|pair| pair[0] && !pair[1]).count()
    };
    Some((restored as f64, again as f64))
}

fn all_available(seconds: &[Second]) -> bool {
    Category::ALL.iter().all(|category| {
        let rank = category.rank();
        let lost = sum(seconds, |second| second.refused[rank] + second.late[rank]);
        let offered = sum(seconds, |second| second.offered[rank]);
        lost <= offered * (1.0 - AVAILABLE)
    })
}

fn inversion(seconds: &[Second]) -> f64 {
    let rank = Category::Critical.rank();
    let inverted = seconds.iter().filter(|second| {
        second.refused[rank] > 0 && total(&second.admitted) > second.admitted[rank]
    });
    inverted.count() as f64 / seconds.len().max(1) as f64
}

/// The mean of the last tenth over the mean of the first tenth, less one.
fn growth(seconds: &[Second], of: impl Fn(&Second) -> f64) -> f64 {
    let tenth = (seconds.len() / 10).max(1);
    let mean = |part: &[Second]| part.iter().map(&of).sum::<f64>() / part.len().max(1) as f64;
    let first = mean(seconds.get(..tenth).unwrap_or(&[]));
    let last = mean(seconds.get(seconds.len().saturating_sub(tenth)..).unwrap_or(&[]));
    if first > 0.0 { last / first - 1.0 } else { 0.0 }
}

/// Jain's index of the admitted shares, and their stickiness.
fn fairness(shares: &[f64]) -> (f64, f64) {
    let count = shares.len().max(1) as f64;
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let sum: f64 = shares.iter().sum();
    let jain = if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 };
    let sure = shares.iter().map(|share| share.max(1.0 - share)).sum::<f64>() / count;
    (jain, sure)
}

fn score(record: &Record) -> f64 {
    let seconds = &record.seconds;
    let good = sum(seconds, |second| total(&second.good));
    let offered = sum(seconds, |second| total(&second.offered));
    let latency = record.good.mean() / SECOND as f64;
    good / offered.max(1.0) * seconds.len() as f64 / latency.max(1e-9).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::shield::Controls;

    fn levels(levels: &[f64]) -> Vec<Second> {
        let controls = |level: &f64| Controls { level: *level, limit: 10.0 };
        let mut record = Record::new();
        levels.iter().for_each(|level| record.next_second(controls(level), false));
        record.seconds
    }

    #[test]
    fn a_level_that_trembles_does_not_turn() {
        assert_eq!(reversals(&levels(&[0.1, 0.101, 0.1, 0.101])), 0.0);
        assert_eq!(reversals(&levels(&[0.1, 0.2, 0.3, 0.4])), 0.0);
        assert_eq!(reversals(&levels(&[0.1, 0.2, 0.1, 0.2])), 2.0);
    }

    #[test]
    fn a_slow_turn_is_a_turn() {
        let slow: Vec<f64> = [1.0, 1.01, 1.02, 1.03, 1.02, 1.01, 1.0, 0.99].to_vec();
        assert_eq!(reversals(&levels(&slow)), 1.0);
    }

    #[test]
    fn equal_shares_are_fair_and_sure_shares_are_sticky() {
        assert_eq!(fairness(&[0.5, 0.5]), (1.0, 0.5));
        assert_eq!(fairness(&[1.0, 0.0]), (0.5, 1.0));
        assert_eq!(fairness(&[]), (1.0, 0.0));
    }

    #[test]
    fn growth_compares_the_end_with_the_beginning() {
        let rising: Vec<f64> = (0..100).map(|second| 1.0 + f64::from(second) / 100.0).collect();
        let grown = growth(&levels(&rising), |second| second.controls.level);
        assert!((grown - (1.945 / 1.045 - 1.0)).abs() < 1e-9, "{grown}");
    }
}
