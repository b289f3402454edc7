//! Turns in leaky buckets, and those that nobody takes.
//!
//! A leaky bucket tells each request its turn when it admits it, and gives no place back: the
//! others have been told theirs. So a turn that its request gives up is kept here, and the next
//! request of the same kind takes it instead of its own, which is later and is kept in its place.
//! The outflow stays at its pace: each turn is taken once, and only turns that the bucket gave.
//! A request that may not wait as long as its turn is off gives it up at once; without this, those
//! that are refused would push everybody's turn away until the bucket is full.
//!
//! Requests are of the same kind when the same limits delay them, for the same values and at the
//! same cost.
//!
//! Nobody takes a turn whom the bucket itself refuses: a full one has room again when its next
//! turn has come, also where turns are spare.

mod waiting;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Clock, CounterStore, Engine, Nanos, Role, Verdict};
use tokio::time::{Instant, sleep_until};

use crate::described::Described;
use crate::line::{DelaySettings, Later};

pub use waiting::{Waiting, give_back};

/// All turns that are waited for, and those that nobody takes.
#[derive(Debug)]
pub struct Turns {
    spare: Mutex<Spare>,
    /// How many requests wait for their turn.
    waiting: AtomicUsize,
    seed: RandomState,
}

/// Which turns can be taken one for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind(u64);

/// Turns to come that nobody takes: by kind, and by time.
#[derive(Debug, Default)]
struct Spare {
    of_kind: BTreeSet<(Kind, Instant)>,
    in_time: BTreeSet<(Instant, Kind)>,
}

/// How long a request may wait, and with how many others.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Who waits: the client, or nobody but us.
    pub later: Later,
    /// How long it may wait.
    pub wait_max: Duration,
    /// The most clients that wait for their turn.
    pub waiting_max: usize,
    /// The most turns that are kept for others.
    pub spares_max: usize,
}

impl Patience {
    /// Of a request that waits no longer than this, while as many others stand in line.
    pub const fn new(
        later: Later,
        wait_max: Duration,
        bounds: &DelaySettings,
        in_line: usize,
    ) -> Self {
        let waiting_max = bounds.waiting_max.saturating_sub(in_line);
        Patience { later, wait_max, waiting_max, spares_max: bounds.waiting_max }
    }
}

/// Who does not get a turn may ask again after this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTurn(pub Duration);

impl Default for Turns {
    fn default() -> Self {
        Turns::new()
    }
}

impl Turns {
    /// No turns yet.
    pub fn new() -> Self {
        Turns { spare: Mutex::default(), waiting: AtomicUsize::new(0), seed: RandomState::new() }
    }

    /// Takes the turn of a request that was admitted for later.
    ///
    /// # Errors
    /// When it may not wait that long, or too many wait. What it was charged is given back.
    pub fn take<S, C>(
        self: &Arc<Self>,
        described: &Described,
        verdict: &Verdict,
        (engine, domain): (&Arc<Engine<S, C>>, &str),
        patience: Patience,
    ) -> Result<Waiting, NoTurn>
    where
        S: CounterStore,
        C: Clock,
    {
        let deposit = described.ask(domain, |request| engine.deposit(request, verdict));
        match self.claim(self.kind(described, verdict), verdict.delay().into(), patience) {
            Ok(turn) => Ok(Waiting::new(turn, deposit)),
            Err(no_turn) => {
                give_back(deposit);
                Err(no_turn)
            }
        }
    }

    /// How many requests wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The kind of a request that was told to wait.
    fn kind(&self, described: &Described, verdict: &Verdict) -> Kind {
        let mut hasher = self.seed.build_hasher();
        let delaying = |role, delay| role != Role::Observed && delay > Nanos::ZERO;
        for ruling in verdict.rulings() {
            if delaying(ruling.role, ruling.decision.delay) {
                let place = usize::try_from(ruling.descriptor).unwrap_or(usize::MAX);
                verdict.limit(ruling).map(|limit| limit.identity).hash(&mut hasher);
                ruling.cost.hash(&mut hasher);
                described.entries_of(place).hash(&mut hasher);
            }
        }
        Kind(hasher.finish())
    }

    /// Takes the turn that a request was told, or one before it that nobody takes.
    fn claim(
        self: &Arc<Self>,
        kind: Kind,
        after: Duration,
        patience: Patience,
    ) -> Result<Turn, NoTurn> {
        let now = Instant::now();
        let Some(told) = now.checked_add(after) else { return Err(NoTurn(after)) };
        let at = self.spare.lock().swap(kind, told, now);
        let wait = at.saturating_duration_since(now);
        let too_long = wait.saturating_sub(patience.wait_max);
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        // From here on, dropping it gives it up.
        let turn = Turn { turns: Arc::clone(self), kind, at, spares_max: patience.spares_max };
        if !too_long.is_zero() {
            return Err(NoTurn(too_long));
        }
        // Those that are kept have a maximum of their own.
        let full = patience.later == Later::Delay && waiting >= patience.waiting_max;
        if full { Err(NoTurn(wait)) } else { Ok(turn) }
    }
}

impl Spare {
    /// The first turn of the kind that is not after `told`. If that is another, `told` is spare.
    fn swap(&mut self, kind: Kind, told: Instant, now: Instant) -> Instant {
        self.forget_past(now);
        let first = self.of_kind.range((kind, now)..(kind, told)).next().copied();
        let Some((_, first)) = first else { return told };
        self.of_kind.remove(&(kind, first));
        self.in_time.remove(&(first, kind));
        self.keep(kind, told);
        first
    }

    fn keep(&mut self, kind: Kind, at: Instant) {
        self.of_kind.insert((kind, at));
        self.in_time.insert((at, kind));
    }

    fn forget_past(&mut self, now: Instant) {
        while let Some((at, kind)) = self.in_time.first().copied()
            && at <= now
        {
            self.in_time.pop_first();
            self.of_kind.remove(&(kind, at));
        }
    }
}

/// The turn that a request waits for. Dropping it before it has come gives it up.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    kind: Kind,
    at: Instant,
    spares_max: usize,
}

impl Turn {
    /// Waits until it has come.
    async fn come(&self) {
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
            spare.forget_past(now);
            // Without room the outflow has a gap, which harms nobody.
            if spare.in_time.len() < self.spares_max {
                spare.keep(self.kind, self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
