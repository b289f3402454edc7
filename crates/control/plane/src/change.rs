//! Changes of entries, and what comes of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{EntryKey, EntryKind, EntryView, WHY_BYTES_MAX, parse_time};
use crate::error::InputProblem;

/// The most changes of one set.
pub const CHANGES_MAX: usize = 100_000;
/// The last second that an entry may end at: the year 9999.
const UNTIL_MAX: u64 = 253_402_300_799;

/// What the caller knows about the entry that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing: the set as a whole has a base.
    Anything,
    /// It does not exist.
    Absent,
    /// It is as of this version.
    Version(u64),
}

/// What happens to an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeAction {
    /// It gets this body.
    Set {
        /// The body.
        body: Value,
        /// When it ends by itself, in seconds since the epoch.
        until: Option<u64>,
        /// The team that may change it; `None` keeps it, or takes that of the author.
        owner: Option<String>,
    },
    /// It is removed.
    Remove,
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which one.
    pub key: EntryKey,
    /// What the caller knows about it.
    pub expectation: Expectation,
    /// What happens.
    pub action: ChangeAction,
}

impl Change {
    /// Sets an entry, whatever it was.
    pub fn set(key: EntryKey, body: Value) -> Self {
        let action = ChangeAction::Set { body, until: None, owner: None };
        Change { key, expectation: Expectation::Anything, action }
    }

    /// Removes an entry, whatever it was.
    pub const fn remove(key: EntryKey) -> Self {
        Change { key, expectation: Expectation::Anything, action: ChangeAction::Remove }
    }

    /// Lets it end by itself.
    #[must_use]
    pub fn until(mut self, seconds: u64) -> Self {
        if let ChangeAction::Set { until, .. } = &mut self.action {
            *until = Some(seconds);
        }
        self
    }

    /// Demands a state of the entry.
    #[must_use]
    pub const fn expecting(mut self, expectation: Expectation) -> Self {
        self.expectation = expectation;
        self
    }
}

/// A change in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeView {
    /// `document`, `plan`, `client`, `row`, `switch` or `key`.
    pub kind: String,
    /// A domain or a table.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collection: String,
    /// The name.
    pub name: String,
    /// The body; absent if the entry is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// When it ends by itself: RFC 3339, or a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The team that may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Removes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
    /// The version that the entry must have; 0 if it must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
}

impl ChangeView {
    /// Sets the entry as another database has it.
    pub fn of_entry(entry: EntryView) -> Self {
        ChangeView {
            kind: entry.kind,
            collection: entry.collection,
            name: entry.name,
            body: Some(entry.body),
            until: entry.until,
            owner: Some(entry.owner).filter(|owner| !owner.is_empty()),
            remove: false,
            if_version: None,
        }
    }

    /// The change, with its place in messages.
    ///
    /// # Errors
    /// When a field is wrong.
    pub fn read(self, place: &str) -> Result<Change, InputProblem> {
        let kind = EntryKind::from_word(&self.kind).ok_or_else(|| {
            let words = EntryKind::WORDS.join(", ");
            InputProblem::new(format!("{place}.kind"), format!("expected one of {words}"))
        })?;
        let key = EntryKey { kind, collection: self.collection, name: self.name };
        key.check(place)?;
        let until = self.until.as_deref().map(|text| read_until(text, place)).transpose()?;
        let action = match (self.body, self.remove) {
            (Some(body), false) => ChangeAction::Set { body, until, owner: self.owner },
            (None, true) => ChangeAction::Remove,
            (Some(_), true) | (None, false) => {
                let what = "expected either a body or `\"remove\": true`";
                return Err(InputProblem::new(place, what));
            }
        };
        let expectation = match self.if_version {
            None => Expectation::Anything,
            Some(0) => Expectation::Absent,
            Some(version) => Expectation::Version(version),
        };
        Ok(Change { key, expectation, action })
    }
}

/// Reads when an entry ends.
pub(crate) fn read_until(text: &str, place: &str) -> Result<u64, InputProblem> {
    parse_time(text).filter(|until| *until <= UNTIL_MAX).ok_or_else(|| {
        let problem = InputProblem::new(format!("{place}.until"), "this is no time");
        problem.hint("write it as 2027-01-31 or 2027-01-31T12:00:00Z")
    })
}

/// Who changes something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The name of the token.
    pub name: String,
    /// The team whose entries it may change; empty for all.
    pub owner: String,
}

impl Author {
    /// An author who may change everything.
    pub fn named(name: impl Into<String>) -> Self {
        Author { name: name.into(), owner: String::new() }
    }
}

/// Changes that are applied together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSet {
    /// The changes, of different entries.
    pub changes: Vec<Change>,
    /// The newest version must be this.
    pub base: Option<u64>,
    /// Who.
    pub author: Author,
    /// Why.
    pub why: String,
    /// Where it was asked for.
    pub ticket: String,
    /// The version whose content these changes bring back.
    pub restored: Option<u64>,
}

impl ChangeSet {
    /// These changes.
    pub fn new(author: Author, why: impl Into<String>, changes: Vec<Change>) -> Self {
        let (why, ticket) = (why.into(), String::new());
        ChangeSet { changes, base: None, author, why, ticket, restored: None }
    }

    /// Checks what does not depend on the database. All problems at once.
    pub(crate) fn check(&self) -> Vec<InputProblem> {
        let mut problems = Vec::new();
        if self.changes.len() > CHANGES_MAX && self.restored.is_none() {
            let what = format!("a set has up to {CHANGES_MAX} changes");
            problems.push(InputProblem::new("changes", what).hint("send several sets"));
        }
        for (field, text) in [("why", &self.why), ("ticket", &self.ticket)] {
            if text.len() > WHY_BYTES_MAX || text.contains('\0') {
                let what = format!("expected up to {WHY_BYTES_MAX} bytes of text");
                problems.push(InputProblem::new(field, what));
            }
        }
        let switches = self.changes.iter().any(|change| change.key.kind == EntryKind::Switch);
        if switches && self.why.trim().is_empty() {
            problems.push(InputProblem::new("why", "a switch needs a reason"));
        }
        let mut seen = std::collections::HashSet::new();
        for (index, change) in self.changes.iter().enumerate() {
            let place = format!("changes[{index}]");
            problems.extend(change.key.check(&place).err());
            if !seen.insert(&change.key) {
                problems.push(InputProblem::new(place, "another change is of the same entry"));
            }
        }
        problems
    }
}

/// What came of a set of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyOutcome {
    /// The newest version.
    pub version: u64,
    /// The entries that changed; 0 if everything was already as it was to be, and no version was made.
    pub changed: u64,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionView {
    /// Its number.
    pub version: u64,
    /// Who made it.
    pub author: String,
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// Why.
    pub why: String,
    /// Where it was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ticket: String,
    /// The entries that changed.
    pub changes: u64,
    /// The version whose content it brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
}

/// An entry at two versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// `document`, `plan`, …
    pub kind: String,
    /// Its collection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub collection: String,
    /// Its name.
    pub name: String,
    /// As it was; absent if it did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<EntryView>,
    /// As it is then; absent if it no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<EntryView>,
}
