//! The part of the rules that a packet filter can express.
//!
//! A packet filter sees the addresses of packets and nothing of requests. So only rules whose only entry is an address
//! can be exported, and of their limits token buckets, fixed windows (as buckets) and requests in flight. Requests
//! become connections: a limit of ten requests allows as many connections, times
//! [`ExportSettings::connections_per_request`]. Everything else is listed with its reason, because a limit that is
//! believed to be in the kernel and is not limits nobody.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tidegate_algorithms::{Algorithm, Mode, Percent};
use tidegate_rules::{Domain, Rule, RuleLimit, Snapshot, WhenOver};

/// The units of time that packet filters know, in seconds.
const UNITS: [(&str, u64); 4] = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];

/// The highest rate that both packet filters keep exactly.
const RATE_MAX: u64 = 1_000_000;

/// What requests are as connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSettings {
    /// The port whose connections are limited.
    pub port: u16,
    /// How many connections a client may open for each request that a rule admits; more is more lenient. In
    /// thousandths.
    pub connections_per_request: u64,
    /// The most new connections a second of all clients together, except for exempt ones. A set of addresses that is
    /// full matches nobody, so that a flood of addresses passes the limits by address; this one bounds it.
    pub overflow_per_second: u64,
    /// The domain, where the rules have several.
    pub domain: Option<String>,
    /// The key of the entry that is the client's address, where several keys have addresses.
    pub key: Option<String>,
}

/// Why rules cannot be exported at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The domain is not named, and there are several or none.
    #[error("the rules have {} domains: {}", known.len(), known.join(", "))]
    WhichDomain {
        /// Those that there are.
        known: Vec<String>,
    },
    /// There is no such domain.
    #[error("there is no domain `{name}`; the rules have {}", known.join(", "))]
    NoDomain {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Several keys have addresses.
    #[error("several keys have addresses: {}", keys.join(", "))]
    WhichKey {
        /// The keys.
        keys: Vec<String>,
    },
}

/// What could be expressed, and what could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The settings that it was made with.
    pub settings: ExportSettings,
    /// The version of the rules.
    pub version: u64,
    /// The rules, the one for the longest prefix first, the one for every address last.
    pub rules: Vec<ExportedRule>,
    /// The limits that were left out.
    pub left_out: Vec<NotExported>,
}

/// A rule in the packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedRule {
    /// Its domain and path.
    pub name: String,
    /// The addresses that it applies to.
    pub scope: AddressScope,
    /// Its limits; none for addresses that are not limited at all.
    pub limits: Vec<ExportedLimit>,
    /// Whether it says that its addresses are not limited.
    pub is_unlimited: bool,
}

/// The addresses of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// Every address that no other rule has.
    Everyone,
    /// These ranges.
    Ranges(Vec<IpNet>),
}

/// A limit in the packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedLimit {
    /// Its name within the rule, or its position.
    pub name: String,
    /// What it limits.
    pub limit: KernelLimit,
    /// Leading bits of an address that share a counter, of IPv4 and of IPv6; [`None`] if all share one.
    pub prefixes: Option<(u8, u8)>,
    /// Whether it only counts.
    pub is_shadow: bool,
    /// What is different from the rule.
    pub notes: Vec<&'static str>,
}

/// What a packet filter can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelLimit {
    /// New connections.
    Rate {
        /// How many in a unit.
        amount: u64,
        /// The unit's word.
        unit: &'static str,
        /// How many at once.
        burst: u64,
        /// How long until the bucket of a silent client is full again, in seconds.
        idle_seconds: u64,
    },
    /// Open connections.
    Open {
        /// How many.
        most: u64,
    },
}

/// A limit that could not be expressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotExported {
    /// The domain, the path of the rule and the name of the limit.
    pub name: String,
    /// Why not.
    pub reason: String,
}

