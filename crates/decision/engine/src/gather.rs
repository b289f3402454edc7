//! From a request to the checks that it needs.

use smallvec::SmallVec;
use tidegate_algorithms::{CallerMode, Holder, Limit, Percent, Period, Tenure};
use tidegate_rules::{Entry, KeyValue, LimitId, NameId, RuleId, Snapshot, Values};
use tidegate_stores::{Charge, Check, Fingerprint, Fingerprinter, Key, Role, Verb};
use xxhash_rust::xxh3::xxh3_64;

use crate::loaded::{BriefLimit, Loaded};
use crate::request::Request;
use crate::verdict::{Met, Ruling, Rulings};

/// A request's descriptors beyond this many are not looked at; see
/// [`Undecided::TooManyDescriptors`](crate::Undecided::TooManyDescriptors).
pub const DESCRIPTORS_MAX: usize = 1_000;

/// So many descriptors find room in a verdict as it is.
const ROOMY: usize = 2;

/// Keeps the counters of limits that requests bring along apart from the rules'.
const OWN_LIMITS: u64 = 0x6F77_6E5F_6C69_6D69;

/// The checks of a request. Each has a ruling, begun when its limit is met and
/// finished when the store has answered.
#[derive(Debug)]
pub(crate) struct Gathered<'s, 'c> {
    pub(crate) charge: Charge,
    /// How long the store may take, if the rules say so.
    pub(crate) deadline: Option<Period>,
    /// Their rulings are those of the verdict, in this order. Lent, because
    /// the list is too large to be moved.
    pub(crate) charged: &'c mut Checks<'s>,
    /// Those of descriptors that give back: few requests have any.
    pub(crate) refunded: Option<Box<Refunded<'s>>>,
}

/// Checks to be decided together.
pub(crate) type Checks<'s> = SmallVec<[Check<'s>; 4]>;

/// What a request gives back.
#[derive(Debug, Default)]
pub(crate) struct Refunded<'s> {
    pub(crate) checks: Checks<'s>,
    /// In the order of the checks.
    pub(crate) rulings: Box<Rulings>,
}

/// Matches every descriptor and lists the checks of the limits that they meet.
pub(crate) fn gather<'s>(
    loaded: &'s Loaded,
    fingerprinter: &Fingerprinter,
    request: &Request<'s>,
    known: Option<Known<'_, 's>>,
    holder: impl Fn() -> Holder,
    verdict: &mut Listed<'_>,
    gathered: &mut Gathered<'s, '_>,
) {
    let Some(domain) = loaded.snapshot().domain(request.domain) else {
        verdict.met.resize(request.descriptors.len(), None);
        return;
    };
    *verdict.domain_known = true;
    gathered.charge = domain.charge();
    gathered.deadline = domain.store_deadline();
    if request.descriptors.len() > ROOMY {
        make_room(request.descriptors.len(), verdict, gathered);
    }
    let mut replaced = Replaced::new();
    for (index, descriptor) in (0_u32..).zip(request.descriptors) {
        let asked = descriptor.cost.unwrap_or(request.cost);
        if let Some(limit) = descriptor.limit {
            verdict.met.push(None);
            let key = key_of_own(fingerprinter, request.domain, descriptor.entries, limit);
            gathered.push_own(verdict.rulings, index, descriptor.refund, key, limit, asked);
            continue;
        }
        let mut fresh = Values::new();
        let Known { found, values } = known.unwrap_or_else(|| Known {
            found: domain.find_id(descriptor.entries, &mut fresh),
            values: &fresh,
        });
        verdict.met.push(found);
        let Some(rule) = found.and_then(|rule| loaded.rule(rule)) else { continue };
        if rule.is_exempt {
            replace_by_exemption(loaded, found, &mut replaced);
        }
        let limits = &*rule.limits;
        if limits.is_empty() {
            continue;
        }
        // By the rule's place, not by one of its limits: a limit keeps its
        // counters when the list of limits around it changes.
        let fingerprint = fingerprint(fingerprinter, rule.identity, values);
        for limit in limits {
            let Some(role) = role(limit, values) else { continue };
            if limit.replaces {
                replace_by_limit(loaded, limit, &mut replaced);
            }
            let met = MetLimit { limit, fingerprint, asked, role };
            if descriptor.refund {
                gathered.push_refunded(index, met);
                continue;
            }
            // Each made where it is kept, by itself: a check that is made
            // elsewhere and copied is waited for twice.
            let holder = if limit.counts_slots { holder() } else { Holder::default() };
            verdict.rulings.push(Ruling::begun(index, Some(limit.id), met.cost(), role));
            gathered.charged.push(met.check(holder, Tenure::TimeToLive));
        }
    }
    if !replaced.is_empty() {
        gathered.drop_replaced(verdict.rulings, loaded.snapshot(), &replaced);
    }
}

/// The names of limits that others of the same request replace.
type Replaced = SmallVec<[NameId; 4]>;

#[cold]
fn replace_by_exemption(loaded: &Loaded, exempt: Option<RuleId>, replaced: &mut Replaced) {
    let rule = exempt.and_then(|rule| loaded.snapshot().rule(rule));
    let exemption = rule.and_then(|rule| rule.exemption());
    let names = exemption.into_iter().flat_map(|exemption| exemption.replaces.iter().copied());
    replaced.extend(names);
}

