//! What the watch's thread shares with others: signals to it, and its status.
//!
//! Signals of a kind merge, so there is room for all of them and no sender
//! ever waits: a bounded channel would have to drop some or to block.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::status::{Ticket, WatchStatus};

/// What the thread is told.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Something changed that may be a text.
    pub(super) changed: bool,
    /// Directories that are gone or moved; what was watched there is not any
    /// more. Each is one that is watched or leads to one, so they are as few.
    pub(super) lost: BTreeSet<PathBuf>,
    /// Events were lost: nothing is sure any more.
    pub(super) all_lost: bool,
    /// Somebody asked for a load.
    pub(super) asked: bool,
    /// The thread should end.
    pub(super) stop: bool,
}

impl Signals {
    const fn is_empty(&self) -> bool {
        !(self.changed || self.all_lost || self.asked || self.stop)
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
    /// The thread has ended: nothing new will be here.
    over: bool,
}

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Shared {
    mailbox: Mutex<Mailbox>,
    sent: Condvar,
    board: Mutex<Board>,
    posted: Condvar,
}

impl Shared {
    /// Tells the thread something.
    pub(super) fn signal(&self, tell: impl FnOnce(&mut Signals)) {
        tell(&mut self.mailbox.lock().signals);
        self.sent.notify_one();
    }

    /// Asks for a load.
    pub(super) fn ask(&self) -> Ticket {
        let mut mailbox = self.mailbox.lock();
        mailbox.signals.asked = true;
        mailbox.last_ticket = Ticket(mailbox.last_ticket.0.saturating_add(1));
        let ticket = mailbox.last_ticket;
        drop(mailbox);
        self.sent.notify_one();
        ticket
    }

    /// All signals since the last call, and the last load asked for; waits
    /// for one, but not longer than this.
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

    /// Says that no status will follow.
    pub(super) fn close(&self) {
        self.board.lock().over = true;
        self.posted.notify_all();
    }

    /// The first status that is as wanted; none if time runs out first, or the watch ends.
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
