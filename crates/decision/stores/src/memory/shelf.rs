//! States that do not fit into a slot.

use tidegate_algorithms::{State, Timestamp};

/// Holds states by place; freed places are used again.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// None while a state is lent, and at free places.
    states: Vec<Option<State>>,
    free: Vec<u32>,
    /// Bytes that the states keep on the heap.
    heap: usize,
}

impl Shelf {
    /// Bytes that the shelf takes, its states' own heap included.
    pub(super) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<Option<State>>()
            + self.free.capacity() * size_of::<u32>()
            + self.heap
    }

    /// Bytes that one more state would take, at the most.
    pub(super) fn growth(&self) -> usize {
        if !self.free.is_empty() || self.states.len() < self.states.capacity() {
            return 0;
        }
        self.step() * (size_of::<Option<State>>() + size_of::<u32>())
    }

    /// Puts a state down; gives its place.
    pub(super) fn put(&mut self, state: State) -> Option<u32> {
        self.heap += state.heap_bytes();
        if let Some(place) = self.free.pop() {
            self.states[place as usize] = Some(state);
            return Some(place);
        }
        let place = u32::try_from(self.states.len()).ok()?;
        if self.states.len() == self.states.capacity() {
            // A quarter at a time: doubling would waste up to half the budget.
            self.states.reserve_exact(self.step());
        }
        self.states.push(Some(state));
        Some(place)
    }

    /// Whether a state stopped mattering. One that is lent has not: whoever
    /// works on it will put it back.
    pub(super) fn is_idle(&self, place: u32, now: Timestamp) -> bool {
        let state = self.states.get(place as usize).and_then(Option::as_ref);
        state.is_some_and(|state| state.idle_at() <= now)
    }

    /// A state where it is.
    pub(super) fn state(&mut self, place: u32) -> Option<&mut State> {
        self.states.get_mut(place as usize)?.as_mut()
    }

    /// Takes a state to work on; the place stays reserved until [`Shelf::put_back`] or [`Shelf::free`].
    pub(super) fn lend(&mut self, place: u32) -> State {
        let state = self.states.get_mut(place as usize).and_then(Option::take).unwrap_or_default();
        self.heap -= state.heap_bytes();
        state
    }

    /// Puts a lent state back to its place.
    pub(super) fn put_back(&mut self, place: u32, state: State) {
        if let Some(kept) = self.states.get_mut(place as usize) {
            self.heap += state.heap_bytes();
            *kept = Some(state);
        }
    }

    /// Frees a place, whatever is in it.
    pub(super) fn free(&mut self, place: u32) {
        drop(self.lend(place));
        self.free.push(place);
    }

    fn step(&self) -> usize {
        (self.states.len() / 4).max(4)
    }
}
