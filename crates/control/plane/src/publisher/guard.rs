//! Guards: what a new content must not do by itself.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_words::words;

/// More rows than this have to come before growth is suspicious.
const GROWTH_MIN: u64 = 1_000;

words! {
    /// Why a content is not published.
    pub enum Guard {
        /// No documents are left.
        Empty = "empty",
        /// More than a fifth of the documents, rows or API keys are gone.
        Shrunk = "shrunk",
        /// There are more than twice as many rows or API keys as before.
        Doubled = "doubled",
        /// It does not fit into the cell.
        TooLarge = "too_large",
        /// The rules do not compile, or a field is blank.
        Invalid = "invalid",
        /// What is published already is newer than the database.
        Behind = "behind",
    }
}

impl Guard {
    /// Whether a person may overrule it.
    pub const fn can_be_overruled(self) -> bool {
        matches!(self, Guard::Empty | Guard::Shrunk | Guard::Doubled)
    }

    /// The words of those that a person may overrule.
    pub fn overrulable() -> Vec<&'static str> {
        let guards = Guard::ALL.into_iter().filter(|guard| guard.can_be_overruled());
        guards.map(Guard::as_str).collect()
    }
}

/// How much a content has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentCounts {
    /// Rule documents and plans.
    pub documents: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// API keys.
    pub keys: u64,
}

/// Guards that a person has overruled for the versions from this one, until one is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct AllowedGuards {
    version: u64,
    guards: Vec<String>,
}

/// A refused content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) guard: Guard,
    pub(super) version: u64,
    pub(super) reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "version {} is not published ({}): {}",
            self.version,
            self.guard.as_str(),
            self.reason
        )?;
        if self.guard.can_be_overruled() {
            write!(f, "; if that is meant, `tidegate control allow {}`", self.guard.as_str())?;
        }
        Ok(())
    }
}

/// Compares a content with the last one that was published. The guard that stops it, and why.
pub fn check_growth(now: &ContentCounts, before: &ContentCounts) -> Option<(Guard, String)> {
    if now.documents == 0 && before.documents > 0 {
        return Some((Guard::Empty, format!("all {} documents are gone", before.documents)));
    }
    let kinds = [
        ("documents", now.documents, before.documents),
        ("rows", now.rows, before.rows),
        ("API keys", now.keys, before.keys),
    ];
    for (what, now, before) in kinds {
        // A few are changed by hand; a fifth of many is an accident.
        if before >= 10 && now.saturating_mul(5) < before.saturating_mul(4) {
            return Some((Guard::Shrunk, format!("of {before} {what} {now} are left")));
        }
        let doubled = now > before.saturating_mul(2) && now - before > GROWTH_MIN;
        if doubled && what != "documents" && before > 0 {
            return Some((Guard::Doubled, format!("{before} {what} have become {now}")));
        }
    }
    None
}

/// The refusal of a content, unless a person has overruled the guard.
pub(super) fn check(
    version: u64,
    now: &ContentCounts,
    before: &ContentCounts,
    allowed: &AllowedGuards,
) -> Option<Refusal> {
    let (guard, reason) = check_growth(now, before)?;
    let is_allowed =
        allowed.version <= version && allowed.guards.iter().any(|word| word == guard.as_str());
    (!is_allowed).then_some(Refusal { guard, version, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(documents: u64, rows: u64) -> ContentCounts {
        ContentCounts { documents, rows, keys: 0 }
    }

    #[test]
    fn an_emptied_or_shrunken_content_and_a_doubled_one_are_refused() {
        let before = counts(3, 10_000);
        let guard = |now| check_growth(&now, &before).map(|(guard, _)| guard);
        assert_eq!(guard(counts(0, 10_000)), Some(Guard::Empty));
        assert_eq!(guard(counts(3, 7_999)), Some(Guard::Shrunk));
        assert_eq!(guard(counts(3, 8_000)), None);
        assert_eq!(guard(counts(3, 20_000)), None);
        assert_eq!(guard(counts(3, 20_001)), Some(Guard::Doubled));
        assert_eq!(guard(counts(1, 10_000)), None, "a few documents are changed by hand");
    }

    #[test]
    fn a_first_import_and_small_tables_grow_freely() {
        assert_eq!(check_growth(&counts(1, 1_000_000), &counts(1, 0)), None);
        assert_eq!(check_growth(&counts(1, 1_000), &counts(1, 3)), None);
    }

    #[test]
    fn an_overruled_guard_lets_pass_only_what_it_is_about() {
        let allowed = AllowedGuards { version: 7, guards: vec!["shrunk".to_owned()] };
        let before = counts(3, 10_000);
        assert_eq!(check(7, &counts(3, 10), &before, &allowed), None);
        assert_eq!(check(6, &counts(3, 10), &before, &allowed).unwrap().guard, Guard::Shrunk);
        assert_eq!(check(7, &counts(0, 10), &before, &allowed).unwrap().guard, Guard::Empty);
    }
}
