//! Rules and their limits, as compiled.

use std::fmt::{self, Write};
use std::sync::Arc;

use compact_str::CompactString;
use ipnet::IpNet;
use serde::Serialize;
use smallvec::SmallVec;
use tidegate_algorithms::{Consistency, Limit, Mode, OnStoreError};

use crate::choices::{RefusalStatus, Unit, WhenOver};
use crate::snapshot::Entry;

macro_rules! dense_id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub struct $name(u32);

        impl $name {
            /// The id of the item at this index of its list. Fits: the reader's maxima bound all lists.
            pub(crate) fn at(index: usize) -> Self {
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }

            /// The index in the snapshot's list.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

dense_id! {
    /// A rule of one snapshot.
    RuleId
}
dense_id! {
    /// A limit of one snapshot.
    LimitId
}
dense_id! {
    /// A limit's name in one snapshot; equal names have equal ids.
    NameId
}

/// A node of the rule tree that has limits, or is explicitly unlimited.
#[derive(Debug)]
pub struct Rule {
    pub(crate) id: RuleId,
    pub(crate) identity: u64,
    pub(crate) domain: Arc<str>,
    pub(crate) path: Arc<str>,
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) terms: Option<Arc<str>>,
    pub(crate) limits: SmallVec<[LimitId; 2]>,
    pub(crate) exemption: Option<Exemption>,
    pub(crate) metadata: Option<Arc<serde_json::Value>>,
    pub(crate) detailed_metric: bool,
    pub(crate) levels: Arc<[Level]>,
    pub(crate) addresses: Option<Arc<AddressMatch>>,
}

/// The addresses that a rule applies to, if they are all that it looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressMatch {
    /// The ranges; none for every address.
    pub ranges: Vec<IpNet>,
    /// How many leading bits of an IPv4 address select its counter.
    pub ipv4_prefix: u8,
    /// How many leading bits of an IPv6 address select its counter.
    pub ipv6_prefix: u8,
    /// Whether all addresses share one counter.
    pub is_shared: bool,
}

/// The name and the replaced limits of an unlimited rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exemption {
    /// Its name.
    pub name: Option<NameId>,
    /// The limits that do not apply when it matches in the same request.
    pub replaces: Box<[NameId]>,
    /// The quota that its text has, without effect.
    pub requests_per_unit: u64,
    /// Whether its text has `shadow_mode`, without effect.
    pub shadow: bool,
    /// Whether its text has `quota_mode`, without effect.
    pub quota: bool,
}

/// One level of a rule's path, as metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    key: CompactString,
    shown: ShownValue,
}

/// What a metric shows of a level's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownValue {
    /// Nothing.
    KeyOnly,
    /// The value, pattern or ranges of the rule.
    Written(Box<str>),
    /// The pattern or ranges of the rule, in a detailed metric too, because their values share one counter.
    Shared(Box<str>),
    /// The value of the request.
    Requested,
}

impl Level {
    pub(crate) fn new(key: &str, shown: ShownValue) -> Self {
        Level { key: key.into(), shown }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is shown of the value.
    pub const fn shown(&self) -> &ShownValue {
        &self.shown
    }
}

impl Rule {
    /// Its id in the snapshot.
    pub const fn id(&self) -> RuleId {
        self.id
    }

    /// A hash of its path: the same in every process and after every reload, whatever its limits are.
    pub const fn identity(&self) -> u64 {
        self.identity
    }

    /// Its domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Its path, such as `key_value.key2`: the composite key of envoyproxy/ratelimit without the domain.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The plan that its limits come from.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// The terms of the rows that it is for, if it is not for clients without a row.
    pub fn terms(&self) -> Option<&str> {
        self.terms.as_deref()
    }

    /// Its limits, in the order of the file; none when it is unlimited.
    pub fn limits(&self) -> &[LimitId] {
        &self.limits
    }

    /// Whether it admits everything and counts nothing.
    pub const fn unlimited(&self) -> bool {
        self.exemption.is_some()
    }

    /// Its exemption, if it is unlimited.
    pub const fn exemption(&self) -> Option<&Exemption> {
        self.exemption.as_ref()
    }

    /// Free data for the caller.
    pub fn metadata(&self) -> Option<&serde_json::Value> {
        self.metadata.as_deref()
    }

    /// Whether its metric shows every value of the request.
    pub const fn detailed_metric(&self) -> bool {
        self.detailed_metric
    }

    /// Whether its metric shows any value of the request.
    pub fn shows_values(&self) -> bool {
        self.detailed_metric || self.levels.iter().any(|level| level.shown == ShownValue::Requested)
    }

    /// The addresses that it applies to; [`None`] if it has several levels, or its values are no addresses.
    pub fn addresses(&self) -> Option<&AddressMatch> {
        self.addresses.as_deref()
    }

    /// Its levels, as metrics show them.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Writes the path under which metrics count a request that matched this rule.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write_metric_path(&self, entries: &[Entry<'_>], out: &mut impl Write) -> fmt::Result {
        // Upstream writes `key_` for an empty value of a detailed metric, unless a level is shared.
        let is_shared = |level: &Level| matches!(level.shown, ShownValue::Shared(_));
        let with_empty = self.detailed_metric && !self.levels.iter().any(is_shared);
        for (at, level) in self.levels.iter().enumerate() {
            if at > 0 {
                out.write_char('.')?;
            }
            out.write_str(&level.key)?;
            let requested = entries.get(at).map_or("", |entry| entry.value);
            let value = match &level.shown {
                ShownValue::Shared(written) => written,
                _ if self.detailed_metric => requested,
                ShownValue::Requested => requested,
                ShownValue::Written(written) => written,
                ShownValue::KeyOnly => "",
            };
            if with_empty || !value.is_empty() {
                write!(out, "_{value}")?;
            }
        }
        Ok(())
    }
}

/// One limit of a rule.
#[derive(Clone, Debug)]
pub struct RuleLimit {
    /// Its id in the snapshot.
    pub id: LimitId,
    /// The rule that it belongs to.
    pub rule: RuleId,
    /// Its name, if it has one.
    pub name: Option<NameId>,
    /// The algorithm with its parameters. Rules with equal ones share it, so that it stays in the processor's caches.
    pub limit: Arc<Limit>,
    /// The unit of time, if it was written as one.
    pub unit: Option<Unit>,
    /// Whether it refuses, only counts or does nothing, and for which share of keys.
    pub mode: Mode,
    /// Whether it is a quota: a request is refused by its quotas only when all of them are used up.
    pub quota: bool,
    /// The limits that do not apply when it matches in the same request.
    pub replaces: Box<[NameId]>,
    /// The identity of its counters: the same in every process and after every reload, whatever its numbers are.
    pub identity: u64,
    /// What decides while the store is unavailable.
    pub on_store_error: OnStoreError,
    /// How closely processes that share it agree.
    pub consistency: Consistency,
    /// What happens to a request over the limit.
    pub when_over: WhenOver,
    /// The HTTP status of its refusals, if the rule chooses one.
    pub refusal_status: Option<RefusalStatus>,
    /// The cost of one hit.
    pub cost: u64,
}