impl Export {
    /// Takes what can be expressed from these rules.
    ///
    /// # Errors
    /// When it is not clear which domain or which key the connections belong to.
    pub fn of(snapshot: &Snapshot, settings: ExportSettings) -> Result<Self, ExportError> {
        let domain = domain(snapshot, settings.domain.as_deref())?;
        let of_domain = |rule: &&Rule| rule.domain() == domain.name();
        let key = key(snapshot.rules().iter().filter(of_domain), settings.key.as_deref())?;
        let mut export = Export {
            version: snapshot.version(),
            settings,
            rules: Vec::new(),
            left_out: Vec::new(),
        };
        for rule in snapshot.rules() {
            if rule.domain() == domain.name() {
                export.add(snapshot, rule, key.as_deref());
            } else {
                let reason = "its domain is not the one that is exported";
                export.leave_out_all(snapshot, rule, reason);
            }
        }
        // The longest prefix wins in the rules, and the first that matches in a packet filter.
        let longest = |rule: &ExportedRule| match &rule.scope {
            AddressScope::Everyone => None,
            AddressScope::Ranges(ranges) => ranges.iter().map(IpNet::prefix_len).max(),
        };
        export.rules.sort_by_key(|rule| std::cmp::Reverse(longest(rule)));
        Ok(export)
    }

    fn add(&mut self, snapshot: &Snapshot, rule: &Rule, key: Option<&str>) {
        let Some(addresses) = rule.addresses() else {
            let reason = match rule.levels() {
                [_] => "its value is no address, and a packet filter sees nothing else",
                _ => "it has several entries, and a packet filter sees only addresses",
            };
            return self.leave_out_all(snapshot, rule, reason);
        };
        if rule.levels().first().map(tidegate_rules::Level::key) != key {
            return self.leave_out_all(snapshot, rule, "its key is not the one that is exported");
        }
        let prefixes =
            (!addresses.is_shared).then_some((addresses.ipv4_prefix, addresses.ipv6_prefix));
        let mut limits = Vec::new();
        for limit in snapshot.limits_of(rule) {
            let name = snapshot.limit_name(rule, limit).into_owned();
            match self.kernel_limit(limit) {
                Ok((kernel, notes)) => limits.push(ExportedLimit {
                    name,
                    limit: kernel,
                    prefixes,
                    is_shadow: limit.mode == Mode::Shadow,
                    notes,
                }),
                Err(reason) => self.left_out.push(NotExported {
                    name: format!("{}: {}, limit {name}", rule.domain(), rule.path()),
                    reason: reason.to_owned(),
                }),
            }
        }
        let scope = match addresses.ranges.as_slice() {
            [] => AddressScope::Everyone,
            ranges => AddressScope::Ranges(ranges.to_vec()),
        };
        let name = format!("{}: {}", rule.domain(), rule.path());
        // One without limits stays: its addresses must not meet the limits of a shorter prefix.
        self.rules.push(ExportedRule { name, scope, limits, is_unlimited: rule.unlimited() });
    }

    fn leave_out_all(&mut self, snapshot: &Snapshot, rule: &Rule, reason: &str) {
        let named = |name: &str| NotExported {
            name: format!("{}: {}{name}", rule.domain(), rule.path()),
            reason: reason.to_owned(),
        };
        if rule.unlimited() {
            self.left_out.push(named(", unlimited"));
        }
        for limit in snapshot.limits_of(rule) {
            let name = format!(", limit {}", snapshot.limit_name(rule, limit));
            self.left_out.push(named(&name));
        }
    }

    /// The limit as a packet filter has it, or why it has none.
    fn kernel_limit(
        &self,
        limit: &RuleLimit,
    ) -> Result<(KernelLimit, Vec<&'static str>), &'static str> {
        match limit.mode {
            Mode::Off => return Err("it is off"),
            Mode::Enforce(percent) if percent < Percent::ALL => {
                return Err("a packet filter cannot enforce it for a percentage of callers");
            }
            Mode::Enforce(_) | Mode::Shadow => {}
        }
        if limit.when_over != WhenOver::Refuse {
            return Err("a packet filter cannot let a request wait");
        }
        if limit.quota {
            return Err("a packet filter cannot combine quotas");
        }
        if limit.cost != 1 {
            return Err("a packet filter does not know what a request costs");
        }
        if limit.limit.soft().is_some() {
            return Err("a packet filter cannot go over a limit for a while");
        }
        let algorithm = limit.limit.algorithm();
        match algorithm {
            Algorithm::TokenBucket(bucket) => {
                let rate = self.rate(bucket.amount(), bucket.period().as_nanos(), bucket.burst());
                Ok((rate?, Vec::new()))
            }
            Algorithm::FixedWindow(window) => {
                let rate = self.rate(window.limit(), algorithm.period().get(), window.limit());
                Ok((rate?, vec!["a fixed window, as a bucket that refills at its rate"]))
            }
            Algorithm::Concurrency(slots) => {
                let most = self.connections(slots.limit());
                if most == 0 || most > u64::from(u32::MAX) {
                    return Err("a packet filter cannot count that many connections");
                }
                Ok((KernelLimit::Open { most }, vec!["requests in flight, as open connections"]))
            }
            Algorithm::LeakyBucket(_) => Err("a packet filter cannot delay a request"),
            Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) => {
                Err("a packet filter has no sliding windows; write it as a `token_bucket`")
            }
        }
    }

