//! The tail: verdicts as they are made, for pages that are open.
//!
//! Verdicts are kept only while a stream asks for them, and only so many in each second: otherwise a verdict costs one
//! relaxed load.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_engine::{Request, Role, Verdict};
use tidegate_words::words;

use super::observations::{key_text, limit_label, rule_label, shortened};

/// The most verdicts in a second.
pub(super) const VERDICTS_PER_SECOND: u32 = 50;
/// The most verdicts that wait for their readers.
const WAITING_MAX: usize = 100;

words! {
    /// Which verdicts the tail shows.
    #[derive(Default)]
    pub enum TailMode {
        /// None.
        Off = "off",
        /// Refusals, and those that a limit in shadow mode would have refused.
        #[default]
        Refusals = "refusals",
        /// All verdicts.
        All = "all",
    }
}

/// One verdict.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TailEntry {
    #[serde(skip)]
    pub(super) id: u64,
    pub(super) at_ms: u64,
    /// `refused`, `shadow`, `undecided` or `admitted`.
    pub(super) answer: &'static str,
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) limit: String,
    /// The entries of the descriptor.
    pub(super) caller: String,
    pub(super) remaining: u64,
}

/// Keeps verdicts for open pages.
#[derive(Debug)]
pub(super) struct Tail {
    mode: TailMode,
    watchers: AtomicUsize,
    /// How many more verdicts this second may have.
    left: AtomicU32,
    state: Mutex<TailState>,
}

#[derive(Debug, Default)]
struct TailState {
    last: u64,
    now_ms: u64,
    entries: VecDeque<TailEntry>,
}

impl Tail {
    pub(super) fn new(mode: TailMode) -> Self {
        Tail {
            mode,
            watchers: AtomicUsize::new(0),
            left: AtomicU32::new(VERDICTS_PER_SECOND),
            state: Mutex::default(),
        }
    }

    pub(super) const fn mode(&self) -> TailMode {
        self.mode
    }

    /// Begins a second. Called once a second.
    pub(super) fn tick(&self, now_ms: u64) {
        self.left.store(VERDICTS_PER_SECOND, Ordering::Relaxed);
        self.state.lock().now_ms = now_ms;
    }

    /// Counts a reader, and returns the number of the newest verdict.
    pub(super) fn watch(&self) -> u64 {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        self.state.lock().last
    }

    /// A reader is gone.
    pub(super) fn unwatch(&self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps a verdict, if somebody reads and this second has room. Never waits for a lock.
    #[inline]
    pub(super) fn observe(&self, request: &Request<'_>, verdict: &Verdict) {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.keep(request, verdict);
    }

    #[cold]
    fn keep(&self, request: &Request<'_>, verdict: &Verdict) {
        let answer = match verdict {
            _ if verdict.undecided().is_some() => "undecided",
            _ if !verdict.is_admitted() => "refused",
            _ if verdict.refused_in_shadow() => "shadow",
            _ => "admitted",
        };
        match self.mode {
            TailMode::Off => return,
            TailMode::Refusals if answer == "admitted" => return,
            TailMode::Refusals | TailMode::All => {}
        }
        let take = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        let refuses = |ruling: &&tidegate_engine::Ruling| {
            let counts = answer != "shadow" || ruling.role == Role::Observed;
            counts && !ruling.decision.is_admitted()
        };
        let ruling = verdict.rulings().iter().find(refuses).or_else(|| verdict.tightest());
        let index = ruling.and_then(|ruling| usize::try_from(ruling.descriptor).ok()).unwrap_or(0);
        let entries = request.descriptors.get(index).map_or(&[][..], |found| found.entries);
        state.last += 1;
        let entry = TailEntry {
            id: state.last,
            at_ms: state.now_ms,
            answer,
            domain: shortened(request.domain),
            rule: ruling.map_or(String::new(), |ruling| rule_label(verdict, ruling).to_owned()),
            limit: ruling.map_or(String::new(), |ruling| limit_label(verdict, ruling)),
            caller: key_text(entries),
            remaining: ruling.map_or(0, |ruling| ruling.decision.remaining),
        };
        if state.entries.len() >= WAITING_MAX {
            state.entries.pop_front();
        }
        state.entries.push_back(entry);
    }

    /// The verdicts after this number, from the oldest.
    pub(super) fn after(&self, id: u64) -> Vec<TailEntry> {
        let state = self.state.lock();
        state.entries.iter().filter(|entry| entry.id > id).cloned().collect()
    }
}
