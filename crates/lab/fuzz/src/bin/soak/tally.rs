//! Counts of requests, and the first faults.

use std::cell::{Cell, RefCell};
use std::fmt;

/// The most faults that are reported.
const FAULTS_MAX: usize = 5;

/// Counts of one soak. One thread does everything, so cells are enough.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) checks: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    pub(crate) calls: Cell<u64>,
    pub(crate) keys: Cell<u64>,
    pub(crate) reloads: Cell<u64>,
    pub(crate) bad_reloads: Cell<u64>,
    pub(crate) bad_requests: Cell<u64>,
    pub(crate) bad_calls: Cell<u64>,
    pub(crate) half_open: Cell<u64>,
    faults: RefCell<Vec<String>>,
}

pub(crate) fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get().saturating_add(more));
}

impl Tally {
    pub(crate) fn fault(&self, what: impl fmt::Display) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            faults.push(what.to_string());
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.borrow().clone()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { checks, refused, calls, keys, .. } = self;
        write!(f, "{} HTTP checks ({} refused), ", checks.get(), refused.get())?;
        write!(f, "{} gRPC calls, {} keys, ", calls.get(), keys.get())?;
        write!(f, "{} reloads and {} bad ones, ", self.reloads.get(), self.bad_reloads.get())?;
        write!(
            f,
            "{} bad requests, {} bad calls, ",
            self.bad_requests.get(),
            self.bad_calls.get()
        )?;
        write!(f, "{} half-open connections", self.half_open.get())
    }
}
