//! Why a request is refused, and the wording of the answer: a stable code, what happened, what to do.

use std::borrow::Cow;

use http::StatusCode;
use tidegate_engine::{RefusalStatus, Retry};
use tidegate_overload::Cause as OverloadCause;

use crate::notice::Notice;
use crate::refusal::ViolatedLimit;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Over a rate limit.
    Rate,
    /// Over a concurrency limit.
    Concurrency,
    /// The limits could not be checked, and the failure mode refuses.
    Undecided,
    /// The service is short of capacity.
    Overload(OverloadCause),
}

impl Cause {
    /// All causes, by their index.
    pub const ALL: [Cause; 8] = [
        Cause::Rate,
        Cause::Concurrency,
        Cause::Undecided,
        Cause::Overload(OverloadCause::ShedFleet),
        Cause::Overload(OverloadCause::ShedWorker),
        Cause::Overload(OverloadCause::QueueFull),
        Cause::Overload(OverloadCause::QueueTimeout),
        Cause::Overload(OverloadCause::Deadline),
    ];

    /// Why a verdict refuses.
    pub fn of(notice: &Notice<'_>) -> Self {
        if notice.is_undecided_refusal() {
            return Cause::Undecided;
        }
        match notice.tightest() {
            Some(policy) if policy.is_violated() && policy.is_concurrency() => Cause::Concurrency,
            _ => Cause::Rate,
        }
    }

    /// The limiter that refuses for this cause.
    pub const fn limiter(self) -> &'static str {
        match self {
            Cause::Rate => "rate",
            Cause::Concurrency => "concurrency",
            Cause::Undecided => "store",
            Cause::Overload(OverloadCause::ShedWorker) => "worker",
            Cause::Overload(OverloadCause::ShedFleet) => "fleet",
            Cause::Overload(
                OverloadCause::QueueFull | OverloadCause::QueueTimeout | OverloadCause::Deadline,
            ) => "gate",
        }
    }

    /// The position in [`Cause::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Cause::Rate => 0,
            Cause::Concurrency => 1,
            Cause::Undecided => 2,
            Cause::Overload(OverloadCause::ShedFleet) => 3,
            Cause::Overload(OverloadCause::ShedWorker) => 4,
            Cause::Overload(OverloadCause::QueueFull) => 5,
            Cause::Overload(OverloadCause::QueueTimeout) => 6,
            Cause::Overload(OverloadCause::Deadline) => 7,
        }
    }

    /// The code in bodies, metrics and logs. It never changes.
    pub const fn code(self) -> &'static str {
        match self {
            Cause::Rate => "rate_limited",
            Cause::Concurrency => "concurrency_limited",
            Cause::Undecided => "undecided",
            Cause::Overload(cause) => cause.as_str(),
        }
    }

    /// The status: 503 if the service is at fault, and for limits the chosen one, or else 429.
    pub fn status(self, chosen: Option<RefusalStatus>) -> StatusCode {
        match (self, chosen) {
            (Cause::Rate | Cause::Concurrency, None | Some(RefusalStatus::TooManyRequests)) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The wording of a refusal that names no limit.
    pub(crate) fn wording(self, chosen: Option<RefusalStatus>) -> CauseText<'static> {
        let detail = match self {
            Cause::Rate => "Too many requests. Wait for the time in Retry-After, then try again.",
            Cause::Concurrency => {
                "Too many requests at once. Let some of them finish, then try again."
            }
            Cause::Undecided => {
                "The request could not be checked against its limits. Try again after the time in \
                 Retry-After."
            }
            Cause::Overload(OverloadCause::ShedFleet) => {
                "The service is short of capacity and serves more important requests first. Try \
                 again after the time in Retry-After."
            }
            Cause::Overload(OverloadCause::ShedWorker | OverloadCause::QueueFull) => {
                "The service is overloaded and serves more important requests first. Try again \
                 after the time in Retry-After."
            }
            Cause::Overload(OverloadCause::QueueTimeout) => {
                "The service is overloaded and the request has waited for too long. Try again \
                 after the time in Retry-After."
            }
            Cause::Overload(OverloadCause::Deadline) => {
                "The request could not have been answered in the time that is left for it."
            }
        };
        self.worded(chosen, detail.into(), "")
    }

    /// The wording of a refusal by this limit.
    pub(crate) fn wording_for(
        self,
        chosen: Option<RefusalStatus>,
        limit: &ViolatedLimit,
    ) -> CauseText<'_> {
        let advice = match (self, limit.retry) {
            (_, Retry::Never) => "The request asks for more than it can ever admit.",
            (Cause::Concurrency, _) => "Let some requests finish, then try again.",
            _ => "Wait for the time in Retry-After, then try again.",
        };
        self.worded(chosen, format!("{limit}. {advice}").into(), &limit.name)
    }

    fn worded<'w>(
        self,
        chosen: Option<RefusalStatus>,
        detail: Cow<'w, str>,
        quota: &'w str,
    ) -> CauseText<'w> {
        let (problem_type, title) = match self {
            Cause::Rate | Cause::Concurrency => (QUOTA_EXCEEDED, "Quota Exceeded"),
            Cause::Undecided => ("about:blank", "Service Unavailable"),
            Cause::Overload(_) => (REDUCED_CAPACITY, "Temporary Reduced Capacity"),
        };
        let status = self.status(chosen);
        CauseText { status, code: self.code(), problem_type, title, detail, quota }
    }
}

/// What an answer says, whatever its format.
#[derive(Clone, Debug)]
pub struct CauseText<'w> {
    /// The HTTP status.
    pub status: StatusCode,
    /// The code in the body.
    pub code: &'static str,
    /// The problem type, a URI.
    pub problem_type: &'static str,
    /// The title of the problem.
    pub title: &'static str,
    /// One sentence or two for people.
    pub detail: Cow<'w, str>,
    /// The name of the limit, or nothing.
    pub quota: &'w str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_at_its_index() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), index);
        }
    }

    #[test]
    fn only_limits_have_a_status_to_choose() {
        let unavailable = Some(RefusalStatus::ServiceUnavailable);
        let too_many = Some(RefusalStatus::TooManyRequests);
        assert_eq!(Cause::Rate.status(None), 429);
        assert_eq!(Cause::Concurrency.status(unavailable), 503);
        assert_eq!(Cause::Undecided.status(too_many), 503);
        assert_eq!(Cause::Overload(OverloadCause::Deadline).status(too_many), 503);
    }
}
