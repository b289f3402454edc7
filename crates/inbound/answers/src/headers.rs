//! From a notice to header fields.
//!
//! There is no one standard, so the set is chosen: two de-facto sets, the old
//! drafts of the IETF and the present one. `Retry-After` is in every refusal.
//! What an answer says of the limits themselves is the same for all answers of
//! a rule, so it is written once and remembered; what is left is written anew,
//! unless an admitted request was told the same before.
//!
//! Field names are the same in any case, so the two sets that begin with
//! `X-RateLimit` go together: they share their first two fields.

mod number;
mod remembered;
mod structured;
mod told;

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_engine::{Nanos, Timestamp, Verdict};

use crate::notice::{Notice, Policy};
pub use number::write_number;
use remembered::Remembered;
use told::{Recalled, Told};

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const LEGACY_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Room for the fields of the default set in a refusal.
const FIELDS: usize = 6;

/// One known set of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFormat {
    /// `X-Ratelimit-Limit` and `X-Ratelimit-Remaining`; with a refusal
    /// `X-Ratelimit-Retry-After`, in seconds.
    XRetryAfter,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    XReset(ResetAs),
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as in
    /// the IETF's drafts up to the sixth.
    Legacy,
    /// `RateLimit-Policy` and `RateLimit`, as in the IETF's eleventh draft.
    Draft11,
}

/// How `X-RateLimit-Reset` names an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetAs {
    /// Seconds from now, as Envoy has it.
    #[default]
    DeltaSeconds,
    /// Seconds since the Unix epoch, as GitHub has it.
    EpochSeconds,
}

/// Which header fields are sent. The default is [`HeaderFormat::XRetryAfter`]
/// with [`HeaderFormat::Draft11`].
///
/// ```
/// use tidegate_answers::{HeaderFormat, HeaderSet, ResetAs};
///
/// let like_github = HeaderSet::NONE.with(HeaderFormat::XReset(ResetAs::EpochSeconds));
/// assert_ne!(like_github, HeaderSet::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSet {
    x_retry_after: bool,
    x_reset: Option<ResetAs>,
    legacy: bool,
    draft_11: bool,
}

impl HeaderSet {
    /// Nothing but `Retry-After` with refusals.
    pub const NONE: HeaderSet =
        HeaderSet { x_retry_after: false, x_reset: None, legacy: false, draft_11: false };

    /// The same set with one more format.
    #[must_use]
    pub const fn with(self, format: HeaderFormat) -> Self {
        match format {
            HeaderFormat::XRetryAfter => HeaderSet { x_retry_after: true, ..self },
            HeaderFormat::XReset(reset) => HeaderSet { x_reset: Some(reset), ..self },
            HeaderFormat::Legacy => HeaderSet { legacy: true, ..self },
            HeaderFormat::Draft11 => HeaderSet { draft_11: true, ..self },
        }
    }

    /// The fields for a notice. A verdict that no enforced limit stands behind
    /// has none, but for `Retry-After` if it refuses.
    pub fn fields(&self, notice: &Notice<'_>, now: Timestamp) -> Fields {
        Fields(Source::Written(self.written(notice, now)))
    }

    /// The same for a verdict. What an admitted request is told may have been written before.
    pub fn fields_of(&self, verdict: &Verdict, now: impl FnOnce() -> Timestamp) -> Fields {
        // A refusal has fields of its own, and an instant is another one every second.
        if !verdict.is_admitted() || self.x_reset == Some(ResetAs::EpochSeconds) {
            return self.fields(&Notice::of(verdict), now());
        }
        if verdict.rulings().is_empty() || *self == Self::NONE {
            return Fields::default();
        }
        // None of the other fields depends on the time of day.
        let written = || self.written(&Notice::of(verdict), Timestamp::EPOCH);
        Fields(match Told::recall(*self, verdict) {
            Recalled::Known(told) => Source::Told(told),
            Recalled::Unknown { again: true } => {
                Source::Told(Told::keep(*self, verdict, written()))
            }
            Recalled::Unknown { again: false } => Source::Written(written()),
        })
    }

    fn written(&self, notice: &Notice<'_>, now: Timestamp) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = Vec::new();
        if !notice.policies().is_empty() {
            fields.reserve(FIELDS);
        }
        self.write(notice, now, |name, value| fields.push((name, value)));
        fields
    }

