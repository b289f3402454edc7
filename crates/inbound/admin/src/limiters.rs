//! All limiters under one hand: what each does, and one switch that stops them all.
//!
//! Two of them are the engine's (rate, requests in flight), three are those that protect the node
//! (worker, fleet, gate). Operators know them by one list of names and switch them with the same
//! words. Everything here is a few words in memory: it works with the store, the rules and
//! whatever else down.

mod metrics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::{Clock, Engine, LimiterKind, Mode, Timestamp};
use tidegate_overload::{Limiter, Protection, SteadyClock};

pub use metrics::SWITCHBOARD_METRICS;

/// A limiter, by the name that operators know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimiterName {
    /// Requests over time: the rules.
    Rate,
    /// Requests in flight: the rules.
    Concurrency,
    /// The worker utilization shedder.
    Worker,
    /// The fleet usage shedder.
    Fleet,
    /// The inner gate.
    Gate,
}

impl LimiterName {
    /// All of them.
    pub const ALL: [LimiterName; 5] = [
        LimiterName::Rate,
        LimiterName::Concurrency,
        LimiterName::Worker,
        LimiterName::Fleet,
        LimiterName::Gate,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimiterName::Rate => "rate",
            LimiterName::Concurrency => "concurrency",
            LimiterName::Worker => "worker",
            LimiterName::Fleet => "fleet",
            LimiterName::Gate => "gate",
        }
    }

    /// The limiter of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        LimiterName::ALL.into_iter().find(|limiter| limiter.as_str() == word)
    }

    const fn part(self) -> Part {
        match self {
            LimiterName::Rate => Part::Rules(LimiterKind::Rate),
            LimiterName::Concurrency => Part::Rules(LimiterKind::Concurrency),
            LimiterName::Worker => Part::Node(Limiter::Worker),
            LimiterName::Fleet => Part::Node(Limiter::Fleet),
            LimiterName::Gate => Part::Node(Limiter::Gate),
        }
    }
}

/// Whose limiter it is.
#[derive(Clone, Copy, Debug)]
enum Part {
    Rules(LimiterKind),
    Node(Limiter),
}

/// What the engine lets be switched, whatever its store and clock are.
trait RuleLimiters: Send + Sync {
    fn limiter(&self, kind: LimiterKind) -> Mode;
    fn set_limiter(&self, kind: LimiterKind, mode: Mode);
    fn switch_off(&self, off: bool);
    fn is_switched_off(&self) -> bool;
}

impl<S: Send + Sync, C: Clock> RuleLimiters for Engine<S, C> {
    fn limiter(&self, kind: LimiterKind) -> Mode {
        Engine::limiter(self, kind)
    }

    fn set_limiter(&self, kind: LimiterKind, mode: Mode) {
        Engine::set_limiter(self, kind, mode);
    }

    fn switch_off(&self, off: bool) {
        Engine::switch_off(self, off);
    }

    fn is_switched_off(&self) -> bool {
        Engine::is_switched_off(self)
    }
}

/// Switches every limiter.
pub struct Switchboard {
    rules: Arc<dyn RuleLimiters>,
    protection: Option<Arc<Protection<SteadyClock>>>,
    /// What each limiter does when nobody has switched it, in the order of their names.
    usual: Mutex<[Mode; LimiterName::ALL.len()]>,
    /// When switches end by themselves.
    ends: Mutex<BTreeMap<Switched, Timestamp>>,
}

/// Something that can be switched for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Switched {
    /// Everything, off.
    Everything,
    /// One limiter.
    Limiter(LimiterName),
}

impl Switched {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Switched::Everything => "off",
            Switched::Limiter(limiter) => limiter.as_str(),
        }
    }
}

impl Switchboard {
    /// Over these limiters, as they are now.
    pub fn new<S, C>(
        engine: Arc<Engine<S, C>>,
        protection: Option<Arc<Protection<SteadyClock>>>,
    ) -> Self
    where
        S: Send + Sync + 'static,
        C: Clock,
    {
        let usual = [Mode::Off; LimiterName::ALL.len()];
        let (usual, ends) = (Mutex::new(usual), Mutex::default());
        let board = Switchboard { rules: engine, protection, usual, ends };
        let now = LimiterName::ALL.map(|limiter| board.mode(limiter).unwrap_or(Mode::Off));
        *board.usual.lock() = now;
        board
    }

    /// What protects the node, if anything does.
    pub const fn protection(&self) -> Option<&Arc<Protection<SteadyClock>>> {
        self.protection.as_ref()
    }

    /// What a limiter does; none when there is no such limiter here.
    pub fn mode(&self, limiter: LimiterName) -> Option<Mode> {
        Some(match limiter.part() {
            Part::Rules(kind) => self.rules.limiter(kind),
            Part::Node(limiter) => self.protection.as_ref()?.mode(limiter),
        })
    }

    /// Switches a limiter, until it is switched again. Says whether there is such a limiter here.
    pub fn set(&self, limiter: LimiterName, mode: Mode) -> bool {
        self.ends.lock().remove(&Switched::Limiter(limiter));
        match (limiter.part(), &self.protection) {
            (Part::Rules(kind), _) => self.rules.set_limiter(kind, mode),
            (Part::Node(limiter), Some(protection)) => protection.set_mode(limiter, mode),
            (Part::Node(_), None) => return false,
        }
        true
    }

