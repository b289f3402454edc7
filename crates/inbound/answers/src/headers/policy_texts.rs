//! A cache of the texts that all responses of a rule share.
//!
//! `RateLimit-Policy`, the names in `RateLimit` and the limit itself depend on the rules only, not on what remains.
//! Each thread has its own cache, so no lock is needed. An entry is compared with the limits at hand, so new rules
//! never hit entries of the old.

use std::cell::Cell;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate_engine::Nanos;

use super::number::write_number;
use super::structured::{List, quoted};
use crate::notice::{Notice, Policy};

/// Entries per thread, one for each set of limits. With names of usual length they take 30 kB.
const ENTRIES: usize = 64;

thread_local! {
    static CACHE: [Cell<Option<Box<PolicyTexts>>>; ENTRIES] =
        const { [const { Cell::new(None) }; ENTRIES] };
}

/// The texts of a set of limits.
pub(super) struct PolicyTexts {
    /// Where the cache has it.
    index: usize,
    policies: SmallVec<[PolicyText; 2]>,
    policy_field: HeaderValue,
    /// What the tightest limit allows; now and then another limit is the tightest.
    limit: (u64, HeaderValue),
    /// A buffer for values whose length is not known yet.
    scratch: Vec<u8>,
}

/// The text of one limit.
struct PolicyText {
    name: Box<str>,
    ordinal: usize,
    quota: u64,
    period: Nanos,
    concurrency: bool,
    quoted: Box<[u8]>,
}

impl PolicyTexts {
    /// Takes the texts for a notice out of the cache, or writes them. Put them back afterwards.
    pub(super) fn take(notice: &Notice<'_>) -> Box<Self> {
        let policies = notice.policies();
        let index = index(policies);
        // A thread that is ending has no cache any more.
        let cached = CACHE.try_with(|cache| cache.get(index)?.take()).ok().flatten();
        let known = cached.filter(|cached| cached.is_of(policies));
        known.unwrap_or_else(|| Box::new(PolicyTexts::of(policies, index)))
    }

    /// Puts the texts back for the next response with the same limits.
    pub(super) fn put_back(self: Box<Self>) {
        let _ = CACHE.try_with(|cache| {
            if let Some(entry) = cache.get(self.index) {
                entry.set(Some(self));
            }
        });
    }

    /// `RateLimit-Policy`: every limit, as its rule has it.
    pub(super) fn policy_field(&self) -> HeaderValue {
        self.policy_field.clone()
    }

    /// What the tightest limit allows.
    pub(super) fn limit(&mut self, limit: u64) -> HeaderValue {
        if self.limit.0 != limit {
            self.limit = (limit, self.number(limit));
        }
        self.limit.1.clone()
    }

    /// Any other number; it is not cached.
    pub(super) fn number(&mut self, number: u64) -> HeaderValue {
        self.scratch.clear();
        write_number(&mut self.scratch, number);
        // Digits are printable.
        HeaderValue::from_bytes(&self.scratch).unwrap_or(HeaderValue::from_static(""))
    }

    /// `RateLimit`: what remains. A refusal lists only the limits that refused, so that no window ends after
    /// `Retry-After`.
    pub(super) fn remaining_field(&mut self, notice: &Notice<'_>) -> HeaderValue {
        let mut list = List::new(&mut self.scratch);
        for (text, policy) in self.policies.iter().zip(notice.policies()) {
            if notice.is_refusal() && !policy.is_violated() {
                continue;
            }
            list.member(&text.quoted);
            list.parameter(b'r', policy.decision().remaining);
            if let Some(seconds) = policy.effective_window_seconds() {
                list.parameter(b't', seconds);
            }
        }
        list.value()
    }

    fn of(policies: &[Policy<'_>], index: usize) -> Self {
        let texts: SmallVec<[PolicyText; 2]> = policies.iter().map(PolicyText::of).collect();
        let mut scratch = Vec::new();
        let mut list = List::new(&mut scratch);
        for (text, policy) in texts.iter().zip(policies) {
            list.member(&text.quoted);
            list.parameter(b'q', text.quota);
            if text.concurrency {
                list.counts_requests_in_flight();
            }
            if let Some(seconds) = policy.window_seconds() {
                list.parameter(b'w', seconds);
            }
        }
        let policy_field = list.value();
        let limit = (0, HeaderValue::from_static("0"));
        PolicyTexts { index, policies: texts, policy_field, limit, scratch }
    }

    fn is_of(&self, policies: &[Policy<'_>]) -> bool {
        self.policies.len() == policies.len()
            && self.policies.iter().zip(policies).all(|(text, policy)| text.is_of(policy))
    }
}

impl PolicyText {
    fn of(policy: &Policy<'_>) -> Self {
        PolicyText {
            name: policy.name().text().into(),
            ordinal: policy.name().ordinal(),
            quota: policy.quota(),
            period: policy.period(),
            concurrency: policy.is_concurrency(),
            quoted: quoted(policy.name()).into(),
        }
    }

    fn is_of(&self, policy: &Policy<'_>) -> bool {
        self.quota == policy.quota()
            && self.concurrency == policy.is_concurrency()
            && self.period == policy.period()
            && self.ordinal == policy.name().ordinal()
            && *self.name == *policy.name().text()
    }
}

/// The cache entry for a set of limits.
fn index(policies: &[Policy<'_>]) -> usize {
    let mixed =
        |sum: usize, policy: &Policy<'_>| sum.wrapping_mul(31).wrapping_add(policy.limit_id());
    policies.iter().fold(0, mixed) % ENTRIES
}
