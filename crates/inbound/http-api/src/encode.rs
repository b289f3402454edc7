//! Verdict → JSON.
//!
//! An answer is written into one buffer, directly from the verdict. Members that are false, zero or absent are left out
//! where the OpenAPI document says so.

mod json_writer;
pub(crate) mod response;

use serde::ser::{Serialize, Serializer};
use tidegate_access::RandomId;
use tidegate_engine::{Algorithm, Basis, Decision, Nanos, Retry, Role, Ruling, Verdict};

use crate::permits::TooManyPermits;
use json_writer::JsonWriter;
use tidegate_answers::Notice;

/// Room for an answer without decisions, and for each decision.
const ANSWER_BYTES: usize = 160;
const DECISION_BYTES: usize = 160;

/// The answer to one request.
#[derive(Debug)]
pub(crate) struct DecisionBody<'t, 'v> {
    pub(crate) domain: &'t str,
    pub(crate) notice: &'t Notice<'v>,
    /// Whether every request is admitted, whatever its limits say.
    pub(crate) shadow: bool,
    /// The permit for the slots that the request holds, if any.
    pub(crate) permit: Result<Option<RandomId>, TooManyPermits>,
}

impl<'v> DecisionBody<'_, 'v> {
    /// Whether the request is admitted.
    pub(crate) const fn is_admitted(&self) -> bool {
        self.shadow || (!self.notice.is_refusal() && self.permit.is_ok())
    }

    /// Why the request could not be decided, if so.
    pub(crate) fn undecided(&self) -> Option<String> {
        let no_permit = self.permit.err().map(|error| error.to_string());
        self.notice.verdict().undecided().map(ToString::to_string).or(no_permit)
    }

    /// Appends the answer to a buffer.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let verdict = self.notice.verdict();
        out.reserve(ANSWER_BYTES + DECISION_BYTES * verdict.rulings().len());
        let refused = !self.is_admitted();
        let retry = if refused { self.notice.retry() } else { Retry::Now };
        let admitted_in_shadow = self.shadow && self.notice.is_refusal();
        let delay = some_ms(verdict.delay());
        let mut answer = JsonWriter::new(out);
        answer.flag("admitted", !refused);
        answer.text("domain", self.domain);
        answer.text("rules_version", Hex::of(verdict.snapshot().version()).as_str());
        if let Some(limit) = self.refused_by() {
            answer.object("refused_by", |object| limit.write(object));
        }
        answer.some_number("retry_after_ms", wait_ms(retry));
        answer.flag_if("never", retry == Retry::Never);
        answer.some_number("delay_ms", delay.filter(|_| !refused));
        answer.flag_if("soft", verdict.is_soft() && !refused);
        answer.flag_if("refused_in_shadow", verdict.refused_in_shadow() || admitted_in_shadow);
        self.write_circumstances(&mut answer);
        if let Ok(Some(token)) = self.permit {
            answer.text("permit", &token.to_string());
        }
        answer.objects("decisions", verdict.rulings(), |ruling, object| {
            write_decision(object, verdict, ruling);
        });
        answer.end();
    }

    /// Appends the answer to a reset to a buffer.
    pub(crate) fn write_reset(&self, out: &mut Vec<u8>) {
        let verdict = self.notice.verdict();
        let mut answer = JsonWriter::new(out);
        answer.text("domain", self.domain);
        answer.text("rules_version", Hex::of(verdict.snapshot().version()).as_str());
        answer.number("reset", u64::try_from(verdict.rulings().len()).unwrap_or(u64::MAX));
        self.write_circumstances(&mut answer);
        answer.end();
    }

    /// Writes why the verdict is not the plain decision of its limits.
    fn write_circumstances(&self, answer: &mut JsonWriter<'_>) {
        answer.some_text("undecided", self.undecided().as_deref());
        answer.flag_if("degraded", self.notice.verdict().is_degraded());
        answer.flag_if("switched_off", self.notice.verdict().is_switched_off());
        answer.flag_if("unknown_domain", self.is_in_unknown_domain());
    }

    fn refused_by(&self) -> Option<LimitRef<'v>> {
        let verdict = self.notice.verdict();
        let refused = !self.is_admitted() && self.notice.is_refusal();
        verdict.tightest().filter(|_| refused).map(|ruling| LimitRef::of(verdict, ruling))
    }

    fn is_in_unknown_domain(&self) -> bool {
        let verdict = self.notice.verdict();
        let evaluated = verdict.undecided().is_none() && !verdict.is_switched_off();
        evaluated && !verdict.domain_is_known()
    }
}

