//! Who changed what at run time, when and why: the last changes, in memory.

use std::collections::VecDeque;
use std::net::SocketAddr;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

/// The most changes that are kept.
const CHANGES_MAX: usize = 1_000;
/// The longest reason in bytes.
pub(super) const REASON_BYTES_MAX: usize = 500;

/// One change.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AuditEntry {
    /// Its number, from 1.
    pub(super) id: u64,
    /// When, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// The name of the token, if there was one.
    pub(super) by: Option<String>,
    /// The address that it came from.
    pub(super) peer: Option<SocketAddr>,
    /// The kind of change.
    pub(super) kind: &'static str,
    /// The change in words.
    pub(super) what: String,
    /// The mode before, if it was a switch.
    pub(super) before: Option<String>,
    /// The mode after.
    pub(super) after: Option<String>,
    /// Why, as the operator wrote it.
    pub(super) reason: Option<String>,
    /// When it ends by itself.
    pub(super) until_ms: Option<u64>,
    /// The request that undoes it.
    pub(super) undo: Option<Undo>,
}

/// A request that undoes a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Undo {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: Value,
}

/// The last changes.
#[derive(Debug, Default)]
pub(super) struct AuditLog(Mutex<AuditState>);

#[derive(Debug, Default)]
struct AuditState {
    last: u64,
    entries: VecDeque<AuditEntry>,
}

impl AuditLog {
    /// Adds a change, and gives it its number.
    pub(super) fn add(&self, mut entry: AuditEntry) {
        let mut state = self.0.lock();
        state.last += 1;
        entry.id = state.last;
        if state.entries.len() >= CHANGES_MAX {
            state.entries.pop_front();
        }
        state.entries.push_back(entry);
    }

    /// The number of the newest change; zero if there is none.
    pub(super) fn last(&self) -> u64 {
        self.0.lock().last
    }

    /// The changes after this number, from the newest, up to a maximum.
    pub(super) fn newest(&self, after: u64, count_max: usize) -> Vec<AuditEntry> {
        let state = self.0.lock();
        let newer = state.entries.iter().rev().take_while(|entry| entry.id > after);
        newer.take(count_max).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: &str) -> AuditEntry {
        AuditEntry {
            id: 0,
            at_ms: 5,
            by: None,
            peer: None,
            kind: "limit",
            what: what.to_owned(),
            before: None,
            after: None,
            reason: None,
            until_ms: None,
            undo: None,
        }
    }

    #[test]
    fn the_newest_changes_come_first_and_the_oldest_are_forgotten() {
        let log = AuditLog::default();
        for number in 1..=CHANGES_MAX + 5 {
            log.add(entry(&number.to_string()));
        }
        let all = log.newest(0, usize::MAX);
        assert_eq!((all.len(), log.last()), (CHANGES_MAX, 1_005));
        assert_eq!((all[0].what.as_str(), all[CHANGES_MAX - 1].what.as_str()), ("1005", "6"));
        let newer: Vec<u64> = log.newest(1_003, 10).iter().map(|entry| entry.id).collect();
        assert_eq!(newer, [1_005, 1_004]);
    }
}
