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

#[derive(Debug, Default)]
struct Mailbox {
    signals: Signals,
    last_ticket: Ticket,
}

#[derive(Debug, Default)]
struct Board {
    status: Arc<WatchStatus>,
    /// The thread has ended: no new status follows.
    over: bool,
}

/// Signals and status.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    mailbox: Mutex<Mailbox>,
    sent: Condvar,
    board: Mutex<Board>,
    posted: Condvar,
}

impl SharedState {
    /// Sends a signal to the thread.
    pub(super) fn signal(&self, set: impl FnOnce(&mut Signals)) {
        set(&mut self.mailbox.lock().signals);
        self.sent.notify_one();
    }

    /// Requests a reload.
    pub(super) fn request_reload(&self) -> Ticket {
        let mut mailbox = self.mailbox.lock();
        mailbox.signals.reload = true;
        mailbox.last_ticket = Ticket(mailbox.last_ticket.0.saturating_add(1));
        let ticket = mailbox.last_ticket;
        drop(mailbox);
        self.sent.notify_one();
        ticket
    }

    /// All signals since the last call, and the last requested reload; waits for a signal up to
    /// `patience`.
    pub(super) fn signals(&self, patience: Duration) -> (Signals, Ticket) {
        let mut mailbox = self.mailbox.lock();
        self.sent.wait_while_for(&mut mailbox, |mailbox| mailbox.signals.is_empty(), patience);
        (std::mem::take(&mut mailbox.signals), mailbox.last_ticket)
    }

    pub(super) fn status(&self) -> Arc<WatchStatus> {
        Arc::clone(&self.board.lock().status)
    }

    /// Replaces the status.
    pub(super) fn post(&self, status: Arc<WatchStatus>) {
        self.board.lock().status = status;
        self.posted.notify_all();
    }

    /// Marks the end of the thread.
    pub(super) fn close(&self) {
        self.board.lock().over = true;
        self.posted.notify_all();
    }

    /// Waits for a status that fulfils `wanted`; `None` on timeout or when the watch ends.
    pub(super) fn wait_until(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&WatchStatus) -> bool,
    ) -> Option<Arc<WatchStatus>> {
        let mut board = self.board.lock();
        let mut met = wanted(&board.status);
        if !met {
            let waits = |board: &mut Board| {
                met = wanted(&board.status);
                !met && !board.over
            };
            self.posted.wait_while_for(&mut board, waits, patience);
        }
        met.then(|| Arc::clone(&board.status))
    }
}
