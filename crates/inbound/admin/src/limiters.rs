//! The modes of all limiters, and one switch that stops them all.
//!
//! Two limiters are the engine's (rate, requests in flight), three protect the node (worker, fleet, gate), and one limits
//! connections before there is a request. Operators know them by one list of names and switch them with the same words. All state is a few words in memory, so switching
//! works while the store or the rules are unavailable.

mod metrics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::{Clock, Engine, LimiterKind, Mode, Target, Timestamp};
use tidegate_overload::{Limiter, Protection, SteadyClock};
use tidegate_words::words;

use super::change::Change;
pub use metrics::SWITCHBOARD_METRICS;

words! {
    /// The name of a limiter.
    #[derive(PartialOrd, Ord)]
    pub enum LimiterName {
        /// Requests over time: the rules.
        Rate = "rate",
        /// Requests in flight: the rules.
        Concurrency = "concurrency",
        /// The worker utilization shedder.
        Worker = "worker",
        /// The fleet usage shedder.
        Fleet = "fleet",
        /// The inner gate.
        Gate = "gate",
        /// Connections of one network, before TLS.
        Connection = "connection",
    }
}

impl LimiterName {
    const fn owner(self) -> LimiterOwner {
        match self {
            LimiterName::Rate => LimiterOwner::Engine(LimiterKind::Rate),
            LimiterName::Concurrency => LimiterOwner::Engine(LimiterKind::Concurrency),
            LimiterName::Worker => LimiterOwner::Protection(Limiter::Worker),
            LimiterName::Fleet => LimiterOwner::Protection(Limiter::Fleet),
            LimiterName::Gate => LimiterOwner::Protection(Limiter::Gate),
            LimiterName::Connection => LimiterOwner::Connections,
        }
    }
}

/// The owner of a limiter.
#[derive(Clone, Copy, Debug)]
enum LimiterOwner {
    Engine(LimiterKind),
    Protection(Limiter),
    Connections,
}

/// The limiter of connections, which belongs to the sockets.
pub trait ConnectionLimiter: Send + Sync {
    /// What it does.
    fn mode(&self) -> Mode;
    /// Sets what it does.
    fn set_mode(&self, mode: Mode);
    /// Pulls the kill switch, or releases it.
    fn switch_off(&self, off: bool);
}

/// The switches of an engine. Hides its store and clock.
trait RuleLimiters: Send + Sync {
    fn limiter(&self, kind: LimiterKind) -> Mode;
    fn set_limiter(&self, kind: LimiterKind, mode: Mode);
    fn switch_off(&self, off: bool);
    fn is_switched_off(&self) -> bool;
    /// Gives the limits of a target the modes of their files again.
    fn unset(&self, target: &LimitTarget);
}

/// The limits of a rule, or one of them: the target of a switch that can end by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitTarget {
    /// The domain.
    pub domain: String,
    /// The rule's path.
    pub path: String,
    /// One limit by its name or number; all of the rule if not given.
    pub limit: Option<String>,
}

impl LimitTarget {
    pub(crate) fn as_target(&self) -> Target<'_> {
        Target { domain: &self.domain, path: &self.path, limit: self.limit.as_deref() }
    }
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

    fn unset(&self, target: &LimitTarget) {
        // A limit that is gone has no mode to give back.
        let _ = Engine::unset_switch(self, target.as_target());
    }
}

/// Switches every limiter.
pub struct Switchboard {
    rules: Arc<dyn RuleLimiters>,
    protection: Option<Arc<Protection<SteadyClock>>>,
    connections: Option<Arc<dyn ConnectionLimiter>>,
    /// The configured mode of each limiter, in the order of [`LimiterName::ALL`].
    configured: Mutex<[Mode; LimiterName::ALL.len()]>,
    /// When switches end by themselves, if so.
    ends: Mutex<BTreeMap<SwitchTarget, Timestamp>>,
    /// When switches of limits end by themselves, if so.
    limit_ends: Mutex<BTreeMap<LimitTarget, Timestamp>>,
    /// Changes that no request made, until they are recorded.
    changes: Mutex<Vec<Change>>,
}

/// The most changes that wait to be recorded; they are every second.
const CHANGES_MAX: usize = 1_000;

/// The most switches of limits that end by themselves.
const LIMIT_ENDS_MAX: usize = 10_000;

/// The target of a switch that can end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchTarget {
    /// Everything, off.
    Everything,
    /// One limiter.
    Limiter(LimiterName),
}

impl SwitchTarget {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            SwitchTarget::Everything => "off",
            SwitchTarget::Limiter(limiter) => limiter.as_str(),
        }
    }
}

impl Switchboard {
    /// Switches these limiters; their modes now are the configured ones.
    pub fn new<S, C>(
        engine: Arc<Engine<S, C>>,
        protection: Option<Arc<Protection<SteadyClock>>>,
    ) -> Self
    where
        S: Send + Sync + 'static,
        C: Clock,
    {
        let configured = [Mode::Off; LimiterName::ALL.len()];
        let (configured, ends) = (Mutex::new(configured), Mutex::default());
        let (limit_ends, changes) = (Mutex::default(), Mutex::default());
        let board = Switchboard {
            rules: engine,
            protection,
            connections: None,
            configured,
            ends,
            limit_ends,
            changes,
        };
        board.take_configured();
        board
    }

