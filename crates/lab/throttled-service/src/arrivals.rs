//! The log of arrivals, and the questions that tests put to it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::{Cost, Dimension};

/// One arrival. Times count from the start of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its head was read from the socket.
    pub received: Timestamp,
    /// When it was judged: later by the delay of the simulated network.
    pub judged: Timestamp,
    /// When it left its sender, by the sender's clock, if it says so (`Departed-Ns`).
    pub departed: Option<Timestamp>,
    /// Its `Idempotency-Key`.
    pub id: Option<Box<str>>,
    /// Its number of attempts, if it says so.
    pub attempt: Option<u32>,
    /// Its slot and the epoch of that, if it says so.
    pub slot: Option<(u16, u64)>,
    /// What it was charged.
    pub cost: Cost,
    /// The status of the answer.
    pub status: u16,
}

impl Arrival {
    /// Whether the service took it.
    pub const fn is_accepted(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// Which time of an arrival counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalTime {
    /// At the socket: on one machine, the time at which it was sent.
    Received,
    /// At the judgement.
    Judged,
    /// When it left its sender. Arrivals that do not say so count at the epoch.
    Departed,
}

/// Figures of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalSummary {
    /// All arrivals.
    pub arrivals: usize,
    /// Those that the service took.
    pub accepted: usize,
    /// Those that it throttled.
    pub throttled: usize,
    /// The most in one second at the socket, in the dimension asked for. Counts accepted and throttled arrivals.
    pub busiest_second: u64,
    /// The most accepted in a bin of 200 ms, divided by the mean of all bins between the first and the last arrival.
    pub busiest_bin_ratio: f64,
    /// Accepted arrivals beyond the first of their id.
    pub duplicates: usize,
    /// The time from the first to the last accepted arrival.
    pub span: Duration,
}

/// Arrivals in the order of their judgement.
#[derive(Clone, Debug, Default)]
pub struct ArrivalLog {
    arrivals: Vec<Arrival>,
    unlogged: u64,
}

impl ArrivalLog {
    /// The most arrivals that a log keeps: about 200 MB.
    pub const ARRIVALS_MAX: usize = 2_000_000;
    const BIN: Duration = Duration::from_millis(200);

    pub(crate) fn push(&mut self, arrival: Arrival) {
        if self.arrivals.len() < Self::ARRIVALS_MAX {
            self.arrivals.push(arrival);
        } else {
            self.unlogged += 1;
        }
    }

    /// A log of these arrivals.
    pub const fn new(arrivals: Vec<Arrival>) -> Self {
        ArrivalLog { arrivals, unlogged: 0 }
    }

    /// The arrivals.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// How many arrivals came after the log was full.
    pub const fn unlogged(&self) -> u64 {
        self.unlogged
    }

    /// The arrivals from `from` up to `to`, by the time of their judgement.
    #[must_use]
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Self {
        let inside = |arrival: &&Arrival| arrival.judged >= from && arrival.judged < to;
        ArrivalLog::new(self.arrivals.iter().filter(inside).cloned().collect())
    }

    /// The figures, with costs in this dimension.
    pub fn summary(&self, dimension: Dimension) -> ArrivalSummary {
        let accepted = || self.arrivals.iter().filter(|arrival| arrival.is_accepted());
        let first = accepted().map(|arrival| arrival.judged).min();
        let last = accepted().map(|arrival| arrival.judged).max();
        let span = first.zip(last).map_or(0, |(first, last)| last.since(first).get());
        let busiest = self.busiest(dimension, Duration::from_secs(1), ArrivalTime::Received);
        ArrivalSummary {
            arrivals: self.arrivals.len(),
            accepted: accepted().count(),
            throttled: self.arrivals.iter().filter(|arrival| arrival.status == 429).count(),
            busiest_second: busiest,
            busiest_bin_ratio: self.busiest_bin_ratio(dimension),
            duplicates: self.duplicates(),
            span: Duration::from_nanos(span),
        }
    }

