//! From a request to the checks that it needs.

use smallvec::SmallVec;
use tidegate_algorithms::{Algorithm, Holder};
use tidegate_rules::{Found, KeyValue, Mode, NameId, RuleId, RuleLimit};
use tidegate_stores::{Charge, Check, Fingerprint, Fingerprinter, Key, Role};
use xxhash_rust::xxh3::xxh3_64;

use crate::loaded::Loaded;
use crate::request::Request;

/// A request's descriptors beyond this many are not looked at; see
/// [`Undecided::TooManyDescriptors`](crate::Undecided::TooManyDescriptors).
pub const DESCRIPTORS_MAX: usize = 1_000;

/// The checks of a request, and what each stands for.
#[derive(Debug)]
pub(crate) struct Gathered<'s> {
    pub(crate) charge: Charge,
    pub(crate) checks: SmallVec<[Check<'s>; 4]>,
    /// In the order of the checks.
    pub(crate) meanings: SmallVec<[Meaning<'s>; 4]>,
    /// The rule that each descriptor met.
    pub(crate) met: SmallVec<[Option<RuleId>; 4]>,
}

/// What a check stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning<'s> {
    pub(crate) descriptor: usize,
    pub(crate) limit: &'s RuleLimit,
}

/// Matches every descriptor and lists the checks of the limits that they meet.
pub(crate) fn gather<'s>(
    loaded: &'s Loaded,
    fingerprinter: &Fingerprinter,
    request: &Request<'_>,
    holder: impl Fn() -> Holder,
) -> Gathered<'s> {
    let mut gathered = Gathered {
        charge: Charge::AllOrNothing,
        checks: SmallVec::new(),
        meanings: SmallVec::new(),
        met: SmallVec::new(),
    };
    let Some(domain) = loaded.snapshot().domain(request.domain) else {
        gathered.met.resize(request.descriptors.len(), None);
        return gathered;
    };
    gathered.charge = match domain.charge() {
        tidegate_rules::Charge::AllOrNothing => Charge::AllOrNothing,
        tidegate_rules::Charge::Always => Charge::Always,
    };
    let mut replaced: SmallVec<[NameId; 4]> = SmallVec::new();
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        let found = domain.find(descriptor.entries);
        gathered.met.push(found.as_ref().map(|found| found.rule.id()));
        let Some(found) = found else { continue };
        if let Some(exemption) = found.rule.exemption() {
            replaced.extend_from_slice(&exemption.replaces);
        }
        let limits = loaded.limits_of(found.rule);
        if limits.is_empty() {
            continue;
        }
        // By the rule's place, not by one of its limits: a limit keeps its
        // counters when the list of limits around it changes.
        let fingerprint = fingerprint(fingerprinter, found.rule.identity(), &found);
        for limit in limits {
            let Some(role) = role(loaded, limit, &found) else { continue };
            replaced.extend_from_slice(&limit.replaces);
            let cost = descriptor.cost.unwrap_or(request.cost).saturating_mul(limit.cost);
            let held = matches!(limit.limit.algorithm(), Algorithm::Concurrency(_));
            gathered.checks.push(Check {
                key: Key { fingerprint: fingerprint.under(limit.identity), group: limit.identity },
                limit: &limit.limit,
                cost,
                holder: if held { holder() } else { Holder::default() },
                role,
            });
            gathered.meanings.push(Meaning { descriptor: index, limit });
        }
    }
    if !replaced.is_empty() {
        gathered.drop_replaced(&replaced);
    }
    gathered
}

impl Gathered<'_> {
    /// Drops the limits that another one of the same request replaces.
    fn drop_replaced(&mut self, replaced: &[NameId]) {
        let stays =
            |meaning: &Meaning<'_>| meaning.limit.name.is_none_or(|name| !replaced.contains(&name));
        let mut kept = self.meanings.iter().map(stays);
        self.checks.retain(|_| kept.next().unwrap_or(true));
        self.meanings.retain(|meaning| stays(meaning));
    }
}

/// What the limit's answer means for this key; `None` when it is off.
#[inline]
fn role(loaded: &Loaded, limit: &RuleLimit, found: &Found<'_, '_>) -> Option<Role> {
    let switch = loaded.switch(limit);
    match switch.mode {
        Mode::Off => return None,
        Mode::Shadow => return Some(Role::Observed),
        Mode::Enforce => {}
    }
    if switch.enforce_percent < 100 && !switch.enforces(key_number(limit, found)) {
        return Some(Role::Observed);
    }
    Some(if limit.quota { Role::Alternative } else { Role::Required })
}

/// A number for the key that is the same in every process and after every
/// restart, so that a caller is in or out everywhere.
fn key_number(limit: &RuleLimit, found: &Found<'_, '_>) -> u64 {
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    bytes.extend_from_slice(&limit.identity.to_le_bytes());
    write_values(&found.values, &mut bytes);
    xxh3_64(&bytes)
}

/// The fingerprint of the values that tell this rule's counters apart.
#[inline]
fn fingerprint(fingerprinter: &Fingerprinter, rule: u64, found: &Found<'_, '_>) -> Fingerprint {
    if let [KeyValue::Text(value)] = found.values.as_slice() {
        return fingerprinter.of(rule, value.as_bytes());
    }
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    write_values(&found.values, &mut bytes);
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
