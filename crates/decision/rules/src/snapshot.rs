//! All rules, compiled: immutable and fast to query.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::IpNet;
use smallvec::SmallVec;
use tidegate_algorithms::{Charge, Period, Timestamp};

use crate::address::{PrefixLengths, parse_address};
use crate::explain::{self, Explanation};
use crate::identity::version_of;
use crate::matching::{CountBy, End, Tree, same};
use crate::rule::{LimitId, NameId, Rule, RuleId, RuleLimit};
use tidegate_document::Problem;
use tidegate_macros::defaults;
use tidegate_row_table::{Minute, RowTable, TableTag};

defaults! {
    /// All rules of all domains.
    #[derive(Debug)]
    pub struct Snapshot {
        pub(crate) version: u64 = version_of([]),
        pub(crate) domains: IndexMap<Arc<str>, Domain, FixedState>,
        pub(crate) rules: Arc<[Rule]>,
        pub(crate) limits: Vec<RuleLimit>,
        pub(crate) names: Vec<Arc<str>>,
        pub(crate) warnings: Vec<Problem>,
        pub(crate) rows: RowTable,
        pub(crate) shows_values: bool,
    }
}

impl Snapshot {
    /// A hash of the texts: equal texts in equal order have equal versions.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The domain of this name.
    #[inline]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        // Most snapshots have one domain; comparing its name is cheaper than hashing.
        match self.domains.first() {
            Some((first, domain)) if same(first, name) => Some(domain),
            _ => self.domains.get(name),
        }
    }

    /// The domains, in the order of the files.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// All rules; a [`RuleId`] is an index into them.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// All limits; a [`LimitId`] is an index into them.
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
        // A rule's limits are adjacent.
        let first = rule.limits.first().map_or(0, |id| id.index());
        let limits = self.limits.get(first..first + rule.limits.len());
        limits.unwrap_or_default()
    }

    /// The text of a limit's name.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.index()).map_or("", |name| name)
    }

    /// The name of a limit within its rule, or else its position, from 1.
    pub fn limit_name(&self, rule: &Rule, limit: &RuleLimit) -> Cow<'_, str> {
        if let Some(name) = limit.name {
            return Cow::Borrowed(self.name(name));
        }
        let index = rule.limits().iter().position(|id| *id == limit.id).unwrap_or(0);
        Cow::Owned((index + 1).to_string())
    }

    /// Whether the metrics of any rule show values of requests.
    pub const fn shows_values(&self) -> bool {
        self.shows_values
    }

    /// The rows of all tables.
    pub const fn row_table(&self) -> &RowTable {
        &self.rows
    }

    /// Warnings: valid, but probably not as intended.
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
    /// The part of the path that each node adds, for explanations.
    pub(crate) labels: Vec<CompactString>,
    /// The plans. The index of a plan is that of its rule among the rules of a [`PlanChoice`].
    pub(crate) plans: IndexMap<Arc<str>, (), FixedState>,
    /// The nodes where the value names the plan.
    pub(crate) choices: Vec<PlanChoice>,
    /// The nodes where a row may change the limits.
    pub(crate) row_choices: Vec<RowChoice>,
    /// The rows of the whole snapshot.
    pub(crate) rows: RowTable,
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
    /// The index of the plan for values that name none.
    pub(crate) default: Option<usize>,
}

/// One rule for each of the terms that rows of a table have, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowChoice {
    pub(crate) table: TableTag,
    /// The index of the entry whose value is looked up.
    pub(crate) entry: usize,
    /// What applies without a row.
    pub(crate) own: End,
    /// The index of the table's first terms among those of all tables.
    pub(crate) first_terms: usize,
    /// The number of the table's terms.
    pub(crate) terms: usize,
    pub(crate) first: RuleId,
}

/// The rule that a request matched.
#[derive(Debug)]
pub struct MatchedRule<'s, 'r> {
    /// The rule.
    pub rule: &'s Rule,
    /// The values that select the rule's counters, in the order of the path.
    pub values: Values<'r>,
}

