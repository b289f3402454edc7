//! States that do not fit into a slot.

use tidegate_algorithms::{State, Timestamp};

/// Holds states by index; freed cells are used again.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// `None` in free cells, and while a state is taken out.
    states: Vec<Option<State>>,
    free: Vec<u32>,
    /// Bytes that the states have on the heap.
    heap: usize,
}

impl Overflow {
    /// Bytes allocated, including those of the states.
    pub(super) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<Option<State>>()
            + self.free.capacity() * size_of::<u32>()
            + self.heap
    }

    /// Bytes that one more state would allocate here.
    pub(super) fn growth(&self) -> usize {
        if !self.free.is_empty() || self.states.len() < self.states.capacity() {
            return 0;
        }
        self.step() * (size_of::<Option<State>>() + size_of::<u32>())
    }

    /// Adds a state; returns the index of its cell.
    pub(super) fn insert(&mut self, state: State) -> Option<u32> {
        self.heap += state.heap_bytes();
        if let Some(index) = self.free.pop() {
            self.states[index as usize] = Some(state);
            return Some(index);
        }
        let index = u32::try_from(self.states.len()).ok()?;
        if self.states.len() == self.states.capacity() {
            // A quarter at a time: doubling would waste up to half the budget.
            self.states.reserve_exact(self.step());
        }
        self.states.push(Some(state));
        Some(index)
    }

    /// Whether a state no longer matters. A state that is taken out still does: it will be
    /// restored.
    pub(super) fn is_idle(&self, index: u32, now: Timestamp) -> bool {
        self.get(index).is_some_and(|state| state.idle_at() <= now)
    }

    /// A state in its cell.
    pub(super) fn get(&self, index: u32) -> Option<&State> {
        self.states.get(index as usize)?.as_ref()
    }

    /// Like [`Overflow::get`], to change the state.
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut State> {
        self.states.get_mut(index as usize)?.as_mut()
    }

    /// Takes a state out; its cell stays reserved until [`Overflow::restore`] or
    /// [`Overflow::free`].
    pub(super) fn take(&mut self, index: u32) -> State {
        let state = self.states.get_mut(index as usize).and_then(Option::take).unwrap_or_default();
        self.heap -= state.heap_bytes();
        state
    }

    /// Puts a state back into its cell.
    pub(super) fn restore(&mut self, index: u32, state: State) {
        if let Some(cell) = self.states.get_mut(index as usize) {
            self.heap += state.heap_bytes();
            *cell = Some(state);
        }
    }

    /// Frees a cell and drops its state.
    pub(super) fn free(&mut self, index: u32) {
        drop(self.take(index));
        self.free.push(index);
    }

    fn step(&self) -> usize {
        (self.states.len() / 4).max(4)
    }
}
