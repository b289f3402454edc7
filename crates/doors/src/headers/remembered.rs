//! `RateLimit-Policy` as it was written before.
//!
//! It says what the rules say and nothing of what is left, so all answers of a
//! rule have the same. Each thread remembers some: no thread waits for another,
//! and new rules find nothing of the old, because what a value was made of is
//! compared and not which rules it came from.

use std::cell::RefCell;

use http::HeaderValue;
use smallvec::SmallVec;
use tidegate_engine::Nanos;

use super::structured::write_policies;
use crate::notice::{Notice, Policy};

/// Values that a thread remembers. With names of usual length they take 10 kB.
const REMEMBERED: usize = 64;

thread_local! {
    static VALUES: RefCell<[Option<Remembered>; REMEMBERED]> =
        const { RefCell::new([const { None }; REMEMBERED]) };
}

/// A value and what it was made of.
struct Remembered {
    members: SmallVec<[Member; 2]>,
    value: HeaderValue,
}

/// What is told of one limit.
struct Member {
    name: Box<str>,
    ordinal: usize,
    quota: u64,
    period: Nanos,
    concurrency: bool,
}

/// The value for the limits of a notice.
pub(super) fn policies(notice: &Notice<'_>) -> HeaderValue {
    let place = place(notice.policies());
    let remembered = VALUES.try_with(|values| {
        let mut values = values.try_borrow_mut().ok()?;
        let kept = values.get_mut(place)?;
        match kept {
            Some(kept) if kept.is_of(notice.policies()) => Some(kept.value.clone()),
            _ => Some(kept.insert(Remembered::of(notice)).value.clone()),
        }
    });
    // A thread that is ending remembers nothing any more.
    remembered.ok().flatten().unwrap_or_else(|| written(notice))
}

/// Where the value for these limits is kept, if it is.
fn place(policies: &[Policy<'_>]) -> usize {
    let mixed =
        |sum: usize, policy: &Policy<'_>| sum.wrapping_mul(31).wrapping_add(policy.limit_id());
    policies.iter().fold(0, mixed) % REMEMBERED
}

fn written(notice: &Notice<'_>) -> HeaderValue {
    let mut out = Vec::new();
    write_policies(&mut out, notice);
    // Everything written is printable, so it is a value.
    HeaderValue::try_from(out).unwrap_or(HeaderValue::from_static(""))
}

impl Remembered {
    fn of(notice: &Notice<'_>) -> Self {
        let members = notice.policies().iter().map(Member::of).collect();
        Remembered { members, value: written(notice) }
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