/// A version of the rules. A string, because many JSON parsers cannot represent the number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version(pub(crate) u64);

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Hex::of(self.0).as_str())
    }
}

/// A number as sixteen hexadecimal digits.
struct Hex([u8; 16]);

impl Hex {
    fn of(number: u64) -> Self {
        let mut digits = [b'0'; 16];
        for (index, digit) in digits.iter_mut().rev().enumerate() {
            let nibble = (number >> (index * 4)).to_le_bytes()[0] & 0xF;
            *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        }
        Hex(digits)
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A limit, and the descriptor that it applies to.
struct LimitRef<'v> {
    descriptor: u32,
    path: Option<&'v str>,
    limit: Option<&'v str>,
    own_limit: bool,
}

impl<'v> LimitRef<'v> {
    fn of(verdict: &'v Verdict, ruling: &Ruling) -> Self {
        let limit = verdict.limit(ruling);
        LimitRef {
            descriptor: ruling.descriptor,
            path: verdict.rule(ruling).map(|rule| rule.path()),
            limit: limit.and_then(|limit| limit.name).map(|name| verdict.snapshot().name(name)),
            own_limit: ruling.limit.is_none(),
        }
    }

    fn write(&self, object: &mut JsonWriter<'_>) {
        object.number("descriptor", u64::from(self.descriptor));
        object.some_text("path", self.path);
        object.some_text("limit", self.limit);
        object.flag_if("own_limit", self.own_limit);
    }
}

/// Writes one limit's decision.
fn write_decision(object: &mut JsonWriter<'_>, verdict: &Verdict, ruling: &Ruling) {
    let algorithm = verdict.limit(ruling).map(|limit| limit.limit.algorithm());
    // When a slot is freed cannot be predicted.
    let predictable = !algorithm.is_some_and(Algorithm::holds_slots);
    let Decision { limit: quota, remaining, retry, reset_after, delay, soft, .. } = ruling.decision;
    LimitRef::of(verdict, ruling).write(object);
    object.flag("admitted", ruling.decision.is_admitted());
    let role = match ruling.role {
        Role::Required => "required",
        Role::Alternative => "alternative",
        Role::Observed => "shadow",
    };
    object.text("role", role);
    object.number("quota", quota);
    object.number("remaining", remaining);
    object.number("cost", ruling.cost);
    object.some_number("retry_after_ms", wait_ms(retry).filter(|_| predictable));
    object.flag_if("never", retry == Retry::Never);
    object.some_number("reset_after_ms", predictable.then(|| ms(reset_after)));
    object.some_number("delay_ms", some_ms(delay));
    object.flag_if("soft", soft);
    object.some_text("basis", basis(ruling.basis));
}

/// The basis of a decision, unless it is the exact count of its key.
const fn basis(basis: Basis) -> Option<&'static str> {
    match basis {
        Basis::Exact => None,
        Basis::Shared => Some("shared"),
        Basis::Full => Some("full"),
        Basis::Leased => Some("leased"),
        Basis::Eventual => Some("eventual"),
        Basis::Local => Some("local"),
        Basis::Unasked => Some("unasked"),
    }
}

/// Milliseconds, rounded up: waiting that long is enough.
pub(crate) const fn ms(span: Nanos) -> u64 {
    span.get().div_ceil(1_000_000)
}

fn some_ms(span: Nanos) -> Option<u64> {
    (span > Nanos::ZERO).then(|| ms(span))
}

pub(crate) const fn wait_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(wait) => Some(ms(wait)),
        Retry::Now | Retry::Never => None,
    }
}
