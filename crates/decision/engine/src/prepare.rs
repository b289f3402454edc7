//! Prepares the checks of a request: matches its descriptors and lists what to ask the store.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{CallerMode, Clock, Holder, Limit, Percent, Tenure, Timestamp};
use tidegate_rules::{Domain, Entry, KeyValue, LimitId, NameId, RuleId, Snapshot, Values};
use tidegate_stores::{Batch, Charge, Check, Fingerprint, Fingerprinter, Key, Policy, Role, Verb};
use xxhash_rust::xxh3::xxh3_64;

use crate::active_rules::{ActiveRules, HotLimit};
use crate::engine::Engine;
use crate::request::Request;
use crate::verdict::{MatchedRules, Ruling, Rulings};

/// A request may have up to this many descriptors, unless the engine is built
/// [`with_descriptors_max`](crate::Engine::with_descriptors_max); see
/// [`Undecided::TooManyDescriptors`](crate::Undecided::TooManyDescriptors).
pub const DESCRIPTORS_MAX: usize = 1_000;

/// A verdict has inline room for this many descriptors.
const INLINE_DESCRIPTORS: usize = 2;

/// Separates the counters of limits that requests carry from those of rules.
const OWN_LIMITS: u64 = 0x6F77_6E5F_6C69_6D69;

/// One call of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'c, 'r> {
    pub(crate) verb: Verb,
    pub(crate) request: &'c Request<'r>,
    /// For how long slots of concurrency limits are taken.
    pub(crate) tenure: Tenure,
}

/// The checks of a request, ready for the store. Each has a ruling, begun when its limit is matched and finished by
/// the store's answer.
#[derive(Debug)]
pub(crate) struct PreparedChecks<'s, 'c> {
    pub(crate) charge: Charge,
    /// How long the store may take, if the rules say so.
    pub(crate) deadline: Option<Duration>,
    pub(crate) now: Timestamp,
    /// In the order of the verdict's rulings. Borrowed, because moving the list would copy it.
    pub(crate) checks: &'c mut Checks<'s>,
    /// The checks' counter names, if the store needs them.
    pub(crate) names: Vec<String>,
    /// Boxed, because few requests have refunds.
    pub(crate) refund: Option<Box<RefundChecks<'s>>>,
}

/// Checks that are decided in one step.
pub(crate) type Checks<'s> = SmallVec<[Check<'s>; 4]>;

/// The checks of descriptors that refund.
#[derive(Debug, Default)]
pub(crate) struct RefundChecks<'s> {
    pub(crate) checks: Checks<'s>,
    /// In the order of the checks.
    pub(crate) rulings: Box<Rulings>,
    pub(crate) names: Vec<String>,
}

/// The parts of a verdict that matching fills.
#[derive(Debug)]
pub(crate) struct VerdictParts<'v> {
    pub(crate) domain_known: &'v mut bool,
    pub(crate) matched: &'v mut MatchedRules,
    pub(crate) rulings: &'v mut Rulings,
}

/// The match of a request's only descriptor, when the fast path has found it already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownMatch<'k, 's> {
    pub(crate) rule: Option<RuleId>,
    pub(crate) values: &'k [KeyValue<'s>],
}

/// A limit that a descriptor matched, with the cost of the descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedLimit<'s> {
    pub(crate) limit: &'s HotLimit,
    /// The rule's.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cost: u64,
    pub(crate) role: Role,
}

