//! The rate limit header fields of a response.
//!
//! There is no one standard, so the operator chooses: two de-facto sets, the IETF's old drafts, and its current one.
//! `Retry-After` is in every refusal. The texts that depend on the rules only are cached (`policy_texts`), and so are
//! all fields of an admitted request whose figures occur again (`cached_fields`).
//!
//! Field names are case-insensitive, so the two sets that begin with `X-RateLimit` share their first two fields.

mod cached_fields;
mod number;
mod policy_texts;
mod structured;

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_engine::{Nanos, Timestamp, Verdict};

use crate::notice::{Notice, Policy};
use cached_fields::{CacheLookup, CachedFields};
pub use number::write_number;
pub(crate) use number::{number_value, pushback_value};
use policy_texts::PolicyTexts;
use tidegate_words::words;

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

/// One set of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFormat {
    /// `X-Ratelimit-Limit` and `X-Ratelimit-Remaining`; with a refusal
    /// `X-Ratelimit-Retry-After`, in seconds.
    XRetryAfter,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    XReset(ResetAs),
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`: the IETF's drafts up to the sixth.
    Legacy,
    /// `RateLimit-Policy` and `RateLimit`: the IETF's eleventh draft.
    Draft11,
}

/// The form of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetAs {
    /// Seconds from now, as Envoy sends it.
    #[default]
    DeltaSeconds,
    /// Seconds since the Unix epoch, as GitHub sends it.
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
    /// No fields but `Retry-After` in refusals.
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

    /// The fields for a notice. Without an enforced limit there are none, but for `Retry-After` in a refusal.
    pub fn fields(&self, notice: &Notice<'_>, now: Timestamp) -> Fields {
        Fields(FieldSource::Own(self.write_all(notice, now)))
    }

    /// The fields for a verdict. Those of an admitted request may come from a cache.
    pub fn fields_of(&self, verdict: &Verdict, now: impl FnOnce() -> Timestamp) -> Fields {
        // Refusals are not cached, and an instant changes every second.
        if !verdict.is_admitted() || self.x_reset == Some(ResetAs::EpochSeconds) {
            return self.fields(&Notice::of(verdict), now());
        }
        if verdict.rulings().is_empty() || *self == Self::NONE {
            return Fields::default();
        }
        // None of the other fields depends on the time of day.
        let write = || self.write_all(&Notice::of(verdict), Timestamp::EPOCH);
        Fields(match CachedFields::look_up(*self, verdict) {
            CacheLookup::Hit(cached) => FieldSource::Cached(cached),
            CacheLookup::Miss { again: true } => {
                FieldSource::Cached(CachedFields::insert(*self, verdict, write()))
            }
            CacheLookup::Miss { again: false } => FieldSource::Own(write()),
        })
    }

    fn write_all(&self, notice: &Notice<'_>, now: Timestamp) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = Vec::new();
        if !notice.policies().is_empty() {
            fields.reserve(FIELDS);
        }
        self.write(notice, now, |name, value| fields.push((name, value)));
        fields
    }

    /// Puts the fields for a notice on a response that has none yet.
    pub fn put_on(&self, headers: &mut HeaderMap, notice: &Notice<'_>, now: Timestamp) {
        self.write(notice, now, |name, value| {
            // A map of so few fields never overflows.
            let _ = headers.try_insert(name, value);
        });
    }

    /// Passes the fields for a notice to `put`, one after the other.
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
        let mut texts = PolicyTexts::take(notice);
        self.write_plain(&mut texts, tightest, Moment { retry_after, now }, &mut put);
        if self.draft_11 {
            put(POLICY, texts.policy_field());
            put(RATE_LIMIT, texts.remaining_field(notice));
        }
        texts.put_back();
    }

    /// The sets that have one limit, in plain numbers.
    fn write_plain(
        &self,
        texts: &mut PolicyTexts,
        policy: &Policy<'_>,
        moment: Moment,
        mut put: impl FnMut(HeaderName, HeaderValue),
    ) {
        let decision = policy.decision();
        let reset = policy.reset_after();
        if self.x_retry_after || self.x_reset.is_some() {
            put(X_LIMIT, texts.limit(decision.limit));
            put(X_REMAINING, texts.number(decision.remaining));
        }
        if let Some(seconds) = moment.retry_after.filter(|_| self.x_retry_after) {
            put(X_RETRY_AFTER, texts.number(seconds));
        }
        if let (Some(format), Some(reset)) = (self.x_reset, reset) {
            let seconds = match format {
                ResetAs::DeltaSeconds => reset.as_secs_ceil(),
                ResetAs::EpochSeconds => {
                    Nanos::new(moment.now.after(reset).as_nanos()).as_secs_ceil()
                }
            };
            put(X_RESET, texts.number(seconds));
        }
        if self.legacy {
            put(LEGACY_LIMIT, texts.limit(decision.limit));
            put(LEGACY_REMAINING, texts.number(decision.remaining));
            if let Some(reset) = reset {
                put(LEGACY_RESET, texts.number(reset.as_secs_ceil()));
            }
        }
    }
}

impl Default for HeaderSet {
    fn default() -> Self {
        HeaderSet::NONE.with(HeaderFormat::XRetryAfter).with(HeaderFormat::Draft11)
    }
}

/// When the fields are written, and when to retry.
#[derive(Clone, Copy)]
struct Moment {
    retry_after: Option<u64>,
    now: Timestamp,
}

words! {
    /// Which responses carry rate limit fields.
    #[derive(Default)]
    pub enum HeadersOn {
        /// All, so that clients can slow down before they are refused.
        #[default]
        Always = "always",
        /// Refusals only.
        Refusal = "refusal",
    }
}

/// Header fields, ready to be put on a response.
#[derive(Clone, Debug, Default)]
pub struct Fields(FieldSource);

#[derive(Clone, Debug)]
enum FieldSource {
    /// Written for one response.
    Own(Vec<(HeaderName, HeaderValue)>),
    /// Shared by responses with the same figures.
    Cached(Arc<CachedFields>),
}

impl Default for FieldSource {
    fn default() -> Self {
        FieldSource::Own(Vec::new())
    }
}

impl Fields {
    /// Puts the fields on a response. A field that the response has already stays: the service knows better.
    pub fn add_to(self, headers: &mut HeaderMap) {
        // Scanning the few names that are there costs less than a lookup for each of ours.
        let may_collide = headers.keys().any(may_be_ours);
        match self.0 {
            FieldSource::Own(fields) => {
                for (name, value) in fields {
                    add(headers, may_collide, name, value);
                }
            }
            FieldSource::Cached(cached) => {
                for (name, value) in &cached.fields {
                    add(headers, may_collide, name.clone(), value.clone());
                }
            }
        }
    }

    /// The fields, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let fields = match &self.0 {
            FieldSource::Own(fields) => fields,
            FieldSource::Cached(cached) => &cached.fields,
        };
        fields.iter().map(|(name, value)| (name, value))
    }
}

/// Adds a field unless it is there.
#[inline]
fn add(headers: &mut HeaderMap, may_collide: bool, name: HeaderName, value: HeaderValue) {
    if !(may_collide && headers.contains_key(&name)) {
        // A map with tens of thousands of fields has no room for more.
        let _ = headers.try_insert(name, value);
    }
}

/// Whether a name begins like those of our fields.
fn may_be_ours(name: &HeaderName) -> bool {
    matches!(name.as_str().as_bytes().first(), Some(b'r' | b'x'))
}
