//! What a call is told: from a verdict to an answer, whatever the wire.
//!
//! Follows envoyproxy/ratelimit field by field. Where a descriptor meets
//! several limits, which upstream does not know, its status shows the one that
//! refuses, or else the one with the least remaining; limits in shadow only
//! where there is no other.

use smallvec::SmallVec;
use tidegate_engine::{Algorithm, Decision, Limit, Retry, Role, Rule, Ruling, Verdict};

use super::asked::{Asked, OwnLimits};
use super::metadata::{self, Metadata};
use super::settings::RlsSettings;
use super::unit::UnitNumber;

/// An answer's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Nobody could decide.
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

impl Code {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Code::Unknown => "UNKNOWN",
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        }
    }
}

/// The whole answer.
#[derive(Debug)]
pub(super) struct Answer<'v> {
    pub(super) overall: Code,
    /// Whether it would be over its limit, were it not for the shadow mode of
    /// the whole service.
    pub(super) shadowed: bool,
    /// One for each descriptor, in their order.
    pub(super) statuses: SmallVec<[DescriptorStatus<'v>; 12]>,
    /// Fields for the client.
    pub(super) headers: Option<[(&'v str, u64); 3]>,
    /// For the proxy.
    pub(super) metadata: Option<Metadata>,
}

/// What one descriptor came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorStatus<'v> {
    pub(super) code: Code,
    pub(super) current_limit: Option<CurrentLimit<'v>>,
    pub(super) remaining: u32,
    /// How many seconds until the limit starts over; only with a limit.
    pub(super) reset_seconds: u64,
    /// Whether it may refuse, or admits because it is unlimited.
    pub(super) counts: bool,
}

/// The limit that a status tells of.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentLimit<'v> {
    pub(super) requests_per_unit: u32,
    pub(super) unit: UnitNumber,
    pub(super) name: &'v str,
}

impl<'v> DescriptorStatus<'v> {
    /// Of a descriptor that no limit applies to.
    const fn bare(code: Code) -> Self {
        DescriptorStatus {
            code,
            current_limit: None,
            remaining: 0,
            reset_seconds: 0,
            counts: false,
        }
    }

    const fn unlimited() -> Self {
        DescriptorStatus { remaining: u32::MAX, counts: true, ..Self::bare(Code::Ok) }
    }

    #[inline]
    fn of_rule(verdict: &'v Verdict, ruling: &Ruling) -> Option<Self> {
        let limit = verdict.limit(ruling)?;
        let name = limit.name.map_or("", |name| verdict.snapshot().name(name));
        Some(Self::ruled(ruling, &limit.limit, UnitNumber::of(limit.unit), name))
    }

    #[inline]
    fn ruled(ruling: &Ruling, limit: &Limit, unit: UnitNumber, name: &'v str) -> Self {
        let decision = &ruling.decision;
        let refused = !decision.is_admitted();
        let counts = ruling.role != Role::Observed;
        DescriptorStatus {
            code: if refused && counts { Code::OverLimit } else { Code::Ok },
            current_limit: Some(CurrentLimit {
                requests_per_unit: saturated(limit.algorithm().quota()),
                unit,
                name,
            }),
            remaining: if refused { 0 } else { saturated(decision.remaining) },
            reset_seconds: reset_seconds(limit.algorithm(), decision),
            counts,
        }
    }
}

impl<'v> Answer<'v> {
    /// What to tell of a verdict. `own` are the limits that the request brought along.
    pub(super) fn of(
        verdict: &'v Verdict,
        asked: &Asked<'_>,
        own: &OwnLimits,
        settings: &'v RlsSettings,
    ) -> Self {
        let mut answer = Answer {
            overall: Code::Ok,
            shadowed: false,
            statuses: SmallVec::new(),
            headers: None,
            metadata: None,
        };
        answer.fill_statuses(verdict, asked, own);
        let over = if settings.quota && verdict.undecided().is_none() {
            answer.has_no_quota_left()
        } else {
            !verdict.is_admitted()
        };
        if let Some(names) = &settings.response_headers {
            answer.headers = answer.headers(names.each(), over);
        }
        if settings.dynamic_metadata {
            answer.metadata = Some(metadata::of(verdict, asked, &answer.statuses, settings));
        }
        // In shadow only the whole is turned: the statuses say what would have been.
        answer.overall = if over && !settings.shadow { Code::OverLimit } else { Code::Ok };
        answer.shadowed = over && settings.shadow;
        answer
    }

