//! What was changed through the debug door.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::Mode;

use super::limiters::LimiterName;

/// One change, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Everything was switched off, or on again.
    Kill {
        /// Whether it is off now.
        off: bool,
    },
    /// Limits were switched.
    Limit {
        /// The domain.
        domain: String,
        /// The rule's path.
        path: String,
        /// One limit of the rule; all of them when not given.
        limit: Option<String>,
        /// What they were switched to.
        mode: Mode,
    },
    /// The rule file decides again.
    LimitBack {
        /// The domain.
        domain: String,
        /// The rule's path.
        path: String,
        /// One limit of the rule; all of them when not given.
        limit: Option<String>,
    },
    /// A limiter was switched.
    Limiter {
        /// Which.
        limiter: LimiterName,
        /// What it was switched to.
        mode: Mode,
    },
    /// A limiter does what the configuration says again.
    LimiterBack {
        /// Which.
        limiter: LimiterName,
        /// What that is.
        mode: Mode,
    },
    /// Something else is logged.
    LogLevel {
        /// What.
        level: String,
    },
    /// The rules, and the gateway's document, are to be read again.
    Reload,
    /// The most refused are counted anew.
    TopCleared,
}

impl Change {
    /// The words for each kind, as metrics have them.
    pub(super) const WORDS: [&'static str; 8] = [
        "kill_switch",
        "limit",
        "limit_back",
        "limiter",
        "limiter_back",
        "log_level",
        "reload",
        "top_cleared",
    ];

    /// The place of its word.
    const fn place(&self) -> usize {
        match self {
            Change::Kill { .. } => 0,
            Change::Limit { .. } => 1,
            Change::LimitBack { .. } => 2,
            Change::Limiter { .. } => 3,
            Change::LimiterBack { .. } => 4,
            Change::LogLevel { .. } => 5,
            Change::Reload => 6,
            Change::TopCleared => 7,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Kill { off: true } => out.write_str("everything was switched off"),
            Change::Kill { off: false } => out.write_str("everything was switched on"),
            Change::Limit { domain, path, limit, mode } => {
                let enforce_percent = mode.enforce_percent();
                write_target(out, domain, path, limit.as_deref())?;
                write!(out, " was switched to {}, {enforce_percent} % enforced", mode.as_str())
            }
            Change::LimitBack { domain, path, limit } => {
                write_target(out, domain, path, limit.as_deref())?;
                out.write_str(" is as its rule file says again")
            }
            Change::Limiter { limiter, mode } => {
                write!(out, "limiter {} was switched to {mode}", limiter.as_str())
            }
            Change::LimiterBack { limiter, mode } => {
                write!(out, "limiter {} is as configured again: {mode}", limiter.as_str())
            }
            Change::LogLevel { level } => write!(out, "the log level was set to {level:?}"),
            Change::Reload => {
                out.write_str("rules and the gateway's document are to be read again")
            }
            Change::TopCleared => out.write_str("the most refused are counted anew"),
        }
    }
}

/// Quoted, since the words come from a request and end in a log.
fn write_target(
    out: &mut fmt::Formatter<'_>,
    domain: &str,
    path: &str,
    limit: Option<&str>,
) -> fmt::Result {
    match limit {
        Some(limit) => write!(out, "limit {limit:?} of rule {path:?} of domain {domain:?}"),
        None => write!(out, "rule {path:?} of domain {domain:?}"),
    }
}

/// How often each kind of change was made.
#[derive(Debug, Default)]
pub(super) struct ChangeCounts([AtomicU64; Change::WORDS.len()]);

impl ChangeCounts {
    pub(super) fn count(&self, change: &Change) {
        if let Some(count) = self.0.get(change.place()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each word with its count.
    pub(super) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Change::WORDS
            .into_iter()
            .zip(&self.0)
            .map(|(word, count)| (word, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_said_in_one_line_whatever_was_sent() {
        let mode = Mode::Shadow;
        let change = Change::Limit {
            domain: "api".into(),
            path: "user\nforged line".into(),
            limit: None,
            mode,
        };
        let said = change.to_string();
        assert_eq!(
            said,
            r#"rule "user\nforged line" of domain "api" was switched to shadow, 100 % enforced"#
        );
    }
}
