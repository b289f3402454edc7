//! Modes and kill switches: what each limiter may do, changed while it runs.
//!
//! A mode is one word and a kill switch another; the hot path reads them and nothing else, so
//! they work with everything else down. Killing stops new refusals. Whatever is
//! held is given back as before.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::Timestamp;

use crate::category::Caller;
use crate::worker_shedder::Acting;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// The worker utilization shedder.
    Worker,
    /// The fleet usage shedder.
    Fleet,
    /// The inner gate, and deadlines that it cannot meet.
    Gate,
}

impl Limiter {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Limiter; 3] = [Limiter::Worker, Limiter::Fleet, Limiter::Gate];

    /// The name in configuration and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Limiter::Worker => "worker",
            Limiter::Fleet => "fleet",
            Limiter::Gate => "gate",
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Limiter::Worker => 0,
            Limiter::Fleet => 1,
            Limiter::Gate => 2,
        }
    }
}

/// A percentage, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// Everybody.
    pub const ALL: Percent = Percent(100);

    /// A percentage; more than 100 is 100.
    pub const fn new(percent: u8) -> Self {
        Percent(if percent > 100 { 100 } else { percent })
    }

    /// The percentage as a number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What a limiter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Off,
    /// Says what it would refuse, and refuses nobody.
    Dark,
    /// Refuses, among this percentage of callers. For the others it is dark. A caller
    /// is always among them or never.
    Enforce(Percent),
}

impl Mode {
    /// Refuses whoever is to be refused.
    pub const ENFORCE: Mode = Mode::Enforce(Percent::ALL);

    const fn to_word(self) -> u16 {
        match self {
            Mode::Off => 0,
            Mode::Dark => 1,
            Mode::Enforce(percent) => 2 + percent.0 as u16,
        }
    }

    fn from_word(word: u16) -> Self {
        match word {
            0 => Mode::Off,
            1 => Mode::Dark,
            more => Mode::Enforce(Percent::new(u8::try_from(more - 2).unwrap_or(100))),
        }
    }
}

/// The words of modes that spare nobody: all are refused who are to be, or nothing is asked.
const ENFORCE: u16 = Mode::ENFORCE.to_word();
const OFF: u16 = Mode::Off.to_word();

/// A mode that can be changed at any time.
#[derive(Debug)]
pub(crate) struct ModeCell(AtomicU16);

impl ModeCell {
    pub(crate) fn new(mode: Mode) -> Self {
        ModeCell(AtomicU16::new(mode.to_word()))
    }

    #[inline]
    pub(crate) fn read(&self) -> Mode {
        Mode::from_word(self.0.load(Relaxed))
    }

    /// Sets the mode and says what it was.
    pub(crate) fn set(&self, mode: Mode) -> Mode {
        Mode::from_word(self.0.swap(mode.to_word(), Relaxed))
    }

    /// Whether the limiter lets anybody through whom it would refuse.
    #[inline]
    pub(crate) fn spares_some(&self) -> bool {
        !matches!(self.0.load(Relaxed), ENFORCE | OFF)
    }

    /// How the limiter acts on this caller's request; `None` when it is off.
    #[inline]
    pub(crate) fn acting(&self, caller: Caller) -> Option<Acting> {
        let word = self.0.load(Relaxed);
        // What nearly all limiters do, told by the word as it is.
        if word == ENFORCE {
            return Some(Acting::Enforcing);
        }
        match Mode::from_word(word) {
            Mode::Off => None,
            Mode::Dark => Some(Acting::Watching),
            Mode::Enforce(percent) if caller.is_among(percent.0) => Some(Acting::Enforcing),
            Mode::Enforce(_) => Some(Acting::Watching),
        }
    }
}

/// Switches something off until it is switched on again, or until a moment.
#[derive(Debug, Default)]
pub(crate) struct KillSwitch {
    /// Zero when not killed, the end of time when killed for good.
    until: AtomicU64,
}

impl KillSwitch {
    pub(crate) fn kill(&self, until: Option<Timestamp>) {
        self.until.store(until.map_or(u64::MAX, Timestamp::as_nanos), Relaxed);
    }

    pub(crate) fn revive(&self) {
        self.until.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn is_killed(&self, now: Timestamp) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && (until == u64::MAX || now.as_nanos() < until)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::Nanos;

    use super::*;

    #[test]
    fn a_mode_comes_back_as_it_was_set() {
        let cell = ModeCell::new(Mode::Off);
        for percent in 0..=100 {
            let mode = Mode::Enforce(Percent::new(percent));
            cell.set(mode);
            assert_eq!(cell.read(), mode);
        }
        assert_eq!(cell.set(Mode::Dark), Mode::ENFORCE);
        assert_eq!(cell.set(Mode::Off), Mode::Dark);
    }

    #[test]
    fn a_percentage_enforces_for_the_same_callers_always_and_watches_the_others() {
        let cell = ModeCell::new(Mode::Enforce(Percent::new(30)));
        let mut enforced = 0;
        for number in 0..1000u32 {
            let caller = Caller::named(number.to_string());
            let acting = cell.acting(caller);
            assert_eq!(acting, cell.acting(caller));
            enforced += u32::from(acting == Some(Acting::Enforcing));
        }
        assert!((250..350).contains(&enforced));
    }

    #[test]
    fn a_kill_ends_at_its_moment_or_when_it_is_taken_back() {
        let now = Timestamp::from_secs(100);
        let switch = KillSwitch::default();
        assert!(!switch.is_killed(now));
        switch.kill(Some(now.after(Nanos::from_secs(1))));
        assert!(switch.is_killed(now));
        assert!(!switch.is_killed(now.after(Nanos::from_secs(1))));
        switch.kill(None);
        assert!(switch.is_killed(Timestamp::MAX));
        switch.revive();
        assert!(!switch.is_killed(now));
    }
}
