//! Changes made through the debug port: described for the log, counted for the metrics.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{Target, Timestamp};
use tidegate_words::words;

use super::audit::Undo;
use super::limiters::SwitchTarget;

/// One change, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    kind: ChangeKind,
    description: String,
    /// The mode before and after, if it is a switch.
    pub(super) modes: Option<(String, String)>,
    /// Why, as the operator wrote it.
    pub(super) reason: Option<String>,
    /// When it ends by itself.
    pub(super) until: Option<Timestamp>,
    /// What it switched, as one text.
    pub(super) target: Option<String>,
    /// The request that undoes it.
    pub(super) undo: Option<Undo>,
}

words! {
    /// The kinds of changes, in the order of [`ChangeKind::WORDS`].
    pub(super) enum ChangeKind {
        KillSwitch = "kill_switch",
        Limit = "limit",
        LimitBack = "limit_back",
        Limiter = "limiter",
        LimiterBack = "limiter_back",
        LogLevel = "log_level",
        Reload = "reload",
        SwitchesFile = "switches_file",
        TopCleared = "top_cleared",
    }
}

impl Change {
    pub(super) fn new(kind: ChangeKind, description: impl Into<String>) -> Self {
        let description = description.into();
        let (modes, reason, until) = (None, None, None);
        Change { kind, description, modes, reason, until, target: None, undo: None }
    }

    /// The end of a switch that was to end by itself.
    pub fn switch_ended(switched: SwitchTarget) -> Self {
        let (kind, what) = match switched {
            SwitchTarget::Everything => {
                (ChangeKind::KillSwitch, "everything is on again".to_owned())
            }
            SwitchTarget::Limiter(limiter) => {
                let name = limiter.as_str();
                (ChangeKind::LimiterBack, format!("limiter {name} is as configured again"))
            }
        };
        let change = Change::new(kind, format!("{what}: the time of its switch was over"));
        change.at(switched.as_str())
    }

    /// The end of a switch of limits that was to end by itself.
    pub fn limit_switch_ended(target: Target<'_>) -> Self {
        let state = "is as its rule file says again: the time of its switch was over";
        Change::of_limits(ChangeKind::LimitBack, target, state)
    }

    /// A switches file that was applied.
    pub fn switches_file(description: impl Into<String>) -> Self {
        Change::new(ChangeKind::SwitchesFile, description)
    }

    /// The same change with what it switched.
    pub(super) fn at(self, target: impl Into<String>) -> Self {
        Change { target: Some(target.into()), ..self }
    }

    /// The same change with the modes before and after, and the request that undoes it.
    pub(super) fn between(self, before: String, after: String, undo: Undo) -> Self {
        Change { modes: Some((before, after)), undo: Some(undo), ..self }
    }

    /// The same change with its reason, and when it ends.
    pub(super) fn because(self, reason: Option<String>, until: Option<Timestamp>) -> Self {
        Change { reason, until, ..self }
    }

    /// The change in words, without its reason.
    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// The word for its kind.
    pub(super) const fn kind(&self) -> &'static str {
        self.kind.as_str()
    }

    /// A change of the limits of a rule. Names are quoted: they come from a request and end in a log.
    pub(super) fn of_limits(kind: ChangeKind, target: Target<'_>, state: &str) -> Self {
        let Target { domain, path, limit } = target;
        let limit = limit.map(|limit| format!("limit {limit:?} of ")).unwrap_or_default();
        // Switches of a rule and of one of its limits replace each other.
        Change::new(kind, format!("{limit}rule {path:?} of domain {domain:?} {state}"))
            .at(format!("{domain:?} {path:?}"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)?;
        match &self.reason {
            Some(reason) => write!(f, ", because {reason:?}"),
            None => Ok(()),
        }
    }
}

/// The number of changes of each kind.
#[derive(Debug, Default)]
pub(super) struct ChangeCounts([AtomicU64; ChangeKind::WORDS.len()]);

impl ChangeCounts {
    pub(super) fn count(&self, change: &Change) {
        if let Some(count) = self.0.get(change.kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each label value with its count.
    pub(super) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        ChangeKind::WORDS.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_described_in_one_line_whatever_was_sent() {
        let target = Target { domain: "api", path: "user\nforged line", limit: None };
        let change = Change::of_limits(ChangeKind::Limit, target, "was switched off");
        assert_eq!(
            change.to_string(),
            r#"rule "user\nforged line" of domain "api" was switched off"#
        );
    }

    #[test]
    fn every_kind_is_counted_under_its_own_word() {
        let counts = ChangeCounts::default();
        counts.count(&Change::new(ChangeKind::KillSwitch, ""));
        counts.count(&Change::new(ChangeKind::TopCleared, ""));
        let counted: Vec<_> = counts.read().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("kill_switch", 1), ("top_cleared", 1)]);
        assert_eq!(ChangeKind::TopCleared as usize, ChangeKind::WORDS.len() - 1);
    }
}
