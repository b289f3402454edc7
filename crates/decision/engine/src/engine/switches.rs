//! Changing modes at run time: of one limit, of all limits of a kind, or everything off.

use std::sync::atomic::Ordering;

use tidegate_algorithms::Clock;
use tidegate_rules::{Mode, Rule, RuleLimit, Snapshot};

use super::Engine;
use crate::run_time_modes::{LimiterKind, RunTimeModes};

/// The limits whose mode is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The rule's path, as verdicts show it.
    pub path: &'a str,
    /// One limit by its name, or by its number from 1 if it has none; all limits of the rule if not given.
    pub limit: Option<&'a str>,
}

/// No limit matches a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no limit of domain `{domain}` is at `{path}`{}", .limit.as_deref().map(|name| format!(" with the name `{name}`")).unwrap_or_default())]
pub struct UnknownTarget {
    domain: String,
    path: String,
    limit: Option<String>,
}

impl<S, C: Clock> Engine<S, C> {
    /// Sets the mode of limits until [`Engine::unset_switch`]. Returns their number.
    ///
    /// # Errors
    /// When no limit matches.
    pub fn set_switch(&self, target: Target<'_>, mode: Mode) -> Result<usize, UnknownTarget> {
        self.switch_each(target, |set, limit| {
            set.limits.insert(limit.identity, mode);
        })
    }

    /// Restores the mode of limits to that of the rule files. Returns their number.
    ///
    /// # Errors
    /// When no limit matches.
    pub fn unset_switch(&self, target: Target<'_>) -> Result<usize, UnknownTarget> {
        self.switch_each(target, |set, limit| {
            set.limits.remove(&limit.identity);
        })
    }

    /// Sets the strongest mode of all limits of a kind: no rule of that kind does more. Limits that requests carry are
    /// not affected.
    pub fn set_limiter(&self, kind: LimiterKind, mode: Mode) {
        let mut set = self.run_time_modes.lock();
        set.set_most(kind, mode);
        let rules = self.rules.load();
        for limit in rules.snapshot().limits() {
            rules.set_mode(limit, set.of(limit));
        }
    }

    /// The strongest mode of limits of a kind.
    pub fn limiter(&self, kind: LimiterKind) -> Mode {
        self.run_time_modes.lock().most(kind)
    }

    /// Switches everything off, or on again. While off, every request is admitted without rules and without the store.
    pub fn switch_off(&self, off: bool) {
        self.switched_off.store(off, Ordering::Relaxed);
    }

    /// Whether everything is switched off.
    #[inline]
    pub fn is_switched_off(&self) -> bool {
        self.switched_off.load(Ordering::Relaxed)
    }

    /// Calls `visit` for every limit whose mode is set at run time, with that mode.
    pub fn for_each_switch(&self, mut visit: impl FnMut(&Snapshot, &Rule, &RuleLimit, Mode)) {
        let set = self.run_time_modes.lock();
        let rules = self.rules.load();
        for limit in rules.snapshot().limits() {
            let Some(mode) = set.limits.get(&limit.identity) else { continue };
            let Some(rule) = rules.snapshot().rule(limit.rule) else { continue };
            visit(rules.snapshot(), rule, limit, *mode);
        }
    }

    fn switch_each(
        &self,
        target: Target<'_>,
        mut change: impl FnMut(&mut RunTimeModes, &RuleLimit),
    ) -> Result<usize, UnknownTarget> {
        let mut set = self.run_time_modes.lock();
        let rules = self.rules.load();
        let snapshot = rules.snapshot();
        let mut switched = 0;
        for limit in snapshot.limits() {
            let Some(rule) = snapshot.rule(limit.rule) else { continue };
            if rule.domain() != target.domain || rule.path() != target.path {
                continue;
            }
            if target.limit.is_none_or(|name| name == snapshot.limit_name(rule, limit)) {
                change(&mut set, limit);
                rules.set_mode(limit, set.of(limit));
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
