//! Verdict → answer, whatever the wire format.
//!
//! Follows envoyproxy/ratelimit field by field. A descriptor can match several limits, which upstream does not have; its
//! status then shows the limit that refuses, or else the one with the least remaining. Limits in shadow are shown only if
//! there is no other.

use smallvec::SmallVec;
use tidegate_engine::{Algorithm, Decision, Limit, Retry, Role, Ruling, Verdict};

use super::metadata::{self, Metadata};
use crate::decode::{OverrideLimits, RateLimitRequest};
use crate::settings::RlsSettings;
use crate::unit::UnitNumber;

/// The code of an answer or of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The request could not be decided.
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

impl Code {
    /// The name in the proto file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Code::Unknown => "UNKNOWN",
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        }
    }
}

/// The whole answer.
#[derive(Debug)]
pub(crate) struct Answer<'v> {
    pub(crate) overall: Code,
    /// Whether only the shadow mode of the whole service kept it from being over its limit.
    pub(crate) shadowed: bool,
    /// One status for each descriptor, in their order.
    pub(crate) statuses: SmallVec<[DescriptorStatus<'v>; 12]>,
    /// Header fields for the client.
    pub(crate) headers: Option<[(&'v str, u64); 3]>,
    /// Dynamic metadata for the proxy.
    pub(crate) metadata: Option<Metadata>,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorStatus<'v> {
    pub(crate) code: Code,
    pub(crate) current_limit: Option<CurrentLimit<'v>>,
    pub(crate) remaining: u32,
    /// Seconds until the limit resets; only with a limit.
    pub(crate) reset_seconds: u64,
    /// Whether it counts in quota mode: a limit applies, or it is unlimited.
    pub(crate) counts: bool,
    /// Whether the limit alone refuses the request: it is over, and neither a quota nor in shadow.
    pub(crate) refuses: bool,
}

/// The limit that a status shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentLimit<'v> {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: UnitNumber,
    pub(crate) name: &'v str,
}

impl<'v> DescriptorStatus<'v> {
    /// The status of a descriptor that no limit applies to.
    const fn bare(code: Code) -> Self {
        DescriptorStatus {
            code,
            current_limit: None,
            remaining: 0,
            reset_seconds: 0,
            counts: false,
            refuses: false,
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
        let enforced = ruling.role != Role::Observed;
        DescriptorStatus {
            code: if refused && enforced { Code::OverLimit } else { Code::Ok },
            current_limit: Some(CurrentLimit {
                requests_per_unit: saturated(limit.algorithm().quota()),
                unit,
                name,
            }),
            remaining: if refused { 0 } else { saturated(decision.remaining) },
            reset_seconds: reset_seconds(limit.algorithm(), decision),
            counts: true,
            refuses: refused && ruling.role == Role::Required,
        }
    }
}

impl<'v> Answer<'v> {
    /// What to tell of a verdict. `limits` are the limits that the request carried along.
    pub(crate) fn of(
        verdict: &'v Verdict,
        request: &RateLimitRequest<'_>,
        limits: &OverrideLimits,
        settings: &'v RlsSettings,
    ) -> Self {
        let mut answer = Answer {
            overall: Code::Ok,
            shadowed: false,
            statuses: SmallVec::new(),
            headers: None,
            metadata: None,
        };
        answer.fill_statuses(verdict, request, limits);
        let over = if settings.quota && verdict.undecided().is_none() {
            answer.has_no_quota_left()
        } else {
            !verdict.is_admitted()
        };
        if let Some(names) = &settings.response_headers {
            answer.headers = answer.headers(names.each(), settings.quota);
        }
        if settings.dynamic_metadata {
            answer.metadata = Some(metadata::of(verdict, request, &answer.statuses, settings));
        }
        // Shadow mode changes the overall code only: the statuses show what would have been.
        answer.overall = if over && !settings.shadow { Code::OverLimit } else { Code::Ok };
        answer.shadowed = over && settings.shadow;
        answer
    }

    #[inline]
    fn fill_statuses(
        &mut self,
        verdict: &'v Verdict,
        request: &RateLimitRequest<'_>,
        limits: &OverrideLimits,
    ) {
        let mut met = verdict.matched_rules();
        let mut limits = limits.iter();
        // In the order of the descriptors.
        let mut rulings = verdict.rulings();
        let unmet = match verdict.undecided() {
            // An outage does not mean that the client is over its limit.
            Some(_) if !verdict.is_admitted() => Code::Unknown,
            _ => Code::Ok,
        };
        for (index, descriptor) in (0_u32..).zip(request.descriptors()) {
            let rule = met.next().flatten();
            let carried = descriptor.limit.and_then(|_| limits.next());
            let of_this = rulings.iter().take_while(|ruling| ruling.descriptor == index).count();
            let (of_this, rest) = rulings.split_at(of_this);
            rulings = rest;
            let status = match (carried, shown_ruling(of_this)) {
                (Some(limit), Some(ruling)) => {
                    let unit = descriptor.limit.and_then(|limit| UnitNumber::read(limit.unit));
                    Some(DescriptorStatus::ruled(ruling, limit, UnitNumber::of(unit), ""))
                }
                (None, Some(ruling)) => DescriptorStatus::of_rule(verdict, ruling),
                // Also if another rule of the request replaces it: upstream replaces limits only.
                (_, None) => rule
                    .filter(|rule| rule.exemption().is_some())
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

    /// The header fields: of the last limit that refuses alone, or else of the first with the least remaining. A limit
    /// of which 2³²−1 remain is not described.
    fn headers(&self, names: [&'v str; 3], all_quotas: bool) -> Option<[(&'v str, u64); 3]> {
        let refuses = |status: &&DescriptorStatus<'_>| status.refuses && !all_quotas;
        let limited = self.statuses.iter().filter(|status| status.current_limit.is_some());
        let described = limited.filter(|status| status.remaining < u32::MAX);
        let least = || described.min_by_key(|status| status.remaining);
        let shown = self.statuses.iter().rfind(refuses).or_else(least)?;
        let limit = shown.current_limit?;
        let [limit_name, remaining_name, reset_name] = names;
        Some([
            (limit_name, u64::from(limit.requests_per_unit)),
            (remaining_name, u64::from(shown.remaining)),
            (reset_name, shown.reset_seconds),
        ])
    }
}

/// The ruling that the status of a descriptor shows.
#[inline]
fn shown_ruling(rulings: &[Ruling]) -> Option<&Ruling> {
    let [first, rest @ ..] = rulings else { return None };
    let rank = |ruling: &Ruling| {
        let refused = !ruling.decision.is_admitted();
        let remaining = if refused { 0 } else { ruling.decision.remaining };
        (ruling.role == Role::Observed, !refused, remaining)
    };
    // The first wins a tie.
    Some(rest.iter().fold(first, |best, next| if rank(next) < rank(best) { next } else { best }))
}

/// Seconds until the limit resets, rounded up. For a fixed window until its end, at least one; for other algorithms
/// until the refused request would fit, or else until nothing is used.
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