    /// Switches this limiter of connections too.
    #[must_use]
    pub fn with_connections(self, connections: Arc<dyn ConnectionLimiter>) -> Self {
        let board = Switchboard { connections: Some(connections), ..self };
        board.take_configured();
        board
    }

    /// Takes the modes of now as the configured ones.
    fn take_configured(&self) {
        let now = LimiterName::ALL.map(|limiter| self.mode(limiter).unwrap_or(Mode::Off));
        *self.configured.lock() = now;
    }

    /// The protection of the node, if there is one.
    pub const fn protection(&self) -> Option<&Arc<Protection<SteadyClock>>> {
        self.protection.as_ref()
    }

    /// The mode of a limiter; [`None`] if there is no such limiter.
    pub fn mode(&self, limiter: LimiterName) -> Option<Mode> {
        Some(match limiter.owner() {
            LimiterOwner::Engine(kind) => self.rules.limiter(kind),
            LimiterOwner::Protection(limiter) => self.protection.as_ref()?.mode(limiter),
            LimiterOwner::Connections => self.connections.as_ref()?.mode(),
        })
    }

    /// Switches a limiter, until it is switched again. Returns whether there is such a limiter.
    pub fn set(&self, limiter: LimiterName, mode: Mode) -> bool {
        self.ends.lock().remove(&SwitchTarget::Limiter(limiter));
        match limiter.owner() {
            LimiterOwner::Engine(kind) => self.rules.set_limiter(kind, mode),
            LimiterOwner::Protection(limiter) => match &self.protection {
                Some(protection) => protection.set_mode(limiter, mode),
                None => return false,
            },
            LimiterOwner::Connections => match &self.connections {
                Some(connections) => connections.set_mode(mode),
                None => return false,
            },
        }
        true
    }

    /// Sets the configured mode of a limiter, and switches to it. Returns whether there is such a limiter.
    pub fn configure(&self, limiter: LimiterName, mode: Mode) -> bool {
        if let Some(configured) = self.configured.lock().get_mut(limiter as usize) {
            *configured = mode;
        }
        self.set(limiter, mode)
    }

    /// Switches a limiter back to its configured mode, and returns that; [`None`] if there is no such limiter.
    pub fn restore(&self, limiter: LimiterName) -> Option<Mode> {
        let configured = self.configured.lock().get(limiter as usize).copied()?;
        self.set(limiter, configured).then_some(configured)
    }

    /// The configured mode of a limiter.
    pub fn configured(&self, limiter: LimiterName) -> Mode {
        self.configured.lock().get(limiter as usize).copied().unwrap_or(Mode::Off)
    }

    /// Sets when a switch of limits ends by itself; [`None`] for never. Returns whether there was room for it.
    pub fn end_limit_at(&self, target: LimitTarget, end: Option<Timestamp>) -> bool {
        let mut ends = self.limit_ends.lock();
        match end {
            Some(end) if ends.len() < LIMIT_ENDS_MAX || ends.contains_key(&target) => {
                ends.insert(target, end);
                true
            }
            Some(_) => false,
            None => {
                ends.remove(&target);
                true
            }
        }
    }

    /// The switches of limits that end by themselves, and when.
    pub fn limit_ends(&self) -> Vec<(LimitTarget, Timestamp)> {
        self.limit_ends.lock().iter().map(|(target, end)| (target.clone(), *end)).collect()
    }

    /// Takes back the switches of limits that have expired, and returns them. The program calls it periodically.
    pub fn expire_limits(&self, now: Timestamp) -> Vec<LimitTarget> {
        let mut ends = self.limit_ends.lock();
        let over: Vec<LimitTarget> =
            ends.iter().filter(|(_, end)| **end <= now).map(|(target, _)| target.clone()).collect();
        for target in &over {
            ends.remove(target);
            self.rules.unset(target);
            self.report(Change::limit_switch_ended(target.as_target()));
        }
        over
    }

    /// When the switch of this target ends by itself, if so.
    pub(crate) fn limit_end(&self, target: &LimitTarget) -> Option<Timestamp> {
        self.limit_ends.lock().get(target).copied()
    }

    /// When this switch ends by itself, if so.
    pub(crate) fn end_of(&self, switched: SwitchTarget) -> Option<Timestamp> {
        self.ends.lock().get(&switched).copied()
    }

    /// Keeps a change that no request made, so that the debug port records it.
    pub fn report(&self, change: Change) {
        let mut changes = self.changes.lock();
        if changes.len() < CHANGES_MAX {
            changes.push(change);
        }
    }