impl<S, C: Clock> Engine<S, C> {
    /// Matches a request that is not decided: the rules, and the rulings and checks of their limits.
    pub(crate) fn match_only<'s>(
        &self,
        rules: &'s ActiveRules,
        call: &Call<'_, 's>,
    ) -> (MatchedRules, Rulings, Checks<'s>) {
        let (mut matched, mut rulings) = (MatchedRules::new(), Rulings::new());
        let (domain_known, mut checks) = (&mut false, Checks::new());
        let mut parts = VerdictParts { domain_known, matched: &mut matched, rulings: &mut rulings };
        self.gather(rules, call, None, &mut parts, &mut PreparedChecks::new(&mut checks));
        (matched, rulings, checks)
    }

    /// Matches every descriptor and lists the checks of the limits that they match.
    pub(crate) fn gather<'s>(
        &self,
        rules: &'s ActiveRules,
        call: &Call<'_, 's>,
        known: Option<KnownMatch<'_, 's>>,
        verdict: &mut VerdictParts<'_>,
        prepared: &mut PreparedChecks<'s, '_>,
    ) {
        let (fingerprinter, request) = (&self.fingerprinter, call.request);
        let Some(domain) = find_domain(rules, request, verdict, prepared) else { return };
        let now = self.clock().now();
        prepared.now = now;
        let (mut replaced, mut quota_in_shadow) = (ReplacedNames::new(), false);
        for (index, descriptor) in (0_u32..).zip(request.descriptors) {
            let cost = descriptor.cost.unwrap_or(request.cost);
            if let Some(limit) = descriptor.limit {
                verdict.matched.push(None);
                let key =
                    key_of_own_limit(fingerprinter, request.domain, descriptor.entries, limit);
                let policy = Policy { on_store_error: self.on_store_error, ..Policy::default() };
                let check = Check { policy, ..Check::new(key, limit, cost) };
                prepared.push_own(verdict.rulings, index, descriptor.refund, check);
                continue;
            }
            let mut fresh = Values::new();
            let KnownMatch { rule: id, values } = known.unwrap_or_else(|| KnownMatch {
                rule: domain.find_id(descriptor.entries, now, &mut fresh),
                values: &fresh,
            });
            verdict.matched.push(id);
            let Some(rule) = id.and_then(|id| rules.rule(id)) else { continue };
            if rule.is_exempt {
                replace_by_exemption(rules, id, &mut replaced);
            }
            let limits = &*rule.limits;
            if limits.is_empty() {
                continue;
            }
            // The rule's fingerprint: a limit keeps its counters when the list of limits around it changes.
            let fingerprint = fingerprint(fingerprinter, rule.identity, values);
            for limit in limits {
                let Some(role) = role(limit, values) else { continue };
                quota_in_shadow |= role == Role::Observed && limit.role == Role::Alternative;
                if limit.replaces {
                    replace_by_limit(rules, limit, &mut replaced);
                }
                let matched = MatchedLimit { limit, fingerprint, cost, role };
                if descriptor.refund {
                    prepared.push_refund(index, matched);
                    continue;
                }
                // Pushed without a temporary: a check that is built elsewhere and copied stalls on store forwarding.
                let holder = if limit.holds_slots { self.next_holder() } else { Holder::default() };
                verdict.rulings.push(Ruling::begun(index, Some(limit.id), matched.cost(), role));
                prepared.checks.push(matched.check(holder, call.tenure));
            }
        }
        if !replaced.is_empty() {
            prepared.drop_replaced(verdict.rulings, rules.snapshot(), &replaced);
        }
        if quota_in_shadow {
            open_quotas(prepared.checks, verdict.rulings, rules.snapshot());
        }
    }
}

/// The domain of a request, with the settings that all its checks share; `None` if the rules do not have it.
#[inline]
fn find_domain<'s>(
    rules: &'s ActiveRules,
    request: &Request<'s>,
    verdict: &mut VerdictParts<'_>,
    prepared: &mut PreparedChecks<'s, '_>,
) -> Option<&'s Domain> {
    let Some(domain) = rules.snapshot().domain(request.domain) else {
        verdict.matched.resize(request.descriptors.len(), None);
        return None;
    };
    *verdict.domain_known = true;
    prepared.charge = domain.charge();
    prepared.deadline = domain.store_deadline().map(|deadline| deadline.as_span().into());
    if request.descriptors.len() > INLINE_DESCRIPTORS {
        reserve(request.descriptors.len(), verdict, prepared);
    }
    Some(domain)
}

/// The names of limits that other limits of the same request replace.
type ReplacedNames = SmallVec<[NameId; 4]>;

#[cold]
fn replace_by_exemption(rules: &ActiveRules, exempt: Option<RuleId>, replaced: &mut ReplacedNames) {
    let rule = exempt.and_then(|rule| rules.snapshot().rule(rule));
    let exemption = rule.and_then(|rule| rule.exemption());
    let names = exemption.into_iter().flat_map(|exemption| exemption.replaces.iter().copied());
    replaced.extend(names);
}

