//! From a notice to header fields.
//!
//! There is no one standard, so the set is chosen: two de-facto sets, the old
//! drafts of the IETF and the present one. `Retry-After` is in every refusal.
//! All values are written into one buffer and share it, but for the one that
//! says what limits there are: that is written once and remembered.
//!
//! Field names are the same in any case, so the two sets that begin with
//! `X-RateLimit` go together: they share their first two fields.

mod number;
mod remembered;
mod structured;

use bytes::Bytes;
use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;
use tidegate_engine::{Nanos, Timestamp};

use crate::notice::{Notice, Policy};
pub(crate) use number::write_number;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const LEGACY_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Room for the default set with three limits of usual names.
const BUFFER_BYTES: usize = 256;
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
/// use tidegate_doors::{HeaderFormat, HeaderSet, ResetAs};
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
        let written = self.write(notice, now).map(Writer::finish);
        Fields(written.map(SmallVec::into_vec).unwrap_or_default())
    }

    /// Puts the fields for a notice on an answer that has none yet.
    #[cfg(feature = "http-api")]
    pub(crate) fn put_on(&self, headers: &mut HeaderMap, notice: &Notice<'_>, now: Timestamp) {
        let Some(writer) = self.write(notice, now) else { return };
        for (name, value) in writer.finish() {
            // There is room: these are all.
            let _ = headers.try_insert(name, value);
        }
    }

    fn write(&self, notice: &Notice<'_>, now: Timestamp) -> Option<Writer> {
        let retry_after = notice.retry_after_seconds();
        let tightest = notice.tightest();
        if retry_after.is_none() && (tightest.is_none() || *self == Self::NONE) {
            return None;
        }
        let mut writer = Writer::new();
        if let Some(seconds) = retry_after {
            writer.number(RETRY_AFTER, seconds);
        }
        if let Some(policy) = tightest {
            self.write_plain(&mut writer, policy, retry_after, now);
        }
        if self.draft_11 && tightest.is_some() {
            writer.ready(POLICY, remembered::policies(notice));
            writer.field(RATE_LIMIT, |out| structured::write_available(out, notice));
        }
        Some(writer)
    }

    /// The sets that tell of one limit, in plain numbers.
    fn write_plain(
        &self,
        writer: &mut Writer,
        policy: &Policy<'_>,
        retry_after: Option<u64>,
        now: Timestamp,
    ) {
        let decision = policy.decision();
        let reset = policy.reset_after();
        if self.x_retry_after || self.x_reset.is_some() {
            writer.number(X_LIMIT, decision.limit);
            writer.number(X_REMAINING, decision.remaining);
        }
        if let Some(seconds) = retry_after.filter(|_| self.x_retry_after) {
            writer.number(X_RETRY_AFTER, seconds);
        }
        if let (Some(format), Some(reset)) = (self.x_reset, reset) {
            let seconds = match format {
                ResetAs::DeltaSeconds => reset.as_secs_ceil(),
                ResetAs::EpochSeconds => Nanos::new(now.after(reset).as_nanos()).as_secs_ceil(),
            };
            writer.number(X_RESET, seconds);
        }
        if self.legacy {
            writer.number(LEGACY_LIMIT, decision.limit);
            writer.number(LEGACY_REMAINING, decision.remaining);
            if let Some(reset) = reset {
                writer.number(LEGACY_RESET, reset.as_secs_ceil());
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
pub struct Fields(Vec<(HeaderName, HeaderValue)>);

impl Fields {
    /// Puts the fields on an answer. A field that the answer has stays as it
    /// is: whoever is nearer to the resource knows better.
    pub fn add_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.0 {
            add(headers, name, value);
        }
    }

    /// The fields, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

/// Adds a field unless it is there.
fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    // An answer with tens of thousands of fields has no room for more.
    if let Ok(Entry::Vacant(vacant)) = headers.try_entry(name) {
        let _ = vacant.try_insert(value);
    }
}

/// Fields that were written, in place: an answer that is made at once needs no list of them.
type Written = SmallVec<[(HeaderName, HeaderValue); FIELDS]>;

/// Writes values one after the other into one buffer.
struct Writer {
    buffer: Vec<u8>,
    /// Without their values, as long as those are being written.
    fields: Written,
    /// Where the value of each field ends in the buffer; nowhere if it was there already.
    ends: SmallVec<[Option<usize>; FIELDS]>,
}

impl Writer {
    fn new() -> Self {
        Writer {
            buffer: Vec::with_capacity(BUFFER_BYTES),
            fields: SmallVec::new(),
            ends: SmallVec::new(),
        }
    }

    fn number(&mut self, name: HeaderName, number: u64) {
        self.field(name, |out| write_number(out, number));
    }

    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.fields.push((name, HeaderValue::from_static("")));
        self.ends.push(Some(self.buffer.len()));
    }

    fn ready(&mut self, name: HeaderName, value: HeaderValue) {
        self.fields.push((name, value));
        self.ends.push(None);
    }

    /// The fields. The values that were written are parts of the one buffer.
    fn finish(self) -> Written {
        let Writer { buffer, mut fields, ends } = self;
        let buffer = Bytes::from(buffer);
        let mut begin = 0;
        for ((_, value), end) in fields.iter_mut().zip(ends) {
            let Some(end) = end else { continue };
            // Everything written is printable, so nothing is left empty in truth.
            if let Ok(written) = HeaderValue::from_maybe_shared(buffer.slice(begin..end)) {
                *value = written;
            }
            begin = end;
        }
        fields
    }
}
