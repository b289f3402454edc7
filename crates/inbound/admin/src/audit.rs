//! Who changed what at run time, when and why: the last changes, in memory, and as lines of JSON for a file.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most changes that are kept.
const CHANGES_MAX: usize = 1_000;
/// The longest reason in bytes.
pub(super) const REASON_BYTES_MAX: usize = 500;

/// One change.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    pub(super) kind: Cow<'static, str>,
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
    /// What it switched, as one text: a later change with the same target replaces this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// The request that undoes it.
    #[serde(skip_deserializing)]
    pub(super) undo: Option<Undo>,
    /// Whether it was made before this process started. Switches end with their process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) before_start: bool,
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
    /// Adds a change, and gives it its number. Returns it as a line of JSON.
    pub(super) fn add(&self, mut entry: AuditEntry) -> String {
        let mut state = self.0.lock();
        state.last += 1;
        entry.id = state.last;
        let line = serde_json::to_string(&entry).unwrap_or_default();
        if state.entries.len() >= CHANGES_MAX {
            state.entries.pop_front();
        }
        state.entries.push_back(entry);
        line
    }

    /// Begins with the changes that earlier processes wrote, one line of JSON each. Returns how many lines are none.
    pub(super) fn restore(&self, lines: &str) -> usize {
        let mut state = self.0.lock();
        let mut unreadable = 0;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let Ok(entry) = serde_json::from_str::<AuditEntry>(line) else {
                unreadable += 1;
                continue;
            };
            state.last = state.last.max(entry.id);
            if state.entries.len() >= CHANGES_MAX {
                state.entries.pop_front();
            }
            state.entries.push_back(AuditEntry { before_start: true, undo: None, ..entry });
        }
        // Numbers grow, whatever the file says.
        let mut last = 0;
        for entry in &mut state.entries {
            last = entry.id.max(last + 1);
            entry.id = last;
        }
        state.last = state.last.max(last);
        unreadable
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

    /// The request that undoes a change, unless a later one has replaced it.
    pub(super) fn undo_of(&self, entry: &AuditEntry) -> Option<Undo> {
        let state = self.0.lock();
        let mut later = state.entries.iter().rev().take_while(|later| later.id > entry.id);
        let replaced = later.any(|later| later.target.is_some() && later.target == entry.target);
        entry.undo.clone().filter(|_| !replaced)
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
            kind: "limit".into(),
            what: what.to_owned(),
            before: None,
            after: None,
            reason: None,
            until_ms: None,
            target: None,
            undo: None,
            before_start: false,
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

    #[test]
    fn changes_of_earlier_processes_are_read_from_their_lines() {
        let log = AuditLog::default();
        let undo = Undo { method: "DELETE", path: "/x", body: Value::Null };
        let peer = Some(([127, 0, 0, 1], 7).into());
        let lines = [
            log.add(AuditEntry { undo: Some(undo), peer, ..entry("one") }),
            log.add(AuditEntry { reason: Some("=\"quotes\"\n".to_owned()), ..entry("two") }),
        ];
        let read = AuditLog::default();
        // The last line was cut off by a crash.
        let text = format!("{}\nno change\n\n{}\n{}", lines[0], lines[1], &lines[1][..20]);
        assert_eq!(read.restore(&text), 2);
        read.add(entry("three"));
        let all = read.newest(0, usize::MAX);
        let shown: Vec<_> =
            all.iter().map(|one| (one.id, one.what.as_str(), one.before_start)).collect();
        assert_eq!(shown, [(3, "three", false), (2, "two", true), (1, "one", true)]);
        assert_eq!(all[2].undo, None, "its switch ended with its process");
        assert_eq!((all[2].peer, all[1].reason.as_deref()), (peer, Some("=\"quotes\"\n")));
    }

    #[test]
    fn numbers_of_changes_grow_whatever_a_file_says() {
        let log = AuditLog::default();
        let line = |id| serde_json::to_string(&AuditEntry { id, ..entry("x") }).unwrap();
        assert_eq!(log.restore(&[line(9), line(2), line(2)].join("\n")), 0);
        let ids: Vec<u64> = log.newest(0, usize::MAX).iter().map(|one| one.id).collect();
        assert_eq!((ids, log.last()), (vec![11, 10, 9], 11));
    }

    #[test]
    fn only_the_newest_change_of_a_target_can_be_undone() {
        let log = AuditLog::default();
        let undo = || Some(Undo { method: "DELETE", path: "/x", body: Value::Null });
        let of = |target: &str| AuditEntry {
            target: Some(target.to_owned()),
            undo: undo(),
            ..entry(target)
        };
        for target in ["a", "b", "a"] {
            log.add(of(target));
        }
        let all = log.newest(0, usize::MAX);
        let undone: Vec<bool> = all.iter().map(|one| log.undo_of(one).is_some()).collect();
        assert_eq!(undone, [true, true, false]);
    }
}