#[cold]
fn replace_by_limit(rules: &ActiveRules, limit: &HotLimit, replaced: &mut ReplacedNames) {
    let limit = rules.snapshot().limit(limit.id);
    replaced.extend(limit.into_iter().flat_map(|limit| limit.replaces.iter().copied()));
}

impl<'s> MatchedLimit<'s> {
    #[inline(always)]
    fn cost(self) -> u64 {
        // A request is one request in flight, whatever its cost.
        let cost = if self.limit.holds_slots { self.cost.min(1) } else { self.cost };
        cost.saturating_mul(self.limit.cost)
    }

    #[inline(always)]
    pub(crate) fn check(self, holder: Holder, tenure: Tenure) -> Check<'s> {
        let group = self.limit.identity;
        Check {
            key: Key { fingerprint: self.fingerprint.under(group), group },
            limit: &self.limit.limit,
            cost: self.cost(),
            holder,
            tenure,
            role: self.role,
            policy: self.limit.policy,
        }
    }
}

/// Reserves room for one limit per descriptor, which is common; growing step by step costs more.
#[inline(never)]
fn reserve(
    descriptors: usize,
    verdict: &mut VerdictParts<'_>,
    prepared: &mut PreparedChecks<'_, '_>,
) {
    verdict.matched.reserve(descriptors);
    verdict.rulings.reserve(descriptors);
    prepared.checks.reserve(descriptors);
}

impl<'s, 'c> PreparedChecks<'s, 'c> {
    /// No checks yet.
    #[inline]
    pub(crate) const fn new(checks: &'c mut Checks<'s>) -> Self {
        PreparedChecks {
            charge: Charge::AllOrNothing,
            deadline: None,
            now: Timestamp::EPOCH,
            checks,
            names: Vec::new(),
            refund: None,
        }
    }

    /// Whether there is nothing to ask the store.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.refund.is_none()
    }

    /// The checks as a batch.
    #[inline]
    pub(crate) fn batch(&self, verb: Verb) -> Batch<'_> {
        let batch = Batch::new(verb, self.charge, self.now, self.checks);
        Batch { within: self.deadline, names: &self.names, ..batch }
    }

    /// The refunds of the same request as a batch.
    pub(crate) fn refund_batch<'b>(
        &'b self,
        verb: Verb,
        checks: &'b [Check<'b>],
        names: &'b [String],
    ) -> Batch<'b> {
        let batch = Batch::new(refund_verb(verb), self.charge, self.now, checks);
        Batch { within: self.deadline, names, ..batch }
    }

    /// Lists a limit that the request carries.
    #[inline(never)]
    fn push_own(&mut self, rulings: &mut Rulings, descriptor: u32, refund: bool, check: Check<'s>) {
        if refund {
            return self.refund(descriptor, None, check);
        }
        rulings.push(Ruling::begun(descriptor, None, check.cost, check.role));
        self.checks.push(check);
    }

    #[cold]
    fn push_refund(&mut self, descriptor: u32, matched: MatchedLimit<'s>) {
        let check = matched.check(Holder::default(), Tenure::TimeToLive);
        self.refund(descriptor, Some(matched.limit.id), check);
    }

    fn refund(&mut self, descriptor: u32, limit: Option<LimitId>, check: Check<'s>) {
        // A refund neither refuses nor admits the request.
        let check = Check { role: Role::Observed, ..check };
        let refund = self.refund.get_or_insert_default();
        refund.rulings.push(Ruling::begun(descriptor, limit, check.cost, check.role));
        refund.checks.push(check);
    }

    /// Drops the limits that another limit of the same request replaces.
    #[cold]
    fn drop_replaced(&mut self, rulings: &mut Rulings, snapshot: &Snapshot, replaced: &[NameId]) {
        drop_replaced(self.checks, rulings, snapshot, replaced);
        if let Some(refund) = &mut self.refund {
            let RefundChecks { checks, rulings, .. } = &mut **refund;
            drop_replaced(checks, rulings, snapshot, replaced);
        }
    }
}

