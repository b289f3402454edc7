//! State that the watch's thread shares with others: signals to it, and its status.
//!
//! Signals of a kind merge, so memory is bounded and no sender waits; a bounded channel would
//! have to drop some or block.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::status::{Ticket, WatchStatus};

/// Signals to the thread.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A path that matters changed.
    pub(super) changed: bool,
    /// Directories that were removed or renamed, so that watches there are void. Only watched
    /// directories and their parents, so they are few.
    pub(super) lost: BTreeSet<PathBuf>,
    /// Events were lost: all watches are in doubt.
    pub(super) all_lost: bool,
    /// A reload was requested.
    pub(super) reload: bool,
    /// The thread should end.
    pub(super) stop: bool,
}

impl Signals {
    const fn is_empty(&self) -> bool {
        !(self.changed || self.all_lost || self.reload || self.stop)
    }
}

/// Signals and status, under one lock.
#[derive(Debug, Default)]
struct State {
    signals: Signals,
    last_ticket: Ticket,
    status: Arc<WatchStatus>,
    /// The thread has ended: no new status follows.
    over: bool,
}

/// What the thread shares with others.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    state: Mutex<State>,
    /// Notified of every change.
    changed: Condvar,
}

impl SharedState {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// Sends a signal to the thread.
    pub(super) fn signal(&self, set: impl FnOnce(&mut Signals)) {
        self.change(|state| set(&mut state.signals));
    }

    /// All signals since the last call, and the last requested reload; waits for a signal up to `patience`.
    pub(super) fn signals(&self, patience: Duration) -> (Signals, Ticket) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.signals.is_empty(), patience);
        (std::mem::take(&mut state.signals), state.last_ticket)
    }

    /// Replaces the status.
    pub(super) fn post(&self, status: Arc<WatchStatus>) {
        self.change(|state| state.status = status);
    }

    /// Marks the end of the thread.
    pub(super) fn close(&self) {
        self.change(|state| state.over = true);
    }
}

/// Status and reloads of a watch. Cheap to clone; usable after the watch has ended.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    pub(super) shared: Arc<SharedState>,
}

impl WatchHandle {
    /// The current status.
    pub fn status(&self) -> Arc<WatchStatus> {
        Arc::clone(&self.shared.state.lock().status)
    }

    /// Requests a load now, even of texts that failed before. Does not wait: a status that
    /// [answers](WatchStatus::answers) the ticket has the outcome.
    pub fn reload(&self) -> Ticket {
        self.shared.change(|state| {
            state.signals.reload = true;
            state.last_ticket = Ticket(state.last_ticket.0.saturating_add(1));
            state.last_ticket
        })
    }

    /// Waits for a status that fulfils `wanted`. `None` on timeout or when the watch has ended.
    pub fn wait_until(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&WatchStatus) -> bool,
    ) -> Option<Arc<WatchStatus>> {
        let mut state = self.shared.state.lock();
        let mut met = false;
        let waits = |state: &mut State| {
            met = wanted(&state.status);
            !met && !state.over
        };
        self.shared.changed.wait_while_for(&mut state, waits, patience);
        met.then(|| Arc::clone(&state.status))
    }
}
