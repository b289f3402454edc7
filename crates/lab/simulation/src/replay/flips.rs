//! Requests that two sets of rules answer differently, and their callers.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tidegate_algorithms::Timestamp;
use tidegate_engine::Request;

use super::rule_set::{NAMED_CALLERS_MAX, SetAnswer, hash_entries, name_of};

/// The most callers whose requests are counted, for the share that flips.
const COUNTED_CALLERS_MAX: usize = 5_000_000;

/// Requests that two sets of rules answer differently.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    pub(crate) newly_refused: u64,
    pub(crate) newly_admitted: u64,
    /// By the hash of the caller's descriptor.
    pub(crate) callers: HashMap<u64, FlippedCaller, FixedState>,
    requests: HashMap<u64, u32, FixedState>,
}

/// A caller whose requests flip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlippedCaller {
    pub(crate) name: Box<str>,
    pub(crate) newly_refused: u64,
    pub(crate) newly_admitted: u64,
    pub(crate) first: Timestamp,
}

impl Flips {
    /// Compares the answers to a request.
    pub(crate) fn count(
        &mut self,
        request: &Request<'_>,
        old: &SetAnswer,
        new: &SetAnswer,
        now: Timestamp,
    ) {
        for descriptor in request.descriptors {
            let caller = hash_entries(descriptor.entries);
            if let Some(count) = self.requests.get_mut(&caller) {
                *count = count.saturating_add(1);
            } else if self.requests.len() < COUNTED_CALLERS_MAX {
                self.requests.insert(caller, 1);
            }
        }
        if old.admitted == new.admitted {
            return;
        }
        let newly_refused = old.admitted;
        let refusal = if newly_refused { new } else { old };
        self.newly_refused += u64::from(newly_refused);
        self.newly_admitted += u64::from(!newly_refused);
        let descriptor = request.descriptors.get(refusal.descriptor);
        let entries = descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        let caller = hash_entries(entries);
        if !self.callers.contains_key(&caller) && self.callers.len() >= NAMED_CALLERS_MAX {
            return;
        }
        let flipped = self.callers.entry(caller).or_insert_with(|| FlippedCaller {
            name: name_of(entries).into(),
            newly_refused: 0,
            newly_admitted: 0,
            first: now,
        });
        flipped.newly_refused += u64::from(newly_refused);
        flipped.newly_admitted += u64::from(!newly_refused);
    }

    /// How many requests a caller had.
    pub(crate) fn requests_of(&self, caller: u64) -> u64 {
        self.requests.get(&caller).copied().map_or(0, u64::from)
    }
}
