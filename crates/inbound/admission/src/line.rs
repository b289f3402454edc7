//! Lines of requests that wait for a limit: first come, first served.
//!
//! The request in front is decided again when its limit predicted room, and leaves; then the next is in front. So
//! requests leave at the limit's own pace, whatever its algorithm. A client that disconnects drops its ticket, and the
//! requests behind it move up. A request that arrives while others wait joins the end of their line.

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

use crate::description::RequestDescription;
use crate::pipeline::{Admission, Grant, LineWait};
use tidegate_answers::{Notice, Refusal};
use tidegate_macros::defaults;

/// The request in front is decided no more often than this.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(1);

defaults! {
    /// How requests wait: for limits with `when_over: delay`, and for their turn in leaky buckets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DelaySettings {
        /// The most requests that wait, over all callers. Default: 10,000.
        pub waiting_max: usize = 10_000,
        /// The most requests that wait in one line, behind the same limit. Default: 100.
        pub line_max: usize = 100,
        /// The longest wait. A request that would have to wait longer is refused. Default: 10 s.
        pub wait_max: Duration = Duration::from_secs(10),
    }
}

/// How a request over a limit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// The client waits with it.
    Delay,
    /// It is stored, and the client is answered at once.
    Queue,
}

impl WaitMode {
    /// How the limits that refuse let it wait; [`None`] if one of them refuses outright.
    pub fn of(notice: &Notice<'_>) -> Option<WaitMode> {
        let mut mode = None;
        for policy in notice.violated() {
            mode = match (policy.when_over(), mode) {
                (WhenOver::Refuse, _) => return None,
                (WhenOver::Queue, _) | (WhenOver::Delay, Some(WaitMode::Queue)) => {
                    Some(WaitMode::Queue)
                }
                (WhenOver::Delay, _) => Some(WaitMode::Delay),
            };
        }
        mode
    }
}

/// Identifies a line: a hash of the entries of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKey(u64);

/// All lines.
#[derive(Debug, Default)]
pub struct Lines {
    lines: Mutex<HashMap<LineKey, Line>>,
    waiting: AtomicUsize,
    tickets: AtomicU64,
    seed: RandomState,
}

#[derive(Debug)]
struct Line {
    mode: WaitMode,
    members: VecDeque<LineMember>,
    /// The longest time that a member had to wait in front: about one interval of the limit.
    interval: Duration,
}

#[derive(Debug)]
struct LineMember {
    ticket: u64,
    front: Arc<Notify>,
}

/// The line is full, or too many requests wait in all lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFull;

impl Lines {
    /// No lines yet.
    pub fn new() -> Self {
        Lines::default()
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The key of one of the request's descriptors.
    pub fn key(&self, description: &RequestDescription, descriptor: usize) -> LineKey {
        LineKey(self.seed.hash_one(description.entries_of(descriptor)))
    }

    /// The line of requests that this one must not overtake.
    pub fn ahead_of(&self, description: &RequestDescription) -> Option<(LineKey, WaitMode)> {
        if self.waiting() == 0 {
            return None;
        }
        let lines = self.lines.lock();
        (0..description.len()).find_map(|index| {
            let key = self.key(description, index);
            lines.get(&key).map(|line| (key, line.mode))
        })
    }

    /// Joins the end of a line.
    ///
    /// # Errors
    /// When there is no room within these bounds.
    pub fn join(
        self: &Arc<Self>,
        key: LineKey,
        mode: WaitMode,
        bounds: &DelaySettings,
    ) -> Result<Ticket, LineFull> {
        let mut lines = self.lines.lock();
        if mode == WaitMode::Delay && self.waiting() >= bounds.waiting_max {
            return Err(LineFull);
        }
        let new = || Line { mode, members: VecDeque::new(), interval: Duration::ZERO };
        let line = &mut lines.entry(key).or_insert_with(new).members;
        // The queue has a maximum of its own.
        if mode == WaitMode::Delay && line.len() >= bounds.line_max {
            return Err(LineFull);
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let front = Arc::new(Notify::new());
        if line.is_empty() {
            front.notify_one();
        }
        line.push_back(LineMember { ticket, front: Arc::clone(&front) });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { lines: Arc::clone(self), key, ticket, front })
    }

    /// How long a request that joins now will wait, about: one interval of the limit for each request up to it. [`None`]
    /// if no interval is known yet.
    pub fn expected(&self, wait: &LineWait) -> Option<Duration> {
        let own = wait.refused.as_ref().map(|(after, _)| *after);
        let lines = self.lines.lock();
        let line = lines.get(&wait.line);
        let known = line.map(|line| line.interval).filter(|interval| !interval.is_zero());
        let interval = own.max(known)?;
        let ahead = line.map_or(0, |line| u32::try_from(line.members.len()).unwrap_or(u32::MAX));
        Some(interval.saturating_mul(ahead.saturating_add(1)))
    }

    /// Remembers how long the member in front has to wait.
    fn note_interval(&self, key: LineKey, after: Duration) {
        if let Some(line) = self.lines.lock().get_mut(&key) {
            line.interval = line.interval.max(after);
        }
    }

    /// Waits in line until `decide` admits the request, within these bounds.
    ///
    /// # Errors
    /// The last refusal, if the request was decided at all.
    pub(crate) async fn wait<F>(
        self: &Arc<Self>,
        LineWait { line, mode, refused }: LineWait,
        bounds: &DelaySettings,
        mut decide: impl FnMut() -> F,
    ) -> Result<Grant, Option<Refusal>>
    where
        F: Future<Output = Admission>,
    {
        let (mut after, mut refusal) = refused.unzip();
        if after.is_some_and(|after| after > bounds.wait_max) {
            return Err(refusal);
        }
        let Ok(ticket) = self.join(line, mode, bounds) else { return Err(refusal) };
        let began = Instant::now();
        let mut front = pin!(ticket.wait_for_front());
        // A request that is in front at once knows how long to wait. Others are decided when they get there.
        if poll_fn(|context| Poll::Ready(front.as_mut().poll(context))).await.is_pending() {
            after = None;
            if timeout(bounds.wait_max, front).await.is_err() {
                return Err(refusal);
            }
        }
        loop {
            if let Some(after) = after {
                if began.elapsed().saturating_add(after) > bounds.wait_max {
                    return Err(refusal);
                }
                self.note_interval(line, after);
                sleep(after).await;
            }
            let again = match decide().await {
                Admission::Pass(grant) => return Ok(grant),
                Admission::Refused(refusal) => return Err(Some(refusal)),
                Admission::WaitInLine(again) => again.refused,
            };
            let (again, again_refused) = again.unzip();
            after = Some(again.unwrap_or_default().max(RETRY_INTERVAL_MIN));
            refusal = again_refused.or(refusal);
        }
    }

    fn leave(&self, key: LineKey, ticket: u64) {
        let mut lines = self.lines.lock();
        let Some(Line { members: line, .. }) = lines.get_mut(&key) else { return };
        let Some(position) = line.iter().position(|member| member.ticket == ticket) else { return };
        line.remove(position);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match line.front() {
            None => drop(lines.remove(&key)),
            Some(next) if position == 0 => next.front.notify_one(),
            Some(_) => {}
        }
    }
}

/// A position in a line. Dropping it leaves the line.
#[derive(Debug)]
pub struct Ticket {
    lines: Arc<Lines>,
    key: LineKey,
    ticket: u64,
    front: Arc<Notify>,
}

impl Ticket {
    /// Waits until it is in front.
    pub async fn wait_for_front(&self) {
        self.front.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lines.leave(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests;