    /// Puts the fields for a notice on an answer that has none yet.
    pub fn put_on(&self, headers: &mut HeaderMap, notice: &Notice<'_>, now: Timestamp) {
        self.write(notice, now, |name, value| {
            // There is room: these are all.
            let _ = headers.try_insert(name, value);
        });
    }

    /// Makes the fields for a notice, one after the other.
    fn write(
        &self,
        notice: &Notice<'_>,
        now: Timestamp,
        mut put: impl FnMut(HeaderName, HeaderValue),
    ) {
        let retry_after = notice.retry_after_seconds();
        if let Some(seconds) = retry_after {
            put(RETRY_AFTER, HeaderValue::from(seconds));
        }
        let Some(tightest) = notice.tightest().filter(|_| *self != Self::NONE) else { return };
        let mut known = Remembered::recall(notice);
        self.write_plain(&mut known, tightest, (retry_after, now), &mut put);
        if self.draft_11 {
            put(POLICY, known.policies());
            put(RATE_LIMIT, known.available(notice));
        }
        known.keep();
    }

    /// The sets that tell of one limit, in plain numbers.
    fn write_plain(
        &self,
        known: &mut Remembered,
        policy: &Policy<'_>,
        (retry_after, now): (Option<u64>, Timestamp),
        mut put: impl FnMut(HeaderName, HeaderValue),
    ) {
        let decision = policy.decision();
        let reset = policy.reset_after();
        if self.x_retry_after || self.x_reset.is_some() {
            put(X_LIMIT, known.limit(decision.limit));
            put(X_REMAINING, known.number(decision.remaining));
        }
        if let Some(seconds) = retry_after.filter(|_| self.x_retry_after) {
            put(X_RETRY_AFTER, known.number(seconds));
        }
        if let (Some(format), Some(reset)) = (self.x_reset, reset) {
            let seconds = match format {
                ResetAs::DeltaSeconds => reset.as_secs_ceil(),
                ResetAs::EpochSeconds => Nanos::new(now.after(reset).as_nanos()).as_secs_ceil(),
            };
            put(X_RESET, known.number(seconds));
        }
        if self.legacy {
            put(LEGACY_LIMIT, known.limit(decision.limit));
            put(LEGACY_REMAINING, known.number(decision.remaining));
            if let Some(reset) = reset {
                put(LEGACY_RESET, known.number(reset.as_secs_ceil()));
            }
        }
    }
}

impl Default for HeaderSet {
    fn default() -> Self {
        HeaderSet::NONE.with(HeaderFormat::XRetryAfter).with(HeaderFormat::Draft11)
    }
}

/// Which answers carry rate limit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadersOn {
    /// All of them, so that clients see it coming.
    #[default]
    Always,
    /// Refusals only.
    Refusal,
}

/// Header fields, ready to be put on an answer.
#[derive(Clone, Debug, Default)]
pub struct Fields(Source);

#[derive(Clone, Debug)]
enum Source {
    /// For one answer.
    Written(Vec<(HeaderName, HeaderValue)>),
    /// For every answer that says the same.
    Told(Arc<Told>),
}

impl Default for Source {
    fn default() -> Self {
        Source::Written(Vec::new())
    }
}

impl Fields {
    /// Puts the fields on an answer. A field that the answer has stays as it
    /// is: whoever is nearer to the resource knows better.
    pub fn add_to(self, headers: &mut HeaderMap) {
        // Few answers have any, and looking at the names that are there costs less than looking
        // for those that are not.
        let some_are_there = headers.keys().any(may_be_ours);
        match self.0 {
            Source::Written(fields) => {
                for (name, value) in fields {
                    add(headers, some_are_there, name, value);
                }
            }
            Source::Told(told) => {
                for (name, value) in &told.fields {
                    add(headers, some_are_there, name.clone(), value.clone());
                }
            }
        }
    }

    /// The fields, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let fields = match &self.0 {
            Source::Written(fields) => fields,
            Source::Told(told) => &told.fields,
        };
        fields.iter().map(|(name, value)| (name, value))
    }
}

/// Adds a field unless it is there, which it can only be if some are.
#[inline]
fn add(headers: &mut HeaderMap, some_are_there: bool, name: HeaderName, value: HeaderValue) {
    if !(some_are_there && headers.contains_key(&name)) {
        // An answer with tens of thousands of fields has no room for more.
        let _ = headers.try_insert(name, value);
    }
}

/// Whether a name begins as those of our fields do.
fn may_be_ours(name: &HeaderName) -> bool {
    matches!(name.as_str().as_bytes().first(), Some(b'r' | b'x'))
}