    /// The changes since the last call that no request made.
    pub(crate) fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock())
    }

    /// Switches everything off, or on again: while off, every request passes.
    pub fn switch_off(&self, off: bool) {
        self.ends.lock().remove(&SwitchTarget::Everything);
        self.rules.switch_off(off);
        match (&self.protection, off) {
            (Some(protection), true) => protection.kill_all(None),
            (Some(protection), false) => protection.revive_all(),
            (None, _) => {}
        }
        if let Some(connections) = &self.connections {
            connections.switch_off(off);
        }
    }

    /// Whether everything is switched off.
    pub fn is_off(&self) -> bool {
        self.rules.is_switched_off()
    }

    /// Sets when a switch ends by itself. [`Switchboard::expire`] ends it.
    pub fn end_at(&self, switched: SwitchTarget, end: Timestamp) {
        self.ends.lock().insert(switched, end);
    }

    /// The switches that end by themselves, and when.
    pub fn ends(&self) -> Vec<(SwitchTarget, Timestamp)> {
        self.ends.lock().iter().map(|(switched, end)| (*switched, *end)).collect()
    }

    /// Takes back the switches that have expired, and returns them. The program calls it periodically.
    pub fn expire(&self, now: Timestamp) -> Vec<SwitchTarget> {
        let over: Vec<SwitchTarget> =
            self.ends().into_iter().filter(|(_, end)| *end <= now).map(|(what, _)| what).collect();
        for switched in &over {
            match switched {
                SwitchTarget::Everything => self.switch_off(false),
                SwitchTarget::Limiter(limiter) => _ = self.restore(*limiter),
            }
            self.report(Change::switch_ended(*switched));
        }
        over
    }
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = LimiterName::ALL.map(|limiter| (limiter.as_str(), self.mode(limiter)));
        f.debug_map().entries(modes).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{MemoryConfig, MemoryStore, Percent, SystemClock};
    use tidegate_overload::ProtectionSettings;

    use super::*;

    /// A limiter of connections that only has a mode.
    struct TestConnections(Mutex<(Mode, bool)>);

    impl ConnectionLimiter for TestConnections {
        fn mode(&self) -> Mode {
            self.0.lock().0
        }

        fn set_mode(&self, mode: Mode) {
            self.0.lock().0 = mode;
        }

        fn switch_off(&self, off: bool) {
            self.0.lock().1 = off;
        }
    }

    #[test]
    fn connections_are_switched_and_killed_as_every_limiter_is() {
        let connections = Arc::new(TestConnections(Mutex::new((Mode::Shadow, false))));
        let board = board(false).with_connections(Arc::clone(&connections) as Arc<_>);
        assert_eq!(board.configured(LimiterName::Connection), Mode::Shadow);
        assert!(board.set(LimiterName::Connection, Mode::ENFORCE));
        assert_eq!(board.mode(LimiterName::Connection), Some(Mode::ENFORCE));
        board.switch_off(true);
        assert!(connections.0.lock().1);
        board.switch_off(false);
        assert!(!connections.0.lock().1);
        assert_eq!(board.restore(LimiterName::Connection), Some(Mode::Shadow));
    }

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
    fn every_limiter_is_switched_and_goes_back_to_its_configured_mode() {
        let board = board(true);
        for limiter in LimiterName::ALL.into_iter().filter(|one| *one != LimiterName::Connection) {
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
    fn a_temporary_switch_goes_back_when_it_expires() {
        let board = board(true);
        let gate = SwitchTarget::Limiter(LimiterName::Gate);
        board.set(LimiterName::Gate, Mode::Off);
        board.end_at(gate, Timestamp::from_secs(10));
        board.switch_off(true);
        board.end_at(SwitchTarget::Everything, Timestamp::from_secs(20));
        assert_eq!(board.expire(Timestamp::from_secs(9)), []);
        assert_eq!(board.expire(Timestamp::from_secs(10)), [gate]);
        assert_eq!(board.mode(LimiterName::Gate), Some(Mode::ENFORCE));
        assert_eq!(board.expire(Timestamp::from_secs(20)), [SwitchTarget::Everything]);
        assert!(!board.is_off() && board.ends().is_empty());
    }

    #[test]
    fn a_later_switch_is_not_undone_by_the_end_of_an_earlier_one() {
        let board = board(true);
        board.set(LimiterName::Gate, Mode::Off);
        board.end_at(SwitchTarget::Limiter(LimiterName::Gate), Timestamp::from_secs(10));
        board.set(LimiterName::Gate, Mode::Shadow);
        assert_eq!(board.expire(Timestamp::MAX), []);
        assert_eq!(board.mode(LimiterName::Gate), Some(Mode::Shadow));
    }

    #[test]
    fn a_temporary_switch_of_limits_ends_once_even_if_the_limit_is_gone() {
        let board = board(false);
        let target = LimitTarget { domain: "api".into(), path: "user".into(), limit: None };
        assert!(board.end_limit_at(target.clone(), Some(Timestamp::from_secs(10))));
        assert_eq!(board.expire_limits(Timestamp::from_secs(9)), []);
        assert_eq!(board.expire_limits(Timestamp::from_secs(10)), [target]);
        assert!(board.limit_ends().is_empty());
    }

    #[test]
    fn the_kill_switch_stops_everything_and_restores_the_modes_before() {
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
