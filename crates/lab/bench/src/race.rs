//! Contestants taking turns.
//!
//! A round is a fixed number of operations by each contestant, one after the
//! other; then the next round. Ratios are taken within a round, where the
//! machine was about the same for all, and the median of the ratios counts.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure};

use crate::contestant::{Contestant, Terms};
use crate::keys::{KeyBuffer, KeySequence};
use crate::spread::Spread;
use crate::stopwatch::{Stopwatch, on_processor};

/// How a race is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Operations of each thread in each round.
    pub(crate) operations: usize,
    /// Threads, which start at once and use the same contestant.
    pub(crate) threads: usize,
    /// The expected outcome; another would be the cost of another path.
    pub(crate) terms: Terms,
}

/// Runs a number of operations from an index on; returns how many were admitted.
type Work<'a> = Box<dyn Fn(usize, usize) -> usize + Sync + 'a>;

/// A participant of a race.
pub(crate) struct Entrant<'a> {
    name: String,
    work: Work<'a>,
}

impl<'a> Entrant<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        work: impl Fn(usize, usize) -> usize + Sync + 'a,
    ) -> Self {
        Entrant { name: name.into(), work: Box::new(work) }
    }

    /// Runs this many operations without timing them.
    pub(crate) fn warm_up(&self, operations: usize) {
        (self.work)(0, operations);
    }

    /// A contestant that decides the keys of a sequence.
    pub(crate) fn keyed(
        name: impl Into<String>,
        contestant: &'a impl Contestant,
        keys: &'a KeySequence,
    ) -> Self {
        Entrant::new(name, move |place, operations| {
            let mut buffer = KeyBuffer::default();
            let mut admitted = 0;
            for key in keys.from(place).take(operations) {
                buffer.fill(key);
                admitted += usize::from(contestant.admits(&buffer));
            }
            admitted
        })
    }
}

/// Nanoseconds per operation and thread, by entrant and round.
#[derive(Debug)]
pub(crate) struct Race(Vec<Vec<f64>>);

impl Race {
    /// Runs a warm-up round, then the measured ones.
    ///
    /// # Errors
    /// When an entrant does not admit, or refuse, what it should.
    pub(crate) fn run(entrants: &[Entrant<'_>], plan: Plan) -> anyhow::Result<Self> {
        let mut nanos = vec![Vec::with_capacity(plan.rounds); entrants.len()];
        for round in 0..=plan.rounds {
            for (entrant, nanos) in entrants.iter().zip(&mut nanos) {
                let took = run_round(entrant, round, plan)?;
                if round > 0 {
                    nanos.push(took);
                }
            }
        }
        Ok(Race(nanos))
    }

    /// The median time of one entrant.
    pub(crate) fn nanos(&self, entrant: usize) -> f64 {
        Spread::of(self.0.get(entrant).cloned().unwrap_or_default()).median
    }

    /// The time of an entrant divided by that of `other`.
    pub(crate) fn ratio(&self, entrant: usize, other: usize) -> Spread {
        let rounds = self.0.get(entrant).into_iter().flatten();
        let others = self.0.get(other).into_iter().flatten();
        Spread::of(rounds.zip(others).map(|(took, other)| took / other).collect())
    }
}

fn run_round(entrant: &Entrant<'_>, round: usize, plan: Plan) -> anyhow::Result<f64> {
    let start = Barrier::new(plan.threads);
    let run_thread = |thread: usize| {
        let place = (round * plan.threads + thread) * plan.operations;
        start.wait();
        let (stopwatch, begun) = (Stopwatch::start(), on_processor());
        let admitted = (entrant.work)(place, plan.operations);
        // The time includes waits of the threads for each other.
        let alone = plan.threads == 1;
        let took = if alone { on_processor().saturating_sub(begun) } else { stopwatch.elapsed() };
        (took, admitted)
    };
    let done: Vec<thread::Result<(Duration, usize)>> = thread::scope(|scope| {
        let run_thread = &run_thread;
        let threads: Vec<_> =
            (0..plan.threads).map(|thread| scope.spawn(move || run_thread(thread))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let expected = if plan.terms.admits_known() { plan.operations } else { 0 };
    let mut sum = Duration::ZERO;
    for thread in done {
        let (took, admitted) = thread.map_err(|_| anyhow!("{} panicked", entrant.name))?;
        ensure!(
            admitted == expected,
            "{} admitted {admitted} of {}, not {expected}",
            entrant.name,
            plan.operations
        );
        sum += took;
    }
    Ok(sum.as_nanos() as f64 / plan.operations as f64 / plan.threads as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PLAN: Plan = Plan { rounds: 3, operations: 10, threads: 2, terms: Terms::Admit };

    #[test]
    fn every_entrant_does_one_round_more_than_counts() {
        let done = AtomicUsize::new(0);
        let entrant = Entrant::new("one", |_, operations| {
            done.fetch_add(operations, Ordering::Relaxed);
            operations
        });
        let race = Race::run(&[entrant], PLAN).unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 4 * 10 * 2);
        assert_eq!(race.0[0].len(), 3);
    }

    #[test]
    fn threads_start_at_places_of_their_own() {
        let places = parking_lot::Mutex::new(Vec::new());
        let entrant = Entrant::new("one", |place, operations| {
            places.lock().push(place);
            operations
        });
        Race::run(&[entrant], Plan { rounds: 1, ..PLAN }).unwrap();
        let mut places = places.into_inner();
        places.sort_unstable();
        assert_eq!(places, [0, 10, 20, 30]);
    }

    #[test]
    fn an_entrant_that_refuses_what_it_should_admit_ends_the_race() {
        let entrant = Entrant::new("one", |_, _| 9);
        let error = Race::run(&[entrant], PLAN).unwrap_err();
        assert_eq!(error.to_string(), "one admitted 9 of 10, not 10");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let race = Race(vec![vec![1.0, 20.0, 3.0], vec![2.0, 40.0, 6.0]]);
        assert_eq!(race.ratio(0, 1), Spread { low: 0.5, median: 0.5, high: 0.5 });
        assert_eq!(race.nanos(0).total_cmp(&3.0), std::cmp::Ordering::Equal);
    }
}
