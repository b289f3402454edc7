//! All rules, compiled: immutable, and cheap to ask.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::IpNet;
use smallvec::SmallVec;
use tidegate_algorithms::{Charge, Period};

use crate::address::{PrefixLengths, parse_address};
use crate::explain::{self, Explanation};
use crate::identity::version_of;
use crate::matching::{CountBy, End, Tree, same};
use crate::rule::{LimitId, NameId, Rule, RuleId, RuleLimit};
use tidegate_document::Problem;

/// All rules of all domains, as of one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) version: u64,
    pub(crate) domains: IndexMap<Arc<str>, Domain, FixedState>,
    pub(crate) rules: Arc<[Rule]>,
    pub(crate) limits: Vec<RuleLimit>,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) warnings: Vec<Problem>,
    pub(crate) shows_values: bool,
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot {
            version: version_of([]),
            domains: IndexMap::default(),
            rules: Arc::default(),
            limits: Vec::new(),
            names: Vec::new(),
            warnings: Vec::new(),
            shows_values: false,
        }
    }
}

impl Snapshot {
    /// A number that is the same wherever the same texts were compiled in the same order.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The domain of this name.
    #[inline]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        // Most snapshots have one, and then nothing has to be hashed.
        match self.domains.first() {
            Some((first, domain)) if same(first, name) => Some(domain),
            _ => self.domains.get(name),
        }
    }

    /// The domains, in the order of the files.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// All rules; a [`RuleId`] is the place of its rule.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// All limits; a [`LimitId`] is the place of its limit.
    pub fn limits(&self) -> &[RuleLimit] {
        &self.limits
    }

    /// The rule with this id, if it is of this snapshot.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id.index())
    }

    /// The limit with this id, if it is of this snapshot.
    pub fn limit(&self, id: LimitId) -> Option<&RuleLimit> {
        self.limits.get(id.index())
    }

    /// The limits of a rule of this snapshot.
    #[inline]
    pub fn limits_of(&self, rule: &Rule) -> &[RuleLimit] {
        // A rule's limits stand side by side.
        let first = rule.limits.first().map_or(0, |id| id.index());
        let limits = self.limits.get(first..first + rule.limits.len());
        limits.unwrap_or_default()
    }

    /// The text of a limit's name.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.index()).map_or("", |name| name)
    }

    /// What a limit is called within its rule: its name, or else its place, from 1.
    pub fn limit_name(&self, rule: &Rule, limit: &RuleLimit) -> Cow<'_, str> {
        if let Some(name) = limit.name {
            return Cow::Borrowed(self.name(name));
        }
        let place = rule.limits().iter().position(|id| *id == limit.id).unwrap_or(0);
        Cow::Owned((place + 1).to_string())
    }

    /// Whether the metrics of any rule show values of requests.
    pub const fn shows_values(&self) -> bool {
        self.shows_values
    }

    /// What is probably not as meant, though it works.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

/// One key and value of a request's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
}

/// The rules of one domain.
pub struct Domain {
    pub(crate) name: Arc<str>,
    pub(crate) charge: Charge,
    pub(crate) store_deadline: Option<Period>,
    pub(crate) tree: Tree,
    /// By node: its own part of the path, for explanations.
    pub(crate) labels: Vec<CompactString>,
    /// The place of each plan among the rules of a node whose plan the value names.
    pub(crate) plans: IndexMap<Arc<str>, (), FixedState>,
    /// Where the value names the plan.
    pub(crate) choices: Vec<PlanChoice>,
    /// The rules of the whole snapshot.
    pub(crate) rules: Arc<[Rule]>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Domain")
            .field("name", &self.name)
            .field("charge", &self.charge)
            .field("nodes", &self.labels.len())
            .finish_non_exhaustive()
    }
}

/// One rule for each plan of a domain, in the order of the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanChoice {
    pub(crate) first: RuleId,
    /// The place of the plan for values that name none.
    pub(crate) default: Option<usize>,
}