    /// The most that arrived in any interval of this length.
    pub fn busiest(&self, dimension: Dimension, window: Duration, time: ArrivalTime) -> u64 {
        let mut arrivals: Vec<(Timestamp, u64)> = self
            .arrivals
            .iter()
            .map(|arrival| match time {
                ArrivalTime::Received => (arrival.received, arrival.cost.of(dimension)),
                ArrivalTime::Judged => (arrival.judged, arrival.cost.of(dimension)),
                ArrivalTime::Departed => {
                    (arrival.departed.unwrap_or_default(), arrival.cost.of(dimension))
                }
            })
            .collect();
        arrivals.sort_unstable();
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for &(at, amount) in &arrivals {
            sum += amount;
            while u128::from(at.since(arrivals[first].0).get()) >= window.as_nanos() {
                sum -= arrivals[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// What was accepted in each bin of this length, from the first accepted arrival to the last whole bin.
    pub fn bins(&self, dimension: Dimension, bin: Duration) -> Vec<u64> {
        let accepted = || self.arrivals.iter().filter(|arrival| arrival.is_accepted());
        let Some(first) = accepted().map(|arrival| arrival.judged).min() else {
            return Vec::new();
        };
        let length = u64::try_from(bin.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut bins = Vec::new();
        for arrival in accepted() {
            let index = usize::try_from(arrival.judged.since(first).get() / length).unwrap_or(0);
            if bins.len() <= index {
                bins.resize(index + 1, 0);
            }
            bins[index] += arrival.cost.of(dimension);
        }
        // The last bin ends somewhere within.
        bins.pop();
        bins
    }

    /// The deviation of bins of this length, divided by their mean.
    pub fn variation(&self, dimension: Dimension, bin: Duration) -> f64 {
        let bins = self.bins(dimension, bin);
        let mean = mean(&bins);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let squares = bins.iter().map(|amount| (*amount as f64 - mean).powi(2)).sum::<f64>();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let variance = squares / bins.len().max(1) as f64;
        if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
    }

    fn busiest_bin_ratio(&self, dimension: Dimension) -> f64 {
        let bins = self.bins(dimension, Self::BIN);
        let most = bins.iter().copied().max().unwrap_or(0);
        let mean = mean(&bins);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let most = most as f64;
        if mean > 0.0 { most / mean } else { 0.0 }
    }

    /// Accepted arrivals beyond the first of their id.
    pub fn duplicates(&self) -> usize {
        let mut seen = HashSet::new();
        let accepted = self.arrivals.iter().filter(|arrival| arrival.is_accepted());
        accepted.filter_map(|arrival| arrival.id.as_deref()).filter(|id| !seen.insert(*id)).count()
    }

    /// The ids of a list that were never accepted.
    pub fn missing<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let accepted = self.arrivals.iter().filter(|arrival| arrival.is_accepted());
        let seen: HashSet<&str> = accepted.filter_map(|arrival| arrival.id.as_deref()).collect();
        ids.into_iter().filter(|id| !seen.contains(id)).collect()
    }

    /// Arrivals under an epoch that was not the newest of its slot: the sender had lost its lease.
    pub fn stale_epochs(&self) -> usize {
        stale_epochs(self.arrivals.iter().filter_map(|arrival| arrival.slot))
    }

    /// Departures under an epoch after another sender had departed under a newer one of the same slot, by the clock of
    /// the senders.
    pub fn stale_departures(&self) -> usize {
        let stamped = self.arrivals.iter().filter_map(|arrival| arrival.departed.zip(arrival.slot));
        let mut departures: Vec<_> = stamped.collect();
        departures.sort_unstable();
        stale_epochs(departures.into_iter().map(|(_, slot)| slot))
    }
}

fn stale_epochs(slots: impl Iterator<Item = (u16, u64)>) -> usize {
    let mut newest: HashMap<u16, u64> = HashMap::new();
    slots
        .filter(|(slot, epoch)| {
            let newest = newest.entry(*slot).or_insert(*epoch);
            *newest = (*newest).max(*epoch);
            epoch < newest
        })
        .count()
}

fn mean(bins: &[u64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let (sum, count) = (bins.iter().sum::<u64>() as f64, bins.len().max(1) as f64);
    sum / count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arrival(millis: u64, id: &str, status: u16) -> Arrival {
        let at = Timestamp::from_nanos(millis * 1_000_000);
        Arrival {
            received: at,
            judged: at,
            departed: Some(at),
            id: Some(id.into()),
            attempt: None,
            slot: None,
            cost: Cost::units(10),
            status,
        }
    }

    #[test]
    fn a_summary_counts_what_came_twice_and_what_is_missing() {
        let log = ArrivalLog::new(vec![
            arrival(0, "a", 429),
            arrival(10, "a", 200),
            arrival(20, "a", 200),
            arrival(500, "b", 500),
            arrival(1_000, "c", 201),
        ]);
        let summary = log.summary(Dimension::Units);
        assert_eq!((summary.arrivals, summary.accepted, summary.throttled), (5, 3, 1));
        assert_eq!((summary.duplicates, summary.busiest_second), (1, 40));
        assert_eq!(summary.span, Duration::from_millis(990));
        assert_eq!(log.missing(["a", "b", "c", "d"]), ["b", "d"]);
    }

    #[test]
    fn bins_show_bursts() {
        let even = ArrivalLog::new((0..=100).map(|step| arrival(step * 20, "x", 200)).collect());
        assert_eq!(even.bins(Dimension::Units, Duration::from_millis(200)), [100; 10]);
        assert!((even.summary(Dimension::Units).busiest_bin_ratio - 1.0).abs() < 1e-9);
        assert!(even.variation(Dimension::Units, Duration::from_millis(100)) < 1e-9);
        let burst =
            (0..5).flat_map(|second| (0..10).map(move |_| arrival(second * 1_000, "x", 200)));
        let burst = ArrivalLog::new(burst.collect());
        assert!((burst.summary(Dimension::Units).busiest_bin_ratio - 5.0).abs() < 1e-9);
    }

    #[test]
    fn an_epoch_is_stale_after_a_newer_one_of_its_slot() {
        let with_slot = |millis, slot| Arrival { slot: Some(slot), ..arrival(millis, "x", 200) };
        let slots = [(1, 5), (2, 3), (1, 6), (1, 5), (2, 3)];
        let arrivals = slots.iter().enumerate().map(|(at, slot)| with_slot(at as u64, *slot));
        assert_eq!(ArrivalLog::new(arrivals.collect()).stale_epochs(), 1);
    }

    proptest! {
        #[test]
        fn the_busiest_interval_is_found(
            times in prop::collection::vec(0_u64..5_000, 1..60),
            window in 1_u64..2_000,
        ) {
            let arrivals: Vec<_> = times.iter().map(|at| arrival(*at, "x", 200)).collect();
            let log = ArrivalLog::new(arrivals);
            let inside = |from: u64| times.iter().filter(|at| **at >= from && **at < from + window).count();
            let most = times.iter().map(|from| inside(*from)).max().unwrap_or(0) as u64 * 10;
            let window = Duration::from_millis(window);
            prop_assert_eq!(log.busiest(Dimension::Units, window, ArrivalTime::Judged), most);
        }
    }
}
