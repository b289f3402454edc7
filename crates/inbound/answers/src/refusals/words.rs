//! The words of refusals: a stable code, what happened, what to do.

use std::borrow::Cow;

use http::StatusCode;

use super::retry::Retry;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// What an answer says, whatever its form.
#[derive(Clone, Debug)]
pub struct Words<'w> {
    /// The HTTP status.
    pub status: StatusCode,
    /// The code in the body.
    pub code: &'static str,
    /// The problem type, a URI.
    pub kind: &'static str,
    /// The title of the problem.
    pub title: &'static str,
    /// One sentence for people.
    pub detail: Cow<'w, str>,
    /// The name of the quota, if one is meant.
    pub quota: &'w str,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It came too early.
    Rate,
    /// The caller has too many under way.
    Concurrency,
    /// Nobody could decide.
    Undecided,
    /// The fleet keeps what is left for more important ones.
    Fleet,
    /// This server does.
    Worker,
    /// There was no place to wait in.
    QueueFull,
    /// It has waited for too long.
    QueueTimeout,
    /// It could not have been done in the time that its caller has.
    Deadline,
}

impl Cause {
    /// All of them, in their order.
    pub const ALL: [Cause; 8] = [
        Cause::Rate,
        Cause::Concurrency,
        Cause::Undecided,
        Cause::Fleet,
        Cause::Worker,
        Cause::QueueFull,
        Cause::QueueTimeout,
        Cause::Deadline,
    ];

    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Cause::Rate => "rate_limited",
            Cause::Concurrency => "concurrency_limited",
            Cause::Undecided => "undecided",
            Cause::Fleet => "shed_fleet",
            Cause::Worker => "shed_worker",
            Cause::QueueFull => "queue_full",
            Cause::QueueTimeout => "queue_timeout",
            Cause::Deadline => "deadline",
        }
    }

    /// The caller's fault is 429, ours 503.
    pub const fn status(self) -> StatusCode {
        match self {
            Cause::Rate | Cause::Concurrency => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The wording of a refusal that has no limit to name.
    pub fn words(self) -> Words<'static> {
        let detail = match self {
            Cause::Rate => "Too many requests. Wait for the time in Retry-After, then try again.",
            Cause::Concurrency => {
                "Too many requests at once. Let some of them finish, then try again."
            }
            Cause::Undecided => {
                "The request could not be checked against its limits. Try again after the time in \
                 Retry-After."
            }
            Cause::Fleet => {
                "The service is short of capacity and serves more important requests first. Try \
                 again after the time in Retry-After."
            }
            Cause::Worker | Cause::QueueFull => {
                "The service is overloaded and serves more important requests first. Try again \
                 after the time in Retry-After."
            }
            Cause::QueueTimeout => {
                "The service is overloaded and the request has waited for too long. Try again \
                 after the time in Retry-After."
            }
            Cause::Deadline => {
                "The request could not have been answered in the time that is left for it."
            }
        };
        self.said(detail.into(), "")
    }

    /// The words for one limit, described as in `The limit "x" allows 5 per second`.
    pub fn words_of<'w>(self, quota: &'w str, limit: &str, retry: Retry) -> Words<'w> {
        let advice = match (self, retry) {
            (_, Retry::Never) => "The request asks for more than it can ever admit.",
            (Cause::Concurrency, _) => "Let some requests finish, then try again.",
            _ => "Wait for the time in Retry-After, then try again.",
        };
        self.said(format!("{limit}. {advice}").into(), quota)
    }

    fn said<'w>(self, detail: Cow<'w, str>, quota: &'w str) -> Words<'w> {
        let (kind, title) = match self {
            Cause::Rate | Cause::Concurrency => (QUOTA_EXCEEDED, "Quota Exceeded"),
            Cause::Undecided => ("about:blank", "Service Unavailable"),
            _ => (REDUCED_CAPACITY, "Temporary Reduced Capacity"),
        };
        Words { status: self.status(), code: self.code(), kind, title, detail, quota }
    }
}

impl From<tidegate_overload::Cause> for Cause {
    fn from(cause: tidegate_overload::Cause) -> Self {
        match cause {
            tidegate_overload::Cause::ShedWorker => Cause::Worker,
            tidegate_overload::Cause::ShedFleet => Cause::Fleet,
            tidegate_overload::Cause::QueueFull => Cause::QueueFull,
            tidegate_overload::Cause::QueueTimeout => Cause::QueueTimeout,
            tidegate_overload::Cause::Deadline => Cause::Deadline,
        }
    }
}
