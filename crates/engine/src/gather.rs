//! From a request to the checks that it needs.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Holder, Limit};
use tidegate_rules::{Entry, KeyValue, LimitId, Mode, NameId, Snapshot, Values};
use tidegate_stores::{Charge, Check, Fingerprint, Fingerprinter, Key, Role, Verb};
use xxhash_rust::xxh3::xxh3_64;

use crate::loaded::{BriefLimit, Loaded};
use crate::request::Request;
use crate::verdict::Met;

/// A request's descriptors beyond this many are not looked at; see
/// [`Undecided::TooManyDescriptors`](crate::Undecided::TooManyDescriptors).
pub const DESCRIPTORS_MAX: usize = 1_000;

/// Keeps the counters of limits that requests bring along apart from the rules'.
const OWN_LIMITS: u64 = 0x6F77_6E5F_6C69_6D69;

/// The checks of a request.
#[derive(Debug, Default)]
pub(crate) struct Gathered<'s> {
    pub(crate) domain_known: bool,
    pub(crate) charge: Charge,
    /// How long the store may take, if the rules say so.
    pub(crate) within: Option<Duration>,
    pub(crate) charged: Checks<'s>,
    /// Those of descriptors that give back.
    refunded: Checks<'s>,
}

/// Checks, and what each stands for.
#[derive(Debug, Default)]
pub(crate) struct Checks<'s> {
    pub(crate) checks: SmallVec<[Check<'s>; 4]>,
    /// In the order of the checks.
    meanings: SmallVec<[Meaning; 4]>,
}

/// What a check stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    pub(crate) descriptor: u32,
    /// None when the request brought its own limit.
    pub(crate) limit: Option<LimitId>,
}

/// Matches every descriptor and lists the checks of the limits that they meet.
pub(crate) fn gather<'s>(
    loaded: &'s Loaded,
    fingerprinter: &Fingerprinter,
    request: &Request<'s>,
    holder: impl Fn() -> Holder,
    met: &mut Met,
    gathered: &mut Gathered<'s>,
) {
    let Some(domain) = loaded.snapshot().domain(request.domain) else {
        met.resize(request.descriptors.len(), None);
        return;
    };
    gathered.domain_known = true;
    gathered.charge = match domain.charge() {
        tidegate_rules::Charge::AllOrNothing => Charge::AllOrNothing,
        tidegate_rules::Charge::Always => Charge::Always,
    };
    gathered.within = domain.store_deadline().map(|deadline| deadline.as_span().into());
    let mut replaced: SmallVec<[NameId; 4]> = SmallVec::new();
    for (index, descriptor) in (0_u32..).zip(request.descriptors) {
        let asked = descriptor.cost.unwrap_or(request.cost);
        if let Some(limit) = descriptor.limit {
            met.push(None);
            let key = key_of_own(fingerprinter, request.domain, descriptor.entries, limit);
            gathered.push(index, None, descriptor.refund, Check::new(key, limit, asked));
            continue;
        }
        let mut values = Values::new();
        let found = domain.find_id(descriptor.entries, &mut values);
        met.push(found);
        let Some(rule) = found.and_then(|rule| loaded.rule(rule)) else { continue };
        if rule.is_exempt {
            let exempt = found.and_then(|rule| loaded.snapshot().rule(rule));
            let exemption = exempt.and_then(|rule| rule.exemption());
            replaced.extend(
                exemption.into_iter().flat_map(|exemption| exemption.replaces.iter().copied()),
            );
        }
        let limits = loaded.limits_of(rule);
        if limits.is_empty() {
            continue;
        }
        // By the rule's place, not by one of its limits: a limit keeps its
        // counters when the list of limits around it changes.
        let fingerprint = fingerprint(fingerprinter, rule.identity, &values);
        for limit in limits {
            let Some(role) = role(limit, &values) else { continue };
            if limit.replaces {
                let limit = loaded.snapshot().limit(limit.id);
                replaced.extend(limit.into_iter().flat_map(|limit| limit.replaces.iter().copied()));
            }
            let held = limit.counts_slots && !descriptor.refund;
            // A request is one request in flight, however much else it costs.
            let cost = if limit.counts_slots { asked.min(1) } else { asked };
            gathered.push(
                index,
                Some(limit.id),
                descriptor.refund,
                Check {
                    key: Key {
                        fingerprint: fingerprint.under(limit.identity),
                        group: limit.identity,
                    },
                    limit: &limit.limit,
                    cost: cost.saturating_mul(limit.cost),
                    holder: if held { holder() } else { Holder::default() },
                    role,
                    policy: limit.policy,
                },
            );
        }
    }
    if !replaced.is_empty() {
        gathered.charged.drop_replaced(loaded.snapshot(), &replaced);
        gathered.refunded.drop_replaced(loaded.snapshot(), &replaced);
    }
}

impl<'s> Gathered<'s> {
    /// Whether there is nothing to ask.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.charged.checks.is_empty() && self.refunded.checks.is_empty()
    }

    /// What to ask, in order: what is given back makes room for what is charged.
    #[inline]
    pub(crate) fn steps(&self, verb: Verb) -> impl Iterator<Item = (Verb, &Checks<'s>)> {
        let back = match verb {
            Verb::Check | Verb::Take | Verb::Charge | Verb::Refund => Verb::Refund,
            Verb::Peek | Verb::Reset => verb,
        };
        let steps = [(back, &self.refunded), (verb, &self.charged)];
        steps.into_iter().filter(|(_, checks)| !checks.checks.is_empty())
    }

    #[inline]
    fn push(&mut self, descriptor: u32, limit: Option<LimitId>, refund: bool, check: Check<'s>) {
        let checks = if refund { &mut self.refunded } else { &mut self.charged };
        // What is given back refuses nobody, and admits nobody either.
        let role = if refund { Role::Observed } else { check.role };
        checks.checks.push(Check { role, ..check });
        checks.meanings.push(Meaning { descriptor, limit });
    }
}

impl<'s> Checks<'s> {
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Check<'s>, &Meaning)> {
        self.checks.iter().zip(&self.meanings)
    }

    /// Drops the limits that another one of the same request replaces.
    fn drop_replaced(&mut self, snapshot: &Snapshot, replaced: &[NameId]) {
        let stays = |meaning: &Meaning| {
            let limit = meaning.limit.and_then(|limit| snapshot.limit(limit));
            let name = limit.and_then(|limit| limit.name);
            name.is_none_or(|name| !replaced.contains(&name))
        };
        let mut kept = self.meanings.iter().map(stays);
        self.checks.retain(|_| kept.next().unwrap_or(true));
        self.meanings.retain(|meaning| stays(meaning));
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
    let switch = limit.switch();
    match switch.mode {
        Mode::Off => return None,
        Mode::Shadow => return Some(Role::Observed),
        Mode::Enforce => {}
    }
    if switch.enforce_percent < 100 && !switch.enforces(key_number(limit.identity, values)) {
        return Some(Role::Observed);
    }
    Some(if limit.is_quota { Role::Alternative } else { Role::Required })
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
fn fingerprint(fingerprinter: &Fingerprinter, rule: u64, values: &[KeyValue<'_>]) -> Fingerprint {
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