    /// Says what a limiter does when nobody has switched it, and lets it do that. Says whether
    /// there is such a limiter here.
    pub fn configure(&self, limiter: LimiterName, mode: Mode) -> bool {
        if let Some(usual) = self.usual.lock().get_mut(limiter as usize) {
            *usual = mode;
        }
        self.set(limiter, mode)
    }

    /// Lets a limiter do what it does when nobody has switched it. Says what that is; none when
    /// there is no such limiter here.
    pub fn restore(&self, limiter: LimiterName) -> Option<Mode> {
        let usual = self.usual.lock().get(limiter as usize).copied()?;
        self.set(limiter, usual).then_some(usual)
    }

    /// Switches everything off, or on again: while off, every request passes.
    pub fn switch_off(&self, off: bool) {
        self.ends.lock().remove(&Switched::Everything);
        self.rules.switch_off(off);
        match (&self.protection, off) {
            (Some(protection), true) => protection.kill_all(None),
            (Some(protection), false) => protection.revive_all(),
            (None, _) => {}
        }
    }

    /// Whether everything is switched off.
    pub fn is_off(&self) -> bool {
        self.rules.is_switched_off()
    }

    /// Lets what was just switched last until then. [`Switchboard::expire`] ends it.
    pub fn end_at(&self, switched: Switched, end: Timestamp) {
        self.ends.lock().insert(switched, end);
    }

    /// What is switched for a while, and until when.
    pub fn ends(&self) -> Vec<(Switched, Timestamp)> {
        self.ends.lock().iter().map(|(switched, end)| (*switched, *end)).collect()
    }

    /// Takes back what has lasted long enough, and says what that was. The program that has the
    /// board calls it now and then.
    pub fn expire(&self, now: Timestamp) -> Vec<Switched> {
        let over: Vec<Switched> =
            self.ends().into_iter().filter(|(_, end)| *end <= now).map(|(what, _)| what).collect();
        for switched in &over {
            match switched {
                Switched::Everything => self.switch_off(false),
                Switched::Limiter(limiter) => _ = self.restore(*limiter),
            }
        }
        over
    }
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = LimiterName::ALL.map(|limiter| (limiter.as_str(), self.mode(limiter)));
        out.debug_map().entries(modes).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{MemoryConfig, MemoryStore, Percent, SystemClock};
    use tidegate_overload::ProtectionSettings;

    use super::*;

    fn board(protected: bool) -> Switchboard {
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        let engine = Arc::new(Engine::new(store, SystemClock::new()));
        let protection = protected.then(|| {
            let clock = SteadyClock::starting_at(Timestamp::from_secs(1));
            Arc::new(Protection::new(ProtectionSettings::new(8), clock))
        });
        Switchboard::new(engine, protection)
    }

    #[test]
    fn every_limiter_is_switched_and_goes_back_to_what_it_usually_does() {
        let board = board(true);
        for limiter in LimiterName::ALL {
            assert!(board.configure(limiter, Mode::Enforce(Percent::new(40))));
            assert!(board.set(limiter, Mode::Shadow));
            assert_eq!(board.mode(limiter), Some(Mode::Shadow));
            assert_eq!(board.restore(limiter), Some(Mode::Enforce(Percent::new(40))));
            assert_eq!(board.mode(limiter), Some(Mode::Enforce(Percent::new(40))));
            assert_eq!(LimiterName::from_word(limiter.as_str()), Some(limiter));
        }
    }

    #[test]
    fn without_protection_there_are_the_limiters_of_the_rules_alone() {
        let board = board(false);
        assert!(!board.set(LimiterName::Gate, Mode::Off));
        assert_eq!(board.mode(LimiterName::Worker), None);
        assert_eq!(board.restore(LimiterName::Fleet), None);
        assert!(board.set(LimiterName::Rate, Mode::Off));
    }

    #[test]
    fn what_is_switched_for_a_while_goes_back_when_that_is_over() {
        let board = board(true);
        let gate = Switched::Limiter(LimiterName::Gate);
        board.set(LimiterName::Gate, Mode::Off);
        board.end_at(gate, Timestamp::from_secs(10));
        board.switch_off(true);
        board.end_at(Switched::Everything, Timestamp::from_secs(20));
        assert_eq!(board.expire(Timestamp::from_secs(9)), []);
        assert_eq!(board.expire(Timestamp::from_secs(10)), [gate]);
        assert_eq!(board.mode(LimiterName::Gate), Some(Mode::ENFORCE));
        assert_eq!(board.expire(Timestamp::from_secs(20)), [Switched::Everything]);
        assert!(!board.is_off() && board.ends().is_empty());
    }

    #[test]
    fn who_switches_again_is_not_undone_by_an_end_before() {
        let board = board(true);
        board.set(LimiterName::Gate, Mode::Off);
        board.end_at(Switched::Limiter(LimiterName::Gate), Timestamp::from_secs(10));
        board.set(LimiterName::Gate, Mode::Shadow);
        assert_eq!(board.expire(Timestamp::MAX), []);
        assert_eq!(board.mode(LimiterName::Gate), Some(Mode::Shadow));
    }

    #[test]
    fn one_switch_stops_everything_and_lets_it_go_on_as_it_was() {
        let board = board(true);
        board.set(LimiterName::Gate, Mode::Shadow);
        board.switch_off(true);
        let protection = board.protection().unwrap();
        assert!(board.is_off() && protection.is_killed(Limiter::Worker));
        board.switch_off(false);
        assert!(!board.is_off() && !protection.is_killed(Limiter::Worker));
        assert_eq!(board.mode(LimiterName::Gate), Some(Mode::Shadow));
    }
}