    /// Requests as connections, rounded up.
    fn connections(&self, requests: u64) -> u64 {
        let thousandths = u128::from(requests) * u128::from(self.settings.connections_per_request);
        u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(u64::MAX)
    }

    /// A rate in the first unit in which it is a whole number, or else the one in which rounding up changes it least.
    fn rate(&self, amount: u64, period: u64, burst: u64) -> Result<KernelLimit, &'static str> {
        if amount == 0 {
            return Err("a packet filter cannot refuse everybody by a rate; drop the port instead");
        }
        let thousandths = u128::from(amount) * u128::from(self.settings.connections_per_request);
        let in_unit = |seconds: u64| {
            let nanos = u128::from(seconds) * 1_000_000_000;
            let (whole, part) = (u128::from(period) * 1_000, thousandths.saturating_mul(nanos));
            (part.div_ceil(whole.max(1)), part % whole.max(1) == 0)
        };
        let fits = |count: u128| count <= u128::from(RATE_MAX);
        let exact = UNITS.iter().find(|(_, seconds)| {
            let (count, is_exact) = in_unit(*seconds);
            is_exact && fits(count)
        });
        let longest = UNITS.iter().rev().find(|(_, seconds)| fits(in_unit(*seconds).0));
        let Some((unit, seconds)) = exact.or(longest) else {
            return Err("a packet filter cannot count that fast");
        };
        let amount = u64::try_from(in_unit(*seconds).0).unwrap_or(RATE_MAX).max(1);
        let burst = self.connections(burst).clamp(1, RATE_MAX);
        let idle_seconds = burst.saturating_mul(*seconds).div_ceil(amount).clamp(60, 86_400);
        Ok(KernelLimit::Rate { amount, unit, burst, idle_seconds })
    }
}

fn domain<'s>(snapshot: &'s Snapshot, name: Option<&str>) -> Result<&'s Domain, ExportError> {
    let known = || snapshot.domains().map(|domain| domain.name().to_owned()).collect();
    match name {
        Some(name) => snapshot
            .domain(name)
            .ok_or_else(|| ExportError::NoDomain { name: name.to_owned(), known: known() }),
        None => {
            let mut domains = snapshot.domains();
            match (domains.next(), domains.next()) {
                (Some(only), None) => Ok(only),
                _ => Err(ExportError::WhichDomain { known: known() }),
            }
        }
    }
}

/// The key whose addresses are those of connections: the given one, or the only one.
fn key<'s>(
    rules: impl Iterator<Item = &'s Rule>,
    given: Option<&str>,
) -> Result<Option<String>, ExportError> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    let keys: BTreeSet<&str> = rules
        .filter(|rule| rule.addresses().is_some())
        .filter_map(|rule| rule.levels().first())
        .map(tidegate_rules::Level::key)
        .collect();
    if keys.len() > 1 {
        return Err(ExportError::WhichKey { keys: keys.into_iter().map(str::to_owned).collect() });
    }
    Ok(keys.first().map(|key| (*key).to_owned()))
}

/// A text that cannot end a comment: printable ASCII without quotes and backslashes, and not long.
pub(crate) fn comment(text: &str) -> String {
    let clean = |letter: char| match letter {
        '"' | '\\' => '\'',
        ' '..='~' => letter,
        _ => '?',
    };
    text.chars().map(clean).take(200).collect()
}

#[cfg(test)]
mod tests;
