//! A refused request as plain data: why, when to retry, and which limits refused.

use std::fmt;

use compact_str::{CompactString, ToCompactString};
use smallvec::SmallVec;
use tidegate_engine::{Nanos, RefusalStatus, Retry, Timestamp};
use tidegate_overload::Category;

use crate::cause::Cause;
use crate::headers::{Fields, HeaderSet};
use crate::notice::{Notice, Policy, whole_seconds};

/// A refused request. A [`Renderer`](crate::Renderer) turns it into a response.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// When to retry.
    pub retry: Retry,
    /// The status that the limit chooses; [`None`] leaves it to the door.
    pub status: Option<RefusalStatus>,
    /// The limits that refused, the one to wait for first. Empty if no limit refused.
    pub limits: SmallVec<[ViolatedLimit; 1]>,
    /// What was shed, if the service is overloaded.
    pub shed: Option<ShedDetails>,
    /// The version of the rules.
    pub(crate) rules_version: u64,
    /// The rate limit fields.
    pub(crate) fields: Fields,
}

/// A limit that refused.
#[derive(Clone, Debug)]
pub struct ViolatedLimit {
    /// The name that clients see.
    pub name: CompactString,
    /// What the unused limit allows at once.
    pub limit: u64,
    /// How much of that is used.
    pub used: u64,
    /// The amount in its rule: per period, or in flight.
    pub quota: u64,
    /// The period of the quota; [`None`] for requests in flight.
    pub period: Option<Nanos>,
    /// When this limit would admit the request.
    pub retry: Retry,
    /// Identifies the limit as long as the rules stay the same.
    pub(crate) identity: u64,
}

/// What an overloaded service shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedDetails {
    /// The category, if clients may see it.
    pub category: Option<Category>,
    /// Whether the whole fleet is saturated, so that another node would refuse as well.
    pub fleet_saturated: bool,
}

impl Refusal {
    /// The refusal of a verdict. `slot_wait` is when a slot of a concurrency limit may be free.
    pub fn of_limits(
        notice: &Notice<'_>,
        headers: &HeaderSet,
        slot_wait: Option<Nanos>,
        now: Timestamp,
    ) -> Self {
        let cause = Cause::of(notice);
        let retry = match (cause, slot_wait) {
            (Cause::Concurrency, Some(wait)) => Retry::After(wait),
            _ => notice.retry(),
        };
        let tightest = notice.tightest().filter(|policy| policy.is_violated());
        let others = notice.violated().filter(|policy| {
            tightest.is_some_and(|tightest| tightest.limit_id() != policy.limit_id())
        });
        let first = tightest.map(|policy| ViolatedLimit { retry, ..ViolatedLimit::of(policy) });
        Refusal {
            cause,
            retry,
            status: tightest.and_then(Policy::refusal_status),
            limits: first.into_iter().chain(others.map(ViolatedLimit::of)).collect(),
            shed: None,
            rules_version: notice.verdict().snapshot().version(),
            // An outage is never reported as a limit.
            fields: match cause {
                Cause::Undecided => Fields::default(),
                _ => headers.fields(notice, now),
            },
        }
    }

    /// The refusal of an overloaded service. `names_category` shows the category to the client.
    pub fn of_overload(refusal: &tidegate_overload::Refusal, names_category: bool) -> Self {
        // Whole seconds: their field values are made once for the process.
        let retry = Nanos::from_secs(refusal.retry_after.as_secs_ceil().max(1));
        let shed = ShedDetails {
            category: names_category.then_some(refusal.category),
            fleet_saturated: refusal.fleet_saturated,
        };
        Refusal {
            cause: Cause::Overload(refusal.cause),
            retry: Retry::After(retry),
            status: None,
            limits: SmallVec::new(),
            shed: Some(shed),
            rules_version: 0,
            fields: Fields::default(),
        }
    }

    /// Whole seconds after which to retry, at least one; [`None`] if waiting does not help.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        whole_seconds(self.retry)
    }
}

impl ViolatedLimit {
    fn of(policy: &Policy<'_>) -> Self {
        let decision = policy.decision();
        ViolatedLimit {
            name: policy.name().to_compact_string(),
            limit: decision.limit,
            used: decision.limit.saturating_sub(decision.remaining),
            quota: policy.quota(),
            period: (!policy.is_concurrency()).then(|| policy.period()),
            retry: policy.retry(),
            identity: policy.identity(),
        }
    }

    /// The period in whole seconds, rounded up; [`None`] if it is under a second, or there is none.
    pub fn window_seconds(&self) -> Option<u64> {
        let period = self.period.filter(|period| *period >= Nanos::from_secs(1));
        period.map(Nanos::as_secs_ceil)
    }

    /// Whole seconds after which this limit would admit the request, at least one.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        whole_seconds(self.retry)
    }
}

impl fmt::Display for ViolatedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The limit \"{}\" allows {}", self.name, self.quota)?;
        match self.period {
            Some(period) => write!(f, " per {period}"),
            None => f.write_str(" at once"),
        }
    }
}
