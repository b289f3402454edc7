//! Turns in leaky buckets, and spare ones.
//!
//! A leaky bucket assigns each request its turn when it admits it, and cannot take a turn back: the later ones are
//! assigned already. So the turn of a request that gives up becomes spare, and the next request of the same kind takes
//! it instead of its own, which is later and becomes spare in its place. The outflow keeps its pace: each turn is taken
//! once, and only turns that the bucket assigned. A request that may not wait for its turn gives it up at once;
//! otherwise refused requests would postpone all others until the bucket is full.
//!
//! Requests are of the same kind if the same limits delay them, for the same values and at the same cost.
//!
//! Spare turns do not make room in a full bucket: it refuses until its next turn, even if spare turns are available.

mod pending_turn;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Clock, CounterStore, Nanos, Role, Verdict};
use tokio::time::{Instant, sleep_until};

use crate::description::RequestDescription;
use crate::domain_engine::DomainEngine;
use crate::line::{DelaySettings, WaitMode};
use crate::refund::Refund;

pub use pending_turn::PendingTurn;

/// All turns that requests wait for, and the spare ones.
#[derive(Debug, Default)]
pub struct Turns {
    spare: Mutex<SpareTurns>,
    /// How many requests wait for their turn.
    waiting: AtomicUsize,
    seed: RandomState,
}

/// Identifies interchangeable turns: a hash of limits, values and costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TurnKind(u64);

/// Future turns that no request waits for: by kind, and by time.
#[derive(Debug, Default)]
struct SpareTurns {
    by_kind: BTreeSet<(TurnKind, Instant)>,
    by_time: BTreeSet<(Instant, TurnKind)>,
}

/// How long a request may wait for its turn, and with how many others.
#[derive(Clone, Copy, Debug)]
pub struct TurnBounds {
    /// Whether the client waits, or the request is queued.
    pub mode: WaitMode,
    /// How long it may wait.
    pub wait_max: Duration,
    /// The most clients that wait for their turn.
    pub waiting_max: usize,
    /// The most spare turns.
    pub spares_max: usize,
}

impl TurnBounds {
    /// The bounds of a request while so many others wait in line.
    pub const fn new(
        mode: WaitMode,
        wait_max: Duration,
        delay: &DelaySettings,
        in_line: usize,
    ) -> Self {
        let waiting_max = delay.waiting_max.saturating_sub(in_line);
        TurnBounds { mode, wait_max, waiting_max, spares_max: delay.waiting_max }
    }
}

/// There is no turn for the request; it may retry after this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTurn(pub Duration);

impl Turns {
    /// No turns yet.
    pub fn new() -> Self {
        Turns::default()
    }

    /// Takes the turn of a request that was admitted for later.
    ///
    /// # Errors
    /// When it may not wait that long, or too many wait. It is refunded.
    pub fn take<S: CounterStore, C: Clock>(
        self: &Arc<Self>,
        description: &RequestDescription,
        verdict: &Verdict,
        limits: DomainEngine<'_, S, C>,
        bounds: TurnBounds,
    ) -> Result<PendingTurn, NoTurn> {
        let refund = Refund::of_deposit(limits.deposit(description, verdict));
        match self.claim(self.kind(description, verdict), verdict.delay().into(), bounds) {
            Ok(turn) => Ok(PendingTurn::new(turn, refund)),
            Err(no_turn) => {
                refund.pay_deposit();
                Err(no_turn)
            }
        }
    }

    /// How many requests wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The kind of a request's turn.
    fn kind(&self, description: &RequestDescription, verdict: &Verdict) -> TurnKind {
        let mut hasher = self.seed.build_hasher();
        let delaying = |role, delay| role != Role::Observed && delay > Nanos::ZERO;
        for ruling in verdict.rulings() {
            if delaying(ruling.role, ruling.decision.delay) {
                let index = usize::try_from(ruling.descriptor).unwrap_or(usize::MAX);
                verdict.limit(ruling).map(|limit| limit.identity).hash(&mut hasher);
                ruling.cost.hash(&mut hasher);
                description.entries_of(index).hash(&mut hasher);
            }
        }
        TurnKind(hasher.finish())
    }

    /// Takes the turn that a request was assigned, or an earlier spare one.
    fn claim(
        self: &Arc<Self>,
        kind: TurnKind,
        after: Duration,
        bounds: TurnBounds,
    ) -> Result<Turn, NoTurn> {
        let now = Instant::now();
        let Some(assigned) = now.checked_add(after) else { return Err(NoTurn(after)) };
        let at = self.spare.lock().swap(kind, assigned, now);
        let wait = at.saturating_duration_since(now);
        let too_long = wait.saturating_sub(bounds.wait_max);
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        // From here on, dropping the turn makes it spare.
        let turn = Turn { turns: Arc::clone(self), kind, at, spares_max: bounds.spares_max };
        if !too_long.is_zero() {
            return Err(NoTurn(too_long));
        }
        // The queue has a maximum of its own.
        let full = bounds.mode == WaitMode::Delay && waiting >= bounds.waiting_max;
        if full { Err(NoTurn(wait)) } else { Ok(turn) }
    }
}

impl SpareTurns {
    /// Takes the first spare turn before `assigned`, which then is spare itself, or else `assigned`.
    fn swap(&mut self, kind: TurnKind, assigned: Instant, now: Instant) -> Instant {
        self.remove_past(now);
        let first = self.by_kind.range((kind, now)..(kind, assigned)).next().copied();
        let Some((_, first)) = first else { return assigned };
        self.by_kind.remove(&(kind, first));
        self.by_time.remove(&(first, kind));
        self.insert(kind, assigned);
        first
    }

    fn insert(&mut self, kind: TurnKind, at: Instant) {
        self.by_kind.insert((kind, at));
        self.by_time.insert((at, kind));
    }

    fn remove_past(&mut self, now: Instant) {
        while let Some((at, kind)) = self.by_time.first().copied()
            && at <= now
        {
            self.by_time.pop_first();
            self.by_kind.remove(&(kind, at));
        }
    }
}

/// The turn that a request waits for. Dropping it earlier makes it spare.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    kind: TurnKind,
    at: Instant,
    spares_max: usize,
}

impl Turn {
    async fn wait(&self) {
        sleep_until(self.at).await;
    }

    fn has_come(&self) -> bool {
        self.at <= Instant::now()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.waiting.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        if self.at > now {
            let mut spare = self.turns.spare.lock();
            spare.remove_past(now);
            // Without room the outflow has a gap, which does no harm.
            if spare.by_time.len() < self.spares_max {
                spare.insert(self.kind, self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