#[cold]
fn replace_by_limit(loaded: &Loaded, limit: &BriefLimit, replaced: &mut Replaced) {
    let limit = loaded.snapshot().limit(limit.id);
    replaced.extend(limit.into_iter().flat_map(|limit| limit.replaces.iter().copied()));
}

/// A limit that a descriptor met, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetLimit<'s> {
    pub(crate) limit: &'s BriefLimit,
    /// The rule's.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) asked: u64,
    pub(crate) role: Role,
}

/// What the only descriptor of a request met, when somebody has looked already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'k, 's> {
    pub(crate) found: Option<RuleId>,
    pub(crate) values: &'k [KeyValue<'s>],
}

impl<'s> MetLimit<'s> {
    #[inline(always)]
    fn cost(self) -> u64 {
        // A request is one request in flight, however much else it costs.
        let asked = if self.limit.counts_slots { self.asked.min(1) } else { self.asked };
        asked.saturating_mul(self.limit.cost)
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

/// One limit for each descriptor is common; growing step by step would cost more.
#[inline(never)]
fn make_room(descriptors: usize, verdict: &mut Listed<'_>, gathered: &mut Gathered<'_, '_>) {
    verdict.met.reserve(descriptors);
    verdict.rulings.reserve(descriptors);
    gathered.charged.reserve(descriptors);
}

/// What of a verdict is filled while its checks are gathered.
#[derive(Debug)]
pub(crate) struct Listed<'v> {
    pub(crate) domain_known: &'v mut bool,
    pub(crate) met: &'v mut Met,
    pub(crate) rulings: &'v mut Rulings,
}

impl<'s, 'c> Gathered<'s, 'c> {
    /// Nothing yet.
    #[inline]
    pub(crate) const fn new(charged: &'c mut Checks<'s>) -> Self {
        Gathered { charge: Charge::AllOrNothing, deadline: None, charged, refunded: None }
    }

    /// Whether there is nothing to ask.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.charged.is_empty() && self.refunded.is_none()
    }

    /// Lists a limit that the request brought along.
    #[inline(never)]
    fn push_own(
        &mut self,
        rulings: &mut Rulings,
        descriptor: u32,
        refund: bool,
        key: Key,
        limit: &'s Limit,
        asked: u64,
    ) {
        let check = Check::new(key, limit, asked);
        if refund {
            return self.refund(descriptor, None, check);
        }
        rulings.push(Ruling::begun(descriptor, None, check.cost, check.role));
        self.charged.push(check);
    }

    #[cold]
    fn push_refunded(&mut self, descriptor: u32, met: MetLimit<'s>) {
        self.refund(
            descriptor,
            Some(met.limit.id),
            met.check(Holder::default(), Tenure::TimeToLive),
        );
    }

    fn refund(&mut self, descriptor: u32, limit: Option<LimitId>, check: Check<'s>) {
        // What is given back refuses nobody, and admits nobody either.
        let check = Check { role: Role::Observed, ..check };
        let refunded = self.refunded.get_or_insert_default();
        refunded.rulings.push(Ruling::begun(descriptor, limit, check.cost, check.role));
        refunded.checks.push(check);
    }

    /// Drops the limits that another one of the same request replaces.
    #[cold]
    fn drop_replaced(&mut self, rulings: &mut Rulings, snapshot: &Snapshot, replaced: &[NameId]) {
        drop_replaced(self.charged, rulings, snapshot, replaced);
        if let Some(refunded) = &mut self.refunded {
            let Refunded { checks, rulings } = &mut **refunded;
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

/// What is asked of the limits of descriptors that give back.
#[inline]
pub(crate) const fn giving_back(verb: Verb) -> Verb {
    match verb {
        Verb::Check | Verb::Take | Verb::Charge | Verb::Refund => Verb::Refund,
        Verb::Peek | Verb::Reset => verb,
    }
}

/// The counter of a limit that a request brought along: by the domain, the
/// whole descriptor and the time that it is per, whatever the amount.
#[cold]
fn key_of_own(
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

/// What the limit's answer means for this key; `None` when it is off.
#[inline]
fn role(limit: &BriefLimit, values: &[KeyValue<'_>]) -> Option<Role> {
    if limit.mode.is_enforced() { Some(limit.role) } else { role_of_some(limit, values) }
}

/// The same for a limit that is not enforced for everybody.
#[inline(never)]
fn role_of_some(limit: &BriefLimit, values: &[KeyValue<'_>]) -> Option<Role> {
    let includes = |percent: Percent| percent.includes(key_number(limit.identity, values));
    Some(match limit.mode.for_caller(includes)? {
        CallerMode::Enforce => limit.role,
        CallerMode::Shadow => Role::Observed,
    })
}

/// A number for the key that is the same in every process and after every
/// restart, so that a caller is in or out everywhere.
fn key_number(limit: u64, values: &[KeyValue<'_>]) -> u64 {
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    bytes.extend_from_slice(&limit.to_le_bytes());
    write_values(values, &mut bytes);
    xxh3_64(&bytes)
}

/// The fingerprint of the values that tell this rule's counters apart.
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

/// Each value with its length before it, so that no two lists look the same.
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