fn drop_replaced(
    checks: &mut Checks<'_>,
    rulings: &mut Rulings,
    snapshot: &Snapshot,
    replaced: &[NameId],
) {
    let stays = |ruling: &Ruling| {
        let limit = ruling.limit.and_then(|limit| snapshot.limit(limit));
        let name = limit.and_then(|limit| limit.name);
        name.is_none_or(|name| !replaced.contains(&name))
    };
    let mut kept = rulings.iter().map(stays);
    checks.retain(|_| kept.next().unwrap_or(true));
    rulings.retain(|ruling| stays(ruling));
}

/// A quota in shadow always has room, so no quota of its request refuses. The store has no such role: it observes the
/// other quotas, and charges those that admit.
#[cold]
fn open_quotas(checks: &mut Checks<'_>, rulings: &Rulings, snapshot: &Snapshot) {
    if rulings.iter().any(|ruling| ruling.is_quota_in_shadow(snapshot)) {
        let quotas = checks.iter_mut().filter(|check| check.role == Role::Alternative);
        quotas.for_each(|check| check.role = Role::Observed);
    }
}

/// The verb for the limits of descriptors that refund.
#[inline]
pub(crate) const fn refund_verb(verb: Verb) -> Verb {
    match verb {
        Verb::Check | Verb::Take | Verb::Charge | Verb::Refund => Verb::Refund,
        Verb::Peek | Verb::Reset => verb,
    }
}

/// The counter of a limit that a request carries: by domain, descriptor and period, whatever the amount.
#[cold]
fn key_of_own_limit(
    fingerprinter: &Fingerprinter,
    domain: &str,
    entries: &[Entry<'_>],
    limit: &Limit,
) -> Key {
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    let mut text = |text: &str| {
        bytes.extend_from_slice(&text.len().to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    text(domain);
    text(limit.algorithm().name());
    for entry in entries {
        text(entry.key);
        text(entry.value);
    }
    let group = OWN_LIMITS ^ limit.algorithm().period().get();
    Key { fingerprint: fingerprinter.of(group, &bytes), group }
}

/// The role of the limit's decision for this key; `None` when the limit is off.
#[inline]
fn role(limit: &HotLimit, values: &[KeyValue<'_>]) -> Option<Role> {
    if limit.mode.is_enforced() { Some(limit.role) } else { role_in_other_mode(limit, values) }
}

/// [`role`] of a limit that is not enforced for every key.
#[inline(never)]
fn role_in_other_mode(limit: &HotLimit, values: &[KeyValue<'_>]) -> Option<Role> {
    let includes = |percent: Percent| percent.includes(key_number(limit.identity, values));
    Some(match limit.mode.for_caller(includes)? {
        CallerMode::Enforce => limit.role,
        CallerMode::Shadow => Role::Observed,
    })
}

/// A number for the key that is the same in every process and after every restart, so that a caller is in or out
/// everywhere.
fn key_number(limit: u64, values: &[KeyValue<'_>]) -> u64 {
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    bytes.extend_from_slice(&limit.to_le_bytes());
    write_values(values, &mut bytes);
    xxh3_64(&bytes)
}

/// The fingerprint of the values that select this rule's counters.
#[inline]
pub(crate) fn fingerprint(
    fingerprinter: &Fingerprinter,
    rule: u64,
    values: &[KeyValue<'_>],
) -> Fingerprint {
    if let [KeyValue::Text(value)] = values {
        return fingerprinter.of(rule, value.as_bytes());
    }
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    write_values(values, &mut bytes);
    fingerprinter.of(rule, &bytes)
}

/// Each value after its length, so that no two lists have the same bytes.
fn write_values(values: &[KeyValue<'_>], bytes: &mut SmallVec<[u8; 128]>) {
    for value in values {
        match value {
            KeyValue::Text(text) => {
                bytes.extend_from_slice(&text.len().to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            KeyValue::Net(net) => {
                bytes.push(net.prefix_len());
                match net.network() {
                    std::net::IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
                    std::net::IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
                }
            }
        }
    }
}
