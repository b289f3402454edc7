//! What is the same for all answers of a rule, as it was written before.
//!
//! `RateLimit-Policy` says what the rules say and nothing of what is left; so
//! do the names in `RateLimit`, and the limit itself. Each thread remembers
//! some: no thread waits for another, and new rules find nothing of the old,
//! because what was written is compared with what is told now, and not which
//! rules it came from.

use std::cell::Cell;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate_engine::Nanos;

use super::number::write_number;
use super::structured::{List, quoted};
use crate::notice::{Notice, Policy};

/// Sets of limits that a thread remembers. With names of usual length they take 30 kB.
const REMEMBERED: usize = 64;

thread_local! {
    static MEMORY: [Cell<Option<Box<Remembered>>>; REMEMBERED] =
        const { [const { Cell::new(None) }; REMEMBERED] };
}

/// What is told of a set of limits.
pub(super) struct Remembered {
    /// Where it is kept.
    place: usize,
    members: SmallVec<[Member; 2]>,
    policies: HeaderValue,
    /// What the tightest of them allows; now and then it is another one.
    limit: (u64, HeaderValue),
    /// Where values are put together before it is known how long they are.
    scratch: Vec<u8>,
}

/// What is told of one limit.
struct Member {
    name: Box<str>,
    ordinal: usize,
    quota: u64,
    period: Nanos,
    concurrency: bool,
    quoted: Box<[u8]>,
}

impl Remembered {
    /// What is known of the limits of a notice. It is to be kept afterwards.
    pub(super) fn recall(notice: &Notice<'_>) -> Box<Self> {
        let policies = notice.policies();
        let place = place(policies);
        // A thread that is ending remembers nothing any more.
        let kept = MEMORY.try_with(|memory| memory.get(place)?.take()).ok().flatten();
        let known = kept.filter(|kept| kept.is_of(policies));
        known.unwrap_or_else(|| Box::new(Remembered::of(policies, place)))
    }

    /// Keeps it for the next answer with the same limits.
    pub(super) fn keep(self: Box<Self>) {
        let _ = MEMORY.try_with(|memory| {
            if let Some(kept) = memory.get(self.place) {
                kept.set(Some(self));
            }
        });
    }

    /// `RateLimit-Policy`: every limit, as its rule has it.
    pub(super) fn policies(&self) -> HeaderValue {
        self.policies.clone()
    }

    /// What the tightest limit allows.
    pub(super) fn limit(&mut self, limit: u64) -> HeaderValue {
        if self.limit.0 != limit {
            self.limit = (limit, self.number(limit));
        }
        self.limit.1.clone()
    }

    /// Any other number, which is not remembered.
    pub(super) fn number(&mut self, number: u64) -> HeaderValue {
        self.scratch.clear();
        write_number(&mut self.scratch, number);
        // Digits are printable.
        HeaderValue::from_bytes(&self.scratch).unwrap_or(HeaderValue::from_static(""))
    }

    /// `RateLimit`: what is left. A refusal tells only of the limits that refused,
    /// so that no window told ends after `Retry-After`.
    pub(super) fn available(&mut self, notice: &Notice<'_>) -> HeaderValue {
        let mut list = List::new(&mut self.scratch);
        for (member, policy) in self.members.iter().zip(notice.policies()) {
            if notice.is_refusal() && !policy.is_violated() {
                continue;
            }
            list.member(&member.quoted);
            list.parameter(b'r', policy.decision().remaining);
            if let Some(seconds) = policy.effective_window_seconds() {
                list.parameter(b't', seconds);
            }
        }
        list.value()
    }

    fn of(policies: &[Policy<'_>], place: usize) -> Self {
        let members: SmallVec<[Member; 2]> = policies.iter().map(Member::of).collect();
        let mut scratch = Vec::new();
        let mut list = List::new(&mut scratch);
        for (member, policy) in members.iter().zip(policies) {
            list.member(&member.quoted);
            list.parameter(b'q', member.quota);
            if member.concurrency {
                list.counts_requests_in_flight();
            }
            if let Some(seconds) = policy.window_seconds() {
                list.parameter(b'w', seconds);
            }
        }
        let policies = list.value();
        Remembered { place, members, policies, limit: (0, HeaderValue::from_static("0")), scratch }
    }

    fn is_of(&self, policies: &[Policy<'_>]) -> bool {
        self.members.len() == policies.len()
            && self.members.iter().zip(policies).all(|(member, policy)| member.is(policy))
    }
}

impl Member {
    fn of(policy: &Policy<'_>) -> Self {
        Member {
            name: policy.name().text().into(),
            ordinal: policy.name().ordinal(),
            quota: policy.quota(),
            period: policy.period(),
            concurrency: policy.is_concurrency(),
            quoted: quoted(policy.name()).into(),
        }
    }

    fn is(&self, policy: &Policy<'_>) -> bool {
        self.quota == policy.quota()
            && self.concurrency == policy.is_concurrency()
            && self.period == policy.period()
            && self.ordinal == policy.name().ordinal()
            && *self.name == *policy.name().text()
    }
}

/// Where what is known of these limits is kept, if it is.
fn place(policies: &[Policy<'_>]) -> usize {
    let mixed =
        |sum: usize, policy: &Policy<'_>| sum.wrapping_mul(31).wrapping_add(policy.limit_id());
    policies.iter().fold(0, mixed) % REMEMBERED
}
