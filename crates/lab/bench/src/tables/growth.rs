//! The worst insert while a table grows.
//!
//! On a shared machine any insert can be interrupted, so the longest one of a run
//! says little. A pause of the table itself recurs at the same insert in every run,
//! because keys and hash seeds are fixed and each run is a fresh process; an
//! interruption does not. So the shortest time of each insert over all runs counts.

use std::io::Write;

use anyhow::ensure;

use crate::child;
use crate::contestant::{ContestantName, ensure_holds};
use crate::goal::Goal;
use crate::keys::{KEY_BYTES, KeyBuffer};
use crate::scale::Scale;
use crate::stopwatch::Stopwatch;
use crate::table::{Table, count, ns};

const RUNS: usize = 3;
const LONG_NANOS: u32 = 1_000_000;
const GOAL: Goal = Goal::at_most_of(1.0, " ms");

pub(crate) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "who",
        "p50 ns",
        "p99.99 µs",
        "max of each run, ms",
        "least max, ms",
        "over 1 ms in each run",
        "repeated: max, ms",
        "at insert",
        "/ p50",
        "over 1 ms",
        "goal for repeated max",
    ];
    let mut table = Table::new("5. Worst insert of a growing table (`growth`)", &columns);
    for name in [ContestantName::Tidegate, ContestantName::Governor] {
        let mut runs = Vec::with_capacity(RUNS);
        for run in 1..=RUNS {
            eprintln!("growth: {name} to {} keys, run {run}", count(scale.growth_keys));
            runs.push(inserts(name, scale.growth_keys)?);
        }
        let repeated = RepeatedPause::of(&runs);
        let maxima: Vec<u32> =
            runs.iter().map(|run| run.iter().copied().max().unwrap_or(0)).collect();
        let long = runs.iter().map(|run| over(run, LONG_NANOS));
        let mut all = runs.concat();
        all.sort_unstable();
        let median = quantile(&all, 0.5);
        let goal = if name == ContestantName::Tidegate { Some(GOAL) } else { None };
        table.row([
            name.to_string(),
            ns(median.into()),
            format!("{:.1}", f64::from(quantile(&all, 0.9999)) / 1e3),
            maxima.iter().map(|max| ms(*max)).collect::<Vec<_>>().join(", "),
            ms(maxima.iter().copied().min().unwrap_or(0)),
            long.map(|long| long.to_string()).collect::<Vec<_>>().join(", "),
            ms(repeated.max),
            repeated.place.to_string(),
            format!("{:.0}", f64::from(repeated.max) / f64::from(median)),
            repeated.long.to_string(),
            goal.map_or_else(String::new, |goal| goal.judge(f64::from(repeated.max) / 1e6)),
        ]);
    }
    table.note(format!(
        "Growing from nothing to {} keys, {RUNS} runs. Each time includes one reading of the clock. \
         RepeatedPause: taking for each insert the shortest of its times in the {RUNS} runs.",
        count(scale.growth_keys)
    ));
    Ok(table)
}

/// Pauses at the same insert in every run.
#[derive(Debug, PartialEq, Eq)]
struct RepeatedPause {
    max: u32,
    /// The number of the insert.
    place: usize,
    /// How many inserts are long in every run.
    long: usize,
}

impl RepeatedPause {
    fn of(runs: &[Vec<u32>]) -> Self {
        let inserts = runs.iter().map(Vec::len).min().unwrap_or(0);
        let shortest: Vec<u32> = (0..inserts)
            .map(|place| runs.iter().filter_map(|run| run.get(place)).copied().min().unwrap_or(0))
            .collect();
        let longest = shortest.iter().copied().enumerate().max_by_key(|(_, nanos)| *nanos);
        let (place, max) = longest.unwrap_or_default();
        RepeatedPause { max, place, long: over(&shortest, LONG_NANOS) }
    }
}

fn over(nanos: &[u32], long: u32) -> usize {
    nanos.iter().filter(|nanos| **nanos > long).count()
}

#[expect(clippy::cast_possible_truncation, reason = "a share of a length is no more than it")]
#[expect(clippy::cast_sign_loss, reason = "neither a length nor a share is negative")]
fn quantile(sorted: &[u32], share: f64) -> u32 {
    let place = (sorted.len().saturating_sub(1) as f64 * share) as usize;
    sorted.get(place).copied().unwrap_or(0)
}

fn ms(nanos: u32) -> String {
    format!("{:.3}", f64::from(nanos) / 1e6)
}

/// How long each insert takes in a fresh process.
fn inserts(name: ContestantName, keys: u64) -> anyhow::Result<Vec<u32>> {
    let arguments = ["growth".to_owned(), name.to_string(), keys.to_string()];
    let output = child::output_of(&arguments)?;
    let (times, rest) = output.as_chunks::<4>();
    ensure!(
        rest.is_empty() && times.len() as u64 == keys,
        "the measuring process wrote {} bytes for {keys} inserts",
        output.len()
    );
    Ok(times.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// Writes how many nanoseconds each insert takes, as little-endian words.
pub(crate) fn measure(name: ContestantName, keys: u64) -> anyhow::Result<()> {
    let contestant = name.spacious()?;
    let mut key = KeyBuffer::default();
    // Written once beforehand, so that the pages are resident.
    let mut times = vec![[0xFF_u8; 4]; usize::try_from(keys)?];
    for (number, time) in (0..keys).zip(&mut times) {
        key.number(number, KEY_BYTES);
        let stopwatch = Stopwatch::start();
        let admitted = contestant.admits(&key);
        let took = stopwatch.elapsed();
        ensure!(admitted, "{name} refused key {number}");
        *time = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).to_le_bytes();
    }
    ensure_holds(&*contestant, keys)?;
    std::io::stdout().lock().write_all(times.as_flattened())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_as_repeated_only_at_the_same_insert_of_every_run() {
        let runs = [
            vec![10, 9_000_000, 10, 2_000_000],
            vec![10, 10, 8_000_000, 3_000_000],
            vec![10, 10, 10, 4_000_000],
        ];
        assert_eq!(RepeatedPause::of(&runs), RepeatedPause { max: 2_000_000, place: 3, long: 1 });
    }

    #[test]
    fn without_runs_nothing_is_repeated() {
        assert_eq!(RepeatedPause::of(&[]), RepeatedPause { max: 0, place: 0, long: 0 });
    }

    #[test]
    fn quantiles_are_taken_from_the_sorted_times() {
        let times: Vec<u32> = (0..=100).collect();
        assert_eq!((quantile(&times, 0.5), quantile(&times, 1.0)), (50, 100));
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