    #[inline]
    fn fill_statuses(&mut self, verdict: &'v Verdict, asked: &Asked<'_>, own: &OwnLimits) {
        let mut met = verdict.met();
        let mut own = own.iter();
        // In the order of the descriptors.
        let mut rulings = verdict.rulings();
        let unmet = match verdict.undecided() {
            // An outage is not the client's excess.
            Some(_) if !verdict.is_admitted() => Code::Unknown,
            _ => Code::Ok,
        };
        for (index, part) in (0_u32..).zip(asked.parts()) {
            let rule = met.next().flatten();
            let brought = part.limit.and_then(|_| own.next());
            let of_this = rulings.iter().take_while(|ruling| ruling.descriptor == index).count();
            let (of_this, rest) = rulings.split_at(of_this);
            rulings = rest;
            let status = match (brought, shown(of_this)) {
                (Some(limit), Some(ruling)) => {
                    let unit = part.limit.and_then(|limit| UnitNumber::read(limit.unit));
                    Some(DescriptorStatus::ruled(ruling, limit, UnitNumber::of(unit), ""))
                }
                (None, Some(ruling)) => DescriptorStatus::of_rule(verdict, ruling),
                (_, None) => rule
                    .filter(|rule| is_exempt(verdict, rule))
                    .map(|_| DescriptorStatus::unlimited()),
            };
            self.statuses.push(status.unwrap_or(DescriptorStatus::bare(unmet)));
        }
    }

    /// Whether every descriptor that a limit applies to is over it.
    fn has_no_quota_left(&self) -> bool {
        let mut counting = self.statuses.iter().filter(|status| status.counts).peekable();
        counting.peek().is_some() && counting.all(|status| status.code == Code::OverLimit)
    }

    /// Tells of the status with the least remaining, or of the last that refused.
    fn headers(&self, names: [&'v str; 3], over: bool) -> Option<[(&'v str, u64); 3]> {
        let limited = || self.statuses.iter().filter(|status| status.current_limit.is_some());
        let last_over = limited().rfind(|status| over && status.code == Code::OverLimit);
        let told = last_over.or_else(|| limited().min_by_key(|status| status.remaining))?;
        let limit = told.current_limit?;
        let [limit_name, remaining_name, reset_name] = names;
        Some([
            (limit_name, u64::from(limit.requests_per_unit)),
            (remaining_name, u64::from(told.remaining)),
            (reset_name, told.reset_seconds),
        ])
    }
}

/// The ruling of a descriptor that its status tells of.
#[inline]
fn shown(rulings: &[Ruling]) -> Option<&Ruling> {
    let [first, rest @ ..] = rulings else { return None };
    let rank = |ruling: &Ruling| {
        let refused = !ruling.decision.is_admitted();
        let remaining = if refused { 0 } else { ruling.decision.remaining };
        (ruling.role == Role::Observed, !refused, remaining)
    };
    // The first wins a tie.
    Some(rest.iter().fold(first, |best, next| if rank(next) < rank(best) { next } else { best }))
}

/// Whether an unlimited rule applies: another rule of the request may replace it.
#[cold]
fn is_exempt(verdict: &Verdict, rule: &Rule) -> bool {
    let Some(exemption) = rule.exemption() else { return false };
    let Some(name) = exemption.name else { return true };
    let snapshot = verdict.snapshot();
    !verdict.met().flatten().any(|other| {
        let exempt = other.exemption().map(|exemption| &exemption.replaces);
        let limited = snapshot.limits_of(other).iter().map(|limit| &limit.replaces);
        exempt.into_iter().chain(limited).any(|replaced| replaced.contains(&name))
    })
}

/// Whole seconds, rounded up: to the end of a fixed window, at least one; with
/// other algorithms until the refused request would fit, or else until nothing
/// is used.
#[inline]
fn reset_seconds(algorithm: &Algorithm, decision: &Decision) -> u64 {
    if algorithm.resets_at_once() {
        return decision.reset_after.as_secs_ceil().max(1);
    }
    match decision.retry {
        Retry::After(wait) => wait.as_secs_ceil().max(1),
        Retry::Now | Retry::Never => decision.reset_after.as_secs_ceil(),
    }
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
