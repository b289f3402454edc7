//! From verdicts to JSON.
//!
//! Each answer is written into one buffer, straight from the verdict. What has
//! nothing to say is left out.

mod object_writer;

use serde::ser::{Serialize, Serializer};
use tidegate_engine::{Algorithm, Basis, Decision, Nanos, Retry, Role, Ruling, Verdict};

use super::permits::{Token, TooManyPermits};
use object_writer::ObjectWriter;
use tidegate_answers::Notice;

/// Room for an answer without decisions, and for each decision.
const ANSWER_BYTES: usize = 160;
const DECISION_BYTES: usize = 160;

/// What a caller is told of a verdict.
#[derive(Debug)]
pub(super) struct Told<'t, 'v> {
    pub(super) domain: &'t str,
    pub(super) notice: &'t Notice<'v>,
    /// Whether every request is admitted, whatever its limits say.
    pub(super) shadow: bool,
    /// The permit for the slots that it holds, if it holds any and there is one to be had.
    pub(super) permit: Result<Option<Token>, TooManyPermits>,
}

impl<'v> Told<'_, 'v> {
    /// Whether the request may go on.
    pub(super) const fn is_admitted(&self) -> bool {
        self.shadow || (!self.notice.is_refusal() && self.permit.is_ok())
    }

    /// Why nobody could decide, if so.
    pub(super) fn undecided(&self) -> Option<String> {
        let no_permit = self.permit.err().map(|error| error.to_string());
        self.notice.verdict().undecided().map(ToString::to_string).or(no_permit)
    }

    /// Adds the answer to a buffer.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let verdict = self.notice.verdict();
        out.reserve(ANSWER_BYTES + DECISION_BYTES * verdict.rulings().len());
        let refused = !self.is_admitted();
        let retry = if refused { self.notice.retry() } else { Retry::Now };
        let admitted_in_shadow = self.shadow && self.notice.is_refusal();
        let delay = some_ms(verdict.delay());
        let mut answer = ObjectWriter::new(out);
        answer.flag("admitted", !refused);
        answer.text("domain", self.domain);
        answer.text("rules_version", Hex::of(verdict.snapshot().version()).as_str());
        if let Some(culprit) = self.refused_by() {
            answer.object("refused_by", |object| culprit.write(object));
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

    /// Adds what a reset did to a buffer.
    pub(super) fn write_reset(&self, out: &mut Vec<u8>) {
        let verdict = self.notice.verdict();
        let mut answer = ObjectWriter::new(out);
        answer.text("domain", self.domain);
        answer.text("rules_version", Hex::of(verdict.snapshot().version()).as_str());
        answer.number("reset", u64::try_from(verdict.rulings().len()).unwrap_or(u64::MAX));
        self.write_circumstances(&mut answer);
        answer.end();
    }

    /// Why a verdict rests on less than its limits.
    fn write_circumstances(&self, answer: &mut ObjectWriter<'_>) {
        answer.some_text("undecided", self.undecided().as_deref());
        answer.flag_if("degraded", self.notice.verdict().is_degraded());
        answer.flag_if("switched_off", self.notice.verdict().is_switched_off());
        answer.flag_if("unknown_domain", self.is_in_unknown_domain());
    }

    fn refused_by(&self) -> Option<Culprit<'v>> {
        let verdict = self.notice.verdict();
        let refused = !self.is_admitted() && self.notice.is_refusal();
        verdict.tightest().filter(|_| refused).map(|ruling| Culprit::of(verdict, ruling))
    }

    fn is_in_unknown_domain(&self) -> bool {
        let verdict = self.notice.verdict();
        let looked = verdict.undecided().is_none() && !verdict.is_switched_off();
        looked && !verdict.domain_is_known()
    }
}

/// A version of the rules: a number too large for many readers of JSON, so a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version(pub(super) u64);

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Hex::of(self.0).as_str())
    }
}

/// A number in sixteen hexadecimal digits.
struct Hex([u8; 16]);

impl Hex {
    fn of(number: u64) -> Self {
        let mut digits = [b'0'; 16];
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            let nibble = (number >> (place * 4)).to_le_bytes()[0] & 0xF;
            *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        }
        Hex(digits)
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Which limit of which descriptor.
struct Culprit<'v> {
    descriptor: u32,
    path: Option<&'v str>,
    limit: Option<&'v str>,
    own_limit: bool,
}

impl<'v> Culprit<'v> {
    fn of(verdict: &'v Verdict, ruling: &Ruling) -> Self {
        let limit = verdict.limit(ruling);
        Culprit {
            descriptor: ruling.descriptor,
            path: verdict.rule(ruling).map(|rule| rule.path()),
            limit: limit.and_then(|limit| limit.name).map(|name| verdict.snapshot().name(name)),
            own_limit: ruling.limit.is_none(),
        }
    }

    fn write(&self, object: &mut ObjectWriter<'_>) {
        object.number("descriptor", u64::from(self.descriptor));
        object.some_text("path", self.path);
        object.some_text("limit", self.limit);
        object.flag_if("own_limit", self.own_limit);
    }
}

/// Writes one limit's decision.
fn write_decision(object: &mut ObjectWriter<'_>, verdict: &Verdict, ruling: &Ruling) {
    let algorithm = verdict.limit(ruling).map(|limit| limit.limit.algorithm());
    // Slots come back when others are done, which nobody can foretell.
    let foreseen = !algorithm.is_some_and(Algorithm::holds_slots);
    let Decision { limit: quota, remaining, retry, reset_after, delay, soft, .. } = ruling.decision;
    Culprit::of(verdict, ruling).write(object);
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
    object.some_number("retry_after_ms", wait_ms(retry).filter(|_| foreseen));
    object.flag_if("never", retry == Retry::Never);
    object.some_number("reset_after_ms", foreseen.then(|| ms(reset_after)));
    object.some_number("delay_ms", some_ms(delay));
    object.flag_if("soft", soft);
    object.some_text("basis", basis(ruling.basis));
}

/// What a decision rests on, where that is not the count of its key.
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
pub(super) const fn ms(span: Nanos) -> u64 {
    span.get().div_ceil(1_000_000)
}

fn some_ms(span: Nanos) -> Option<u64> {
    (span > Nanos::ZERO).then(|| ms(span))
}

const fn wait_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(wait) => Some(ms(wait)),
        Retry::Now | Retry::Never => None,
    }
}
