//! Switching limits while the engine runs: one limit, a whole limiter, or everything.

use std::sync::atomic::Ordering;

use tidegate_algorithms::Clock;
use tidegate_rules::{Mode, Rule, RuleLimit, Snapshot};

use super::Engine;
use crate::switch::{LimiterKind, Switches};

/// Which limits a run-time switch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The rule's path, as verdicts show it.
    pub path: &'a str,
    /// One limit by its name, or by its place from 1 if it has none; all limits
    /// of the rule when not given.
    pub limit: Option<&'a str>,
}

/// No limit is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no limit of domain `{domain}` is at `{path}`{}", .limit.as_deref().map(|name| format!(" with the name `{name}`")).unwrap_or_default())]
pub struct UnknownTarget {
    domain: String,
    path: String,
    limit: Option<String>,
}

impl<S, C: Clock> Engine<S, C> {
    /// Switches limits at run time, until [`Engine::unset_switch`]. Returns how many.
    ///
    /// # Errors
    /// When no limit is called that.
    pub fn set_switch(&self, target: Target<'_>, mode: Mode) -> Result<usize, UnknownTarget> {
        self.switch_each(target, |set, limit| {
            set.limits.insert(limit.identity, mode);
        })
    }

    /// Takes run-time switches back: the rule files decide again. Returns for how many limits.
    ///
    /// # Errors
    /// When no limit is called that.
    pub fn unset_switch(&self, target: Target<'_>) -> Result<usize, UnknownTarget> {
        self.switch_each(target, |set, limit| {
            set.limits.remove(&limit.identity);
        })
    }

    /// Switches a whole limiter at run time: no limit of its kind does more than this, whatever
    /// its rule says. Limits that requests bring along are not switched.
    pub fn set_limiter(&self, kind: LimiterKind, mode: Mode) {
        let mut set = self.set.lock();
        *set.most_mut(kind) = mode;
        let loaded = self.loaded.load();
        for limit in loaded.snapshot().limits() {
            loaded.set_switch(limit, set.of(limit));
        }
    }

    /// The most that limits of a kind do.
    pub fn limiter(&self, kind: LimiterKind) -> Mode {
        self.set.lock().most(kind)
    }

    /// Switches everything off, or on again: while off, every request is
    /// admitted at once, without rules and without the store.
    pub fn switch_off(&self, off: bool) {
        self.switched_off.store(off, Ordering::Relaxed);
    }

    /// Whether everything is switched off.
    #[inline]
    pub fn is_switched_off(&self) -> bool {
        self.switched_off.load(Ordering::Relaxed)
    }

    /// Tells every limit that is switched at run time, and to what.
    pub fn for_each_switch(&self, mut tell: impl FnMut(&Snapshot, &Rule, &RuleLimit, Mode)) {
        let set = self.set.lock();
        let loaded = self.loaded.load();
        for limit in loaded.snapshot().limits() {
            let Some(mode) = set.limits.get(&limit.identity) else { continue };
            let Some(rule) = loaded.snapshot().rule(limit.rule) else { continue };
            tell(loaded.snapshot(), rule, limit, *mode);
        }
    }

    fn switch_each(
        &self,
        target: Target<'_>,
        mut change: impl FnMut(&mut Switches, &RuleLimit),
    ) -> Result<usize, UnknownTarget> {
        let mut set = self.set.lock();
        let loaded = self.loaded.load();
        let snapshot = loaded.snapshot();
        let mut switched = 0;
        for limit in snapshot.limits() {
            let Some(rule) = snapshot.rule(limit.rule) else { continue };
            if rule.domain() != target.domain || rule.path() != target.path {
                continue;
            }
            if target.limit.is_none_or(|name| name == snapshot.limit_name(rule, limit)) {
                change(&mut set, limit);
                loaded.set_switch(limit, set.of(limit));
                switched += 1;
            }
        }
        if switched == 0 {
            return Err(UnknownTarget {
                domain: target.domain.to_owned(),
                path: target.path.to_owned(),
                limit: target.limit.map(ToOwned::to_owned),
            });
        }
        Ok(switched)
    }
}