/// The rule that a request met.
#[derive(Debug)]
pub struct Found<'s, 'r> {
    /// The rule.
    pub rule: &'s Rule,
    /// The values that tell counters of this rule apart, in the order of the path.
    pub values: Values<'r>,
}

/// The values that tell a rule's counters apart; up to four without an allocation.
pub type Values<'r> = SmallVec<[KeyValue<'r>; 4]>;

/// A value of the request as far as it tells counters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue<'r> {
    /// The value itself.
    Text(&'r str),
    /// The network that the value's address is in.
    Net(IpNet),
}

impl Domain {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who is charged when one limit of a request refuses.
    pub const fn charge(&self) -> Charge {
        self.charge
    }

    /// How long a store that has to be asked may take; the service's own
    /// setting when not given.
    pub const fn store_deadline(&self) -> Option<Period> {
        self.store_deadline
    }

    /// The rule that a request's descriptor meets.
    ///
    /// Takes one step down the tree for each entry, never one back. A rule
    /// applies only when the last entry leads to it. Allocates nothing for up to
    /// four values that tell counters apart.
    #[inline]
    pub fn find<'s, 'r>(&'s self, entries: &[Entry<'r>]) -> Option<Found<'s, 'r>> {
        let mut values = Values::new();
        let rule = self.find_id(entries, &mut values)?;
        Some(Found { rule: self.rules.get(rule.index())?, values })
    }

    /// The id of the rule that [`Domain::find`] finds. Adds to `values`, which
    /// spares moving them, and does not look at the rule, which spares fetching it.
    #[inline]
    pub fn find_id<'r>(&self, entries: &[Entry<'r>], values: &mut Values<'r>) -> Option<RuleId> {
        let mut edge = self.tree.top();
        for entry in entries {
            edge = self.tree.step(edge.below, entry.key, entry.value)?.edge;
            match edge.count_by {
                CountBy::Nothing => {}
                CountBy::Value => values.push(KeyValue::Text(entry.value)),
                CountBy::Network(prefixes) => push_network(prefixes, entry.value, values),
            }
        }
        self.id_at(edge.end, entries.last()?.value)
    }

    /// Says how a request's descriptor is matched, level by level, and why it ends as it does.
    pub fn explain(&self, entries: &[Entry<'_>]) -> Explanation {
        explain::explain(self, entries)
    }

    /// The rule that applies where the last entry has this value.
    pub(crate) fn rule_at(&self, end: End, value: &str) -> Option<&Rule> {
        self.rules.get(self.id_at(end, value)?.index())
    }

    #[inline]
    fn id_at(&self, end: End, value: &str) -> Option<RuleId> {
        match end {
            End::Nothing => None,
            End::Rule(rule) => Some(rule),
            End::Choice(at) => self.chosen(at, value),
        }
    }

    /// The rule of the plan that a value names.
    #[inline(never)]
    fn chosen(&self, at: u32, value: &str) -> Option<RuleId> {
        let choice = self.choices.get(at as usize)?;
        let named = self.plans.get_index_of(value);
        Some(RuleId::at(choice.first.index() + named.or(choice.default)?))
    }
}

pub(crate) fn counted(count_by: CountBy, value: &str) -> Option<KeyValue<'_>> {
    match count_by {
        CountBy::Nothing => None,
        CountBy::Value => Some(KeyValue::Text(value)),
        CountBy::Network(prefixes) => Some(counted_by_network(prefixes, value)),
    }
}

/// Apart, so that the common way stays short.
#[inline(never)]
fn push_network<'r>(prefixes: PrefixLengths, value: &'r str, values: &mut Values<'r>) {
    values.push(counted_by_network(prefixes, value));
}

fn counted_by_network(prefixes: PrefixLengths, value: &str) -> KeyValue<'_> {
    match parse_address(value) {
        Some(address) => KeyValue::Net(prefixes.group(address)),
        // What is no address is still limited, under its own text.
        None => KeyValue::Text(value),
    }
}
