//! The most frequent of many things, in bounded memory.
//!
//! Space-Saving: a fixed number of counters, one for each thing that is
//! followed. A thing that is not followed takes over the smallest counter, and
//! that counter's value becomes its error. So a count is never too low, it is
//! too high by at most its error, and a thing with more than `observed /
//! counters` occurrences is always followed. Chosen over a sketch of hashes
//! because the error stands beside each row, where an operator sees it.
//!
//! Knows things by a hash; how they are shown is a label that is made once, when
//! a thing is first followed. Locks nothing.

use hashbrown::HashTable;

/// Follows the most frequent things.
#[derive(Debug)]
pub(super) struct Sketch<L> {
    counters: Vec<Counter<L>>,
    counters_max: usize,
    /// The counter of a hash.
    places: HashTable<usize>,
    /// Counters as a heap, the smallest first.
    heap: Vec<usize>,
    observed: u64,
}

#[derive(Debug)]
struct Counter<L> {
    hash: u64,
    label: L,
    count: u64,
    error: u64,
    /// Its place in the heap.
    at: usize,
}

/// One thing that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frequent<L> {
    pub(super) label: L,
    /// At least as often as it occurred.
    pub(super) count: u64,
    /// By how much the count may be too high.
    pub(super) error: u64,
}

impl<L> Sketch<L> {
    /// A sketch with this many counters, at least one.
    pub(super) fn new(counters_max: usize) -> Self {
        let counters_max = counters_max.max(1);
        Sketch {
            counters: Vec::new(),
            counters_max,
            places: HashTable::new(),
            heap: Vec::new(),
            observed: 0,
        }
    }

    /// One more of the thing with this hash.
    pub(super) fn count(&mut self, hash: u64, label: impl FnOnce() -> L) {
        self.observed = self.observed.saturating_add(1);
        let counters = &self.counters;
        let found = self.places.find(hash, |place| counters[*place].hash == hash).copied();
        let place = match found {
            Some(place) => place,
            None if self.counters.len() < self.counters_max => self.follow(hash, label()),
            None => self.take_over(hash, label()),
        };
        self.counters[place].count = self.counters[place].count.saturating_add(1);
        self.sink(self.counters[place].at);
    }

    /// How many occurrences were counted.
    pub(super) const fn observed(&self) -> u64 {
        self.observed
    }

    /// What is followed, in no order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Frequent<&L>> {
        self.counters.iter().map(|counter| Frequent {
            label: &counter.label,
            count: counter.count,
            error: counter.error,
        })
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Sketch::new(self.counters_max);
    }

    /// A counter of its own, at zero.
    fn follow(&mut self, hash: u64, label: L) -> usize {
        let place = self.counters.len();
        self.counters.push(Counter { hash, label, count: 0, error: 0, at: self.heap.len() });
        self.heap.push(place);
        self.rise(self.heap.len() - 1);
        self.remember(hash, place);
        place
    }

    /// The smallest counter, as it stands.
    fn take_over(&mut self, hash: u64, label: L) -> usize {
        let place = self.heap[0];
        let counter = &mut self.counters[place];
        let before = counter.hash;
        counter.hash = hash;
        counter.label = label;
        counter.error = counter.count;
        if let Ok(entry) = self.places.find_entry(before, |known| *known == place) {
            entry.remove();
        }
        self.remember(hash, place);
        place
    }

    fn remember(&mut self, hash: u64, place: usize) {
        let counters = &self.counters;
        self.places.insert_unique(hash, place, |place| counters[*place].hash);
    }

    /// Moves the counter at this place of the heap down until it fits.
    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2];
            let below = children.into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = below.min_by_key(|child| self.count_at(*child)) else { return };
            if self.count_at(at) <= self.count_at(least) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// Moves the counter at this place of the heap up until it fits.
    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.count_at(above) <= self.count_at(at) {
                return;
            }
            self.swap(at, above);
            at = above;
        }
    }

    fn count_at(&self, at: usize) -> u64 {
        self.counters[self.heap[at]].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.counters[self.heap[one]].at = one;
        self.counters[self.heap[other]].at = other;
    }
}

#[cfg(test)]
mod tests;
