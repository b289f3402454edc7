//! The judge: which arrivals a throttled service accepts.
//!
//! Pure: takes `now` and a cost. An arrival is accepted if every limit has room, and is charged to all limits or to
//! none.

mod limit_state;
#[cfg(test)]
mod tests;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, TargetLimit};

use self::limit_state::LimitState;

/// How a service counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The count starts anew at every multiple of the window.
    FixedWindow,
    /// Every arrival counts for one window: exact in any interval.
    SlidingLog,
    /// Refilled evenly; holds at most `depth`.
    TokenBucket {
        /// The most that an idle service accepts at once.
        depth: u64,
    },
}

/// One limit of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimit {
    /// What fits into which window.
    pub limit: TargetLimit,
    /// How it is counted.
    pub kind: LimitKind,
}

/// Another caller that takes a part of the capacity, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The cost of each of its calls.
    pub cost: Cost,
    /// The time between its calls; at least a microsecond.
    pub every: Nanos,
    /// Its first call.
    pub from: Timestamp,
    /// The time after its last call.
    pub until: Timestamp,
}

/// The answer to one arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Every limit had room.
    Accepted,
    /// A limit had no room.
    Throttled {
        /// After which time it would fit; `None` if the cost exceeds a limit.
        retry_after: Option<Nanos>,
    },
}

/// Decides which arrivals are accepted.
#[derive(Clone, Debug)]
pub struct Judge {
    limits: Vec<LimitState>,
    rivals: Vec<RivalProgress>,
}

#[derive(Clone, Debug)]
struct RivalProgress {
    rival: Rival,
    next: Timestamp,
}

impl Judge {
    /// The shortest time between two calls of a rival, which bounds the work of one judgement.
    const RIVAL_EVERY_MIN: Nanos = Nanos::new(1_000);

    /// A judge of these limits that has seen nothing.
    pub fn new(limits: &[ServiceLimit]) -> Self {
        let limits = limits.iter().map(|limit| LimitState::new(*limit)).collect();
        Judge { limits, rivals: Vec::new() }
    }

    /// Adds a rival.
    pub fn add_rival(&mut self, rival: Rival) {
        self.rivals.push(RivalProgress { rival, next: rival.from });
    }

    /// Judges an arrival. `now` must not go back.
    pub fn judge(&mut self, cost: Cost, now: Timestamp) -> Judgement {
        self.let_rivals_call(now);
        self.judge_one(cost, now)
    }

    /// What the limit with the least room has left at `now`, with its amount and the time until it is whole again.
    pub fn room(&mut self, now: Timestamp) -> Option<(TargetLimit, u64, Nanos)> {
        let rooms = self.limits.iter_mut().map(|state| {
            let (left, reset) = state.room(now);
            (state.limit(), left, reset)
        });
        rooms.min_by_key(|(limit, left, _)| {
            u128::from(*left) * 1_000_000 / u128::from(limit.amount.max(1))
        })
    }

    fn judge_one(&mut self, cost: Cost, now: Timestamp) -> Judgement {
        let mut wait = Nanos::ZERO;
        for state in &mut self.limits {
            match state.wait(cost, now) {
                Some(needed) => wait = wait.max(needed),
                None => return Judgement::Throttled { retry_after: None },
            }
        }
        if wait > Nanos::ZERO {
            return Judgement::Throttled { retry_after: Some(wait) };
        }
        for state in &mut self.limits {
            state.charge(cost, now);
        }
        Judgement::Accepted
    }

    /// Judges the calls that rivals made since the last arrival, in order of time.
    fn let_rivals_call(&mut self, now: Timestamp) {
        loop {
            let due = self
                .rivals
                .iter_mut()
                .filter(|progress| progress.next <= now && progress.next < progress.rival.until);
            let Some(progress) = due.min_by_key(|progress| progress.next) else { return };
            let (cost, at) = (progress.rival.cost, progress.next);
            progress.next = at.after(progress.rival.every.max(Self::RIVAL_EVERY_MIN));
            let _ = self.judge_one(cost, at);
        }
    }
}
