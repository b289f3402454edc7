//! Lines of requests that wait for a limit: first come, first served.
//!
//! The one in front asks again when its limit said that it would admit, and leaves; then the
//! next is in front. So requests leave at the limit's own pace, whatever its algorithm. A
//! request whose client is gone drops its ticket, and its place is the next one's. A request
//! that comes while others wait stands behind them, or it would take what they wait for.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::WhenOver;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::described::Described;
use tidegate_answers::Notice;

/// The one in front of a line asks no more often than this.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// How requests wait: for limits that say `when_over: delay`, and for their turn in leaky
/// buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySettings {
    /// The most requests that wait, over all callers. Default: 10,000.
    pub waiting_max: usize,
    /// The most requests that wait in one line, behind the same limit. Default: 100.
    pub line_max: usize,
    /// The longest wait. A request that would have to wait longer is refused. Default: 10 s.
    pub wait_max: Duration,
}

impl DelaySettings {
    /// The bounds of lines while as many wait for their turn.
    pub fn beside(self, for_turns: usize) -> Self {
        DelaySettings { waiting_max: self.waiting_max.saturating_sub(for_turns), ..self }
    }
}

impl Default for DelaySettings {
    fn default() -> Self {
        DelaySettings { waiting_max: 10_000, line_max: 100, wait_max: Duration::from_secs(10) }
    }
}

/// What becomes of a request over a limit that does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// It waits, and its client with it.
    Delay,
    /// It is kept, and its client is sent away.
    Queue,
}

impl Later {
    /// What all limits that refuse agree to do instead. One that refuses outright decides.
    pub fn of(notice: &Notice<'_>) -> Option<Later> {
        let mut later = None;
        for policy in notice.violated() {
            later = match (policy.when_over(), later) {
                (WhenOver::Refuse, _) => return None,
                (WhenOver::Queue, _) | (WhenOver::Delay, Some(Later::Queue)) => Some(Later::Queue),
                (WhenOver::Delay, _) => Some(Later::Delay),
            };
        }
        later
    }
}

/// What a limit says to the one in front.
#[derive(Debug)]
pub enum Said<P, R> {
    /// It passes.
    Pass(P),
    /// Not before this long, and what to answer if that is too long.
    NotYet(Duration, R),
    /// It is refused.
    Refused(R),
}

/// What a line is known by: the entries of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKey(u64);

/// All lines there are.
#[derive(Debug)]
pub struct Lines {
    lines: Mutex<HashMap<LineKey, Line>>,
    waiting: AtomicUsize,
    tickets: AtomicU64,
    seed: RandomState,
}

#[derive(Debug)]
struct Line {
    later: Later,
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    ticket: u64,
    turn: Arc<Notify>,
}

/// There is no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFull;

impl Default for Lines {
    fn default() -> Self {
        Lines::new()
    }
}

impl Lines {
    /// No lines yet.
    pub fn new() -> Self {
        Lines {
            lines: Mutex::default(),
            waiting: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The key of one of the request's descriptors.
    pub fn key(&self, described: &Described, descriptor: usize) -> LineKey {
        LineKey(self.seed.hash_one(described.entries_of(descriptor)))
    }

    /// The line that somebody waits in whom this request must not overtake, and how.
    pub fn standing(&self, described: &Described) -> Option<(LineKey, Later)> {
        if self.waiting() == 0 {
            return None;
        }
        let lines = self.lines.lock();
        (0..described.len()).find_map(|place| {
            let key = self.key(described, place);
            lines.get(&key).map(|line| (key, line.later))
        })
    }

    /// Takes the last place of a line, within these bounds.
    pub fn join(
        self: &Arc<Self>,
        key: LineKey,
        later: Later,
        bounds: &DelaySettings,
    ) -> Result<Ticket, LineFull> {
        let mut lines = self.lines.lock();
        if later == Later::Delay && self.waiting() >= bounds.waiting_max {
            return Err(LineFull);
        }
        let new = || Line { later, places: VecDeque::new() };
        let line = &mut lines.entry(key).or_insert_with(new).places;
        // Those that are kept have a maximum of their own.
        if later == Later::Delay && line.len() >= bounds.line_max {
            return Err(LineFull);
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let turn = Arc::new(Notify::new());
        if line.is_empty() {
            turn.notify_one();
        }
        line.push_back(Place { ticket, turn: Arc::clone(&turn) });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { lines: Arc::clone(self), key, ticket, turn })
    }

    /// Waits in a line until `ask` lets the request pass, but no longer than `patience`. `told`
    /// is what it was told when it asked before it came here.
    ///
    /// # Errors
    /// The last refusal that it was told, if any, when it does not pass.
    pub async fn stand<P, R, F>(
        self: &Arc<Self>,
        (key, later): (LineKey, Later),
        (bounds, patience): (&DelaySettings, Duration),
        told: Option<(Duration, R)>,
        mut ask: impl FnMut() -> F,
    ) -> Result<P, Option<R>>
    where
        F: Future<Output = Said<P, R>>,
    {
        // Who is in front at once knows how long to wait; others ask when it is their turn.
        let (mut wait, mut told) = told.unzip();
        if wait.is_some_and(|wait| wait > patience) {
            return Err(told);
        }
        let Ok(ticket) = self.join(key, later, bounds) else { return Err(told) };
        let began = Instant::now();
        let mut turn = pin!(ticket.turn());
        if poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await.is_pending() {
            wait = None;
            if timeout(patience, turn).await.is_err() {
                return Err(told);
            }
        }
        loop {
            if let Some(wait) = wait {
                if began.elapsed().saturating_add(wait) > patience {
                    return Err(told);
                }
                sleep(wait).await;
            }
            match ask().await {
                Said::Pass(passage) => return Ok(passage),
                Said::Refused(refusal) => return Err(Some(refusal)),
                Said::NotYet(again, refusal) => {
                    wait = Some(again.max(ASK_EVERY));
                    told = Some(refusal);
                }
            }
        }
    }

    fn leave(&self, key: LineKey, ticket: u64) {
        let mut lines = self.lines.lock();
        let Some(Line { places: line, .. }) = lines.get_mut(&key) else { return };
        let Some(place) = line.iter().position(|place| place.ticket == ticket) else { return };
        line.remove(place);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match line.front() {
            None => drop(lines.remove(&key)),
            Some(next) if place == 0 => next.turn.notify_one(),
            Some(_) => {}
        }
    }
}

/// A place in a line. Dropping it gives the place up.
#[derive(Debug)]
pub struct Ticket {
    lines: Arc<Lines>,
    key: LineKey,
    ticket: u64,
    turn: Arc<Notify>,
}

impl Ticket {
    /// Waits until nobody is in front.
    pub async fn turn(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lines.leave(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests;
