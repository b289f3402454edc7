//! Modes and kill switches of the limiters, changed while the node runs.

use tidegate_algorithms::{CallerMode, Clock, Mode, Timestamp};

use super::Protection;
use crate::category::Caller;
use crate::mode::Limiter;

impl<C: Clock> Protection<C> {
    /// Changes the mode of a limiter. A worker shedder starts by admitting everything.
    pub fn set_mode(&self, limiter: Limiter, mode: Mode) {
        let before = self.modes[limiter.index()].set(mode);
        let same = std::mem::discriminant(&before) == std::mem::discriminant(&mode);
        if limiter == Limiter::Worker && !same {
            self.node.worker.reset();
        }
    }

    /// The mode of a limiter, ignoring kill switches.
    pub fn mode(&self, limiter: Limiter) -> Mode {
        self.modes[limiter.index()].read()
    }

    /// Stops a limiter from refusing, until `until` or [`Protection::revive`]. Slots are freed
    /// as usual.
    pub fn kill(&self, limiter: Limiter, until: Option<Timestamp>) {
        self.kills[limiter.index()].kill(until);
        if limiter == Limiter::Worker {
            self.node.worker.reset();
        }
    }

    /// Ends [`Protection::kill`]. A worker shedder starts by admitting everything.
    pub fn revive(&self, limiter: Limiter) {
        self.kills[limiter.index()].revive();
    }

    /// Kills all limiters at once.
    pub fn kill_all(&self, until: Option<Timestamp>) {
        self.kill_all.kill(until);
        self.node.worker.reset();
    }

    /// Ends [`Protection::kill_all`]; limiters killed individually stay killed.
    pub fn revive_all(&self) {
        self.kill_all.revive();
    }

    /// Whether a limiter is killed, by its own switch or the common one.
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

    /// Whether the worker shedder admits some requests that it would refuse. It then counts work
    /// in progress, to leave those requests out of its utilization.
    #[inline]
    pub(super) fn watched(&self) -> bool {
        self.modes[Limiter::Worker.index()].is_shadow_for_some()
    }
}
