//! The most frequent items of a stream, in bounded memory.
//!
//! The Space-Saving algorithm: a fixed number of counters, one for each tracked item. An item that is not tracked takes
//! over the smallest counter, and that counter's value becomes its error. So a count is never too low, it is too high by
//! at most its error, and an item with more than `observed / counters` occurrences is always tracked. Chosen over a
//! count-min sketch because each row has its own error, which operators see.
//!
//! Items are identified by a hash; a label to show is made once, when an item is first tracked. Nothing is locked.

use hashbrown::HashTable;

/// Tracks the most frequent items.
#[derive(Debug)]
pub(super) struct Sketch<L> {
    counters: Vec<Counter<L>>,
    counters_max: usize,
    /// The index of a hash's counter.
    indexes: HashTable<usize>,
    /// The indexes of counters as a heap, the smallest first.
    heap: Vec<usize>,
    observed: u64,
}

#[derive(Debug)]
struct Counter<L> {
    hash: u64,
    label: L,
    count: u64,
    error: u64,
    /// Its position in the heap.
    at: usize,
}

/// One tracked item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frequent<L> {
    pub(super) label: L,
    /// Occurrences; never too few.
    pub(super) count: u64,
    /// The most by which the count is too high.
    pub(super) error: u64,
}

impl<L> Sketch<L> {
    /// A sketch with this many counters, at least one.
    pub(super) fn new(counters_max: usize) -> Self {
        let counters_max = counters_max.max(1);
        Sketch {
            counters: Vec::new(),
            counters_max,
            indexes: HashTable::new(),
            heap: Vec::new(),
            observed: 0,
        }
    }

    /// Counts one occurrence of the item with this hash.
    pub(super) fn count(&mut self, hash: u64, label: impl FnOnce() -> L) {
        self.observed = self.observed.saturating_add(1);
        let counters = &self.counters;
        let found = self.indexes.find(hash, |index| counters[*index].hash == hash).copied();
        let index = match found {
            Some(index) => index,
            None if self.counters.len() < self.counters_max => self.track(hash, label()),
            None => self.take_over(hash, label()),
        };
        self.counters[index].count = self.counters[index].count.saturating_add(1);
        self.sink(self.counters[index].at);
    }

    /// How many occurrences were counted.
    pub(super) const fn observed(&self) -> u64 {
        self.observed
    }

    /// The tracked items, in no order.
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

    /// Adds a counter at zero, and returns its index.
    fn track(&mut self, hash: u64, label: L) -> usize {
        let index = self.counters.len();
        self.counters.push(Counter { hash, label, count: 0, error: 0, at: self.heap.len() });
        self.heap.push(index);
        self.rise(self.heap.len() - 1);
        self.insert_index(hash, index);
        index
    }

    /// Gives the smallest counter to an item, with its count, and returns its index.
    fn take_over(&mut self, hash: u64, label: L) -> usize {
        let index = self.heap[0];
        let counter = &mut self.counters[index];
        let before = counter.hash;
        counter.hash = hash;
        counter.label = label;
        counter.error = counter.count;
        if let Ok(entry) = self.indexes.find_entry(before, |known| *known == index) {
            entry.remove();
        }
        self.insert_index(hash, index);
        index
    }

    fn insert_index(&mut self, hash: u64, index: usize) {
        let counters = &self.counters;
        self.indexes.insert_unique(hash, index, |index| counters[*index].hash);
    }

    /// Moves the counter at this position of the heap down until it fits.
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

    /// Moves the counter at this position of the heap up until it fits.
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
