//! From verdicts to JSON.
//!
//! Each answer is written into one buffer, straight from the verdict. What has
//! nothing to say is left out.

use serde::ser::{Serialize, Serializer};
use tidegate_engine::{Algorithm, Basis, Decision, Nanos, Retry, Role, Ruling, Verdict};

use super::permits::{Token, TooManyPermits};
use crate::notice::Notice;

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
        let answer = Answer {
            admitted: !refused,
            domain: self.domain,
            rules_version: Version(verdict.snapshot().version()),
            refused_by: self.refused_by(),
            retry_after_ms: wait_ms(retry),
            never: retry == Retry::Never,
            delay_ms: some_ms(if refused { Nanos::ZERO } else { verdict.delay() }),
            soft: verdict.is_soft() && !refused,
            refused_in_shadow: verdict.refused_in_shadow() || admitted_in_shadow,
            undecided: self.undecided(),
            switched_off: verdict.is_switched_off(),
            unknown_domain: self.is_in_unknown_domain(),
            permit: self.permit.ok().flatten().map(Shown),
            decisions: Decisions(verdict),
        };
        // Strings and numbers always serialize, and memory takes them.
        let _ = serde_json::to_writer(out, &answer);
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

/// What a reset did.
pub(super) fn write_reset(told: &Told<'_, '_>, out: &mut Vec<u8>) {
    let verdict = told.notice.verdict();
    let answer = Reset {
        domain: told.domain,
        rules_version: Version(verdict.snapshot().version()),
        reset: verdict.rulings().len(),
        undecided: told.undecided(),
        switched_off: verdict.is_switched_off(),
        unknown_domain: told.is_in_unknown_domain(),
    };
    let _ = serde_json::to_writer(out, &answer);
}

/// A version of the rules: a number too large for many readers of JSON, so a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version(pub(super) u64);

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

#[derive(serde::Serialize)]
struct Reset<'v> {
    domain: &'v str,
    rules_version: Version,
    reset: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    switched_off: bool,
    #[serde(skip_serializing_if = "is_false")]
    unknown_domain: bool,
}

#[derive(serde::Serialize)]
struct Answer<'v> {
    admitted: bool,
    domain: &'v str,
    rules_version: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_by: Option<Culprit<'v>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    never: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    soft: bool,
    #[serde(skip_serializing_if = "is_false")]
    refused_in_shadow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    switched_off: bool,
    #[serde(skip_serializing_if = "is_false")]
    unknown_domain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<Shown>,
    decisions: Decisions<'v>,
}

/// Who refused.
#[derive(serde::Serialize)]
struct Culprit<'v> {
    descriptor: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'v str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'v str>,
    #[serde(skip_serializing_if = "is_false")]
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
}

struct Decisions<'v>(&'v Verdict);

impl Serialize for Decisions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rulings = self.0.rulings().iter();
        serializer.collect_seq(rulings.map(|ruling| DecisionTold::of(self.0, ruling)))
    }
}

/// One limit's decision.
#[derive(serde::Serialize)]
struct DecisionTold<'v> {
    descriptor: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'v str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'v str>,
    #[serde(skip_serializing_if = "is_false")]
    own_limit: bool,
    admitted: bool,
    role: &'static str,
    quota: u64,
    remaining: u64,
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    never: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    soft: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    basis: Option<&'static str>,
}

impl<'v> DecisionTold<'v> {
    fn of(verdict: &'v Verdict, ruling: &Ruling) -> Self {
        let limit = verdict.limit(ruling);
        let algorithm = limit.map(|limit| limit.limit.algorithm());
        // Slots come back when others are done, which nobody can foretell.
        let foreseen = !matches!(algorithm, Some(Algorithm::Concurrency(_)));
        let Decision { limit: quota, remaining, retry, reset_after, delay, soft, .. } =
            ruling.decision;
        let Culprit { descriptor, path, limit, own_limit } = Culprit::of(verdict, ruling);
        DecisionTold {
            descriptor,
            path,
            limit,
            own_limit,
            admitted: ruling.decision.is_admitted(),
            role: match ruling.role {
                Role::Required => "required",
                Role::Alternative => "alternative",
                Role::Observed => "shadow",
            },
            quota,
            remaining,
            cost: ruling.cost,
            retry_after_ms: wait_ms(retry).filter(|_| foreseen),
            never: retry == Retry::Never,
            reset_after_ms: foreseen.then(|| ms(reset_after)),
            delay_ms: some_ms(delay),
            soft,
            basis: match ruling.basis {
                Basis::Exact => None,
                Basis::Shared => Some("shared"),
                Basis::Full => Some("full"),
                Basis::Leased => Some("leased"),
                Basis::Eventual => Some("eventual"),
                Basis::Local => Some("local"),
                Basis::Unasked => Some("unasked"),
            },
        }
    }
}

/// A token as text.
struct Shown(Token);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the serializer hands out references")]
const fn is_false(value: &bool) -> bool {
    !*value
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