/// The values that select a rule's counters; up to four without an allocation.
pub type Values<'r> = SmallVec<[KeyValue<'r>; 4]>;

/// The part of a request's value that selects the counter.
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

    /// Which limits are charged when one limit of a request refuses.
    pub const fn charge(&self) -> Charge {
        self.charge
    }

    /// How long the shared store may take; the service's setting if `None`.
    pub const fn store_deadline(&self) -> Option<Period> {
        self.store_deadline
    }

    /// The rule that a request's descriptor matches.
    ///
    /// Takes one step down the tree for each entry and never goes back. A rule applies only when the last entry leads to
    /// it. A row applies until it ends, as of `now`. Allocates nothing for up to four values that select counters.
    #[inline]
    pub fn find<'s, 'r>(
        &'s self,
        entries: &[Entry<'r>],
        now: Timestamp,
    ) -> Option<MatchedRule<'s, 'r>> {
        let mut values = Values::new();
        let rule = self.find_id(entries, now, &mut values)?;
        Some(MatchedRule { rule: self.rules.get(rule.index())?, values })
    }

    /// The id of the rule that [`Domain::find`] finds. Adds to `values` instead of returning them, which would copy them,
    /// and does not read the rule, which may not be cached.
    #[inline]
    pub fn find_id<'r>(
        &self,
        entries: &[Entry<'r>],
        now: Timestamp,
        values: &mut Values<'r>,
    ) -> Option<RuleId> {
        let mut edge = self.tree.top();
        for entry in entries {
            edge = self.tree.step(edge.below, entry.key, entry.value)?.edge;
            match edge.count_by {
                CountBy::Nothing => {}
                CountBy::Value => values.push(KeyValue::Text(entry.value)),
                CountBy::Network(prefixes) => push_network(prefixes, entry.value, values),
            }
        }
        self.id_at(edge.end, entries, now)
    }

    /// Explains level by level how a request's descriptor is matched.
    pub fn explain(&self, entries: &[Entry<'_>], now: Timestamp) -> Explanation {
        explain::explain(self, entries, now)
    }

    /// The rule that applies where these entries lead to `end`.
    pub(crate) fn rule_at(&self, end: End, entries: &[Entry<'_>], now: Timestamp) -> Option<&Rule> {
        self.rules.get(self.id_at(end, entries, now)?.index())
    }

    #[inline]
    fn id_at(&self, end: End, entries: &[Entry<'_>], now: Timestamp) -> Option<RuleId> {
        match end {
            End::Nothing => None,
            End::Rule(rule) => Some(rule),
            End::Choice(at) => self.chosen(at, entries.last()?.value),
            End::Row(at) => self.by_row(at, entries, now),
        }
    }

    /// The rule of the terms that a row has, or else the rule's own.
    #[inline(never)]
    fn by_row(&self, at: u32, entries: &[Entry<'_>], now: Timestamp) -> Option<RuleId> {
        let choice = self.row_choices.get(at as usize)?;
        let value = entries.get(choice.entry)?.value;
        let terms = self.rows.find(choice.table, value, Minute::of_nanos(now.as_nanos()));
        let terms = terms.and_then(|terms| terms.index().checked_sub(choice.first_terms));
        match terms.filter(|terms| *terms < choice.terms) {
            Some(terms) => Some(RuleId::at(choice.first.index() + terms)),
            // Not a row again: a choice is not nested.
            None if matches!(choice.own, End::Row(_)) => None,
            None => self.id_at(choice.own, entries, now),
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

/// Not inlined, so that the common path stays short.
#[inline(never)]
fn push_network<'r>(prefixes: PrefixLengths, value: &'r str, values: &mut Values<'r>) {
    values.push(counted_by_network(prefixes, value));
}

fn counted_by_network(prefixes: PrefixLengths, value: &str) -> KeyValue<'_> {
    match parse_address(value) {
        Some(address) => KeyValue::Net(prefixes.group(address)),
        // A value that is not an address is limited under its text.
        None => KeyValue::Text(value),
    }
}
