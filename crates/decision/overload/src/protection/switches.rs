//! What each limiter may do, changed while the node runs.

use tidegate_algorithms::{CallerMode, Clock, Mode, Timestamp};

use super::Protection;
use crate::category::Caller;
use crate::mode::Limiter;

impl<C: Clock> Protection<C> {
    /// Changes what a limiter does. A worker shedder that begins to enforce, or to watch,
    /// begins with everything admitted.
    pub fn set_mode(&self, limiter: Limiter, mode: Mode) {
        let before = self.modes[limiter.index()].set(mode);
        let same = std::mem::discriminant(&before) == std::mem::discriminant(&mode);
        if limiter == Limiter::Worker && !same {
            self.node.worker.reset();
        }
    }

    /// What a limiter does, kill switches aside.
    pub fn mode(&self, limiter: Limiter) -> Mode {
        self.modes[limiter.index()].read()
    }

    /// Lets a limiter refuse nobody any more, for good or until a moment. What is held is
    /// given back as before.
    pub fn kill(&self, limiter: Limiter, until: Option<Timestamp>) {
        self.kills[limiter.index()].kill(until);
        if limiter == Limiter::Worker {
            self.node.worker.reset();
        }
    }

    /// Ends [`Protection::kill`]. A worker shedder begins with everything admitted.
    pub fn revive(&self, limiter: Limiter) {
        self.kills[limiter.index()].revive();
    }

    /// Kills all limiters at once.
    pub fn kill_all(&self, until: Option<Timestamp>) {
        self.kill_all.kill(until);
        self.node.worker.reset();
    }

    /// Ends [`Protection::kill_all`]; those killed one by one stay so.
    pub fn revive_all(&self) {
        self.kill_all.revive();
    }

    /// Whether a limiter is killed, by its own switch or with all others.
    pub fn is_killed(&self, limiter: Limiter) -> bool {
        let now = self.clock.now();
        self.kill_all.is_killed(now) || self.kills[limiter.index()].is_killed(now)
    }

    #[inline]
    pub(super) fn acting(
        &self,
        limiter: Limiter,
        now: Timestamp,
        caller: Caller,
    ) -> Option<CallerMode> {
        if self.kills[limiter.index()].is_killed(now) {
            return None;
        }
        self.modes[limiter.index()].for_caller(|percent| caller.is_among(percent.get()))
    }

    pub(super) fn is_active(&self, limiter: Limiter, now: Timestamp) -> bool {
        let killed = self.kill_all.is_killed(now) || self.kills[limiter.index()].is_killed(now);
        !killed && self.mode(limiter) != Mode::Off
    }

    /// Whether the worker shedder lets anybody through whom it would refuse. Then it has
    /// to know what is in progress, to leave those out.
    #[inline]
    pub(super) fn watched(&self) -> bool {
        self.modes[Limiter::Worker.index()].is_shadow_for_some()
    }
}
