//! Numbers the rules and limits of all domains, interns names, and checks that identities are unique.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use indexmap::IndexSet;
use jiff::tz::TimeZone;
use smallvec::SmallVec;
use tidegate_algorithms::{Algorithm, CalendarUnit, Limit, Mode, Percent, Window};

use super::domain::{path, written};
use crate::address::PrefixLengths;
use crate::choices::Unit;
use crate::document::{CounterSharing, Descriptor, LimitText, Terms, ValuePattern};
use crate::identity::Identity;
use crate::matching::NodeId;
use crate::options::Options;
use crate::rule::{
    AddressMatch, Exemption, Level, LimitId, NameId, Rule, RuleId, RuleLimit, ShownValue,
};
use tidegate_document::{Fault, Location, Problems};

/// How many recent limits are searched for an equal one to share. Files use few different limits; searching more would
/// slow down the compilation of 100,000 rules.
const SHARED_MAX: usize = 32;

/// The facts about a node that its rules need.
#[derive(Debug)]
pub(super) struct RuleContext<'c> {
    domain: &'c Arc<str>,
    /// The domain's number and the node. The plans of one node share identities.
    home: (usize, NodeId),
    descriptor: &'c Descriptor,
    path: Arc<str>,
    levels: Arc<[Level]>,
    metadata: Option<Arc<serde_json::Value>>,
    addresses: Option<Arc<AddressMatch>>,
    identity: Identity,
}

impl<'c> RuleContext<'c> {
    /// The context of the node at the end of this trail of descriptors.
    pub(super) fn new(
        domain: &'c Arc<str>,
        home: (usize, NodeId),
        trail: &[&Descriptor],
        descriptor: &'c Descriptor,
    ) -> Self {
        let mut identity = Identity::of_domain(domain);
        for descriptor in trail {
            identity.below(&descriptor.key, &descriptor.values);
        }
        RuleContext {
            domain,
            home,
            descriptor,
            path: path(trail).into(),
            levels: trail.iter().map(|descriptor| level(descriptor)).collect(),
            metadata: descriptor.metadata.clone().map(Arc::new),
            addresses: addresses(trail).map(Arc::new),
            identity,
        }
    }
}

/// The addresses that a rule applies to, if it has one level and its values are addresses.
fn addresses(trail: &[&Descriptor]) -> Option<AddressMatch> {
    let [descriptor] = trail else { return None };
    let ranges = match &descriptor.values {
        ValuePattern::Any => Vec::new(),
        ValuePattern::Within(ranges) => ranges.to_vec(),
        ValuePattern::Exactly(_) | ValuePattern::Like(_) => return None,
    };
    let (ipv4_prefix, ipv6_prefix) = match descriptor.sharing {
        CounterSharing::SameNetwork(prefixes) => prefixes.lengths(),
        CounterSharing::All if !ranges.is_empty() => PrefixLengths::DEFAULT.lengths(),
        CounterSharing::All | CounterSharing::None => return None,
    };
    let is_shared = descriptor.sharing == CounterSharing::All;
    Some(AddressMatch { ranges, ipv4_prefix, ipv6_prefix, is_shared })
}

fn level(descriptor: &Descriptor) -> Level {
    let shared = descriptor.sharing == CounterSharing::All;
    let shown = match (&descriptor.values, written(&descriptor.values)) {
        (ValuePattern::Like(_) | ValuePattern::Within(_), Some(text)) if shared => {
            ShownValue::Shared(text.as_str().into())
        }
        _ if descriptor.value_to_metric => ShownValue::Requested,
        (_, Some(text)) => ShownValue::Written(text.as_str().into()),
        (_, None) => ShownValue::KeyOnly,
    };
    Level::new(&descriptor.key, shown)
}

/// The limit that has an identity.
#[derive(Clone, Copy, Debug)]
struct Owner {
    home: (usize, NodeId),
    rule: RuleId,
    name: Option<NameId>,
    location: Location,
}

/// All rules and limits so far.
#[derive(Debug)]
pub(super) struct LimitsBuild<'s> {
    options: Options,
    pub(super) problems: Problems<'s>,
    pub(super) rules: Vec<Rule>,
    pub(super) limits: Vec<RuleLimit>,
    pub(super) names: IndexSet<Arc<str>, FixedState>,
    owners: HashMap<u64, Owner, FixedState>,
    /// Recent limits, for sharing; the most recent last.
    shared: Vec<Arc<Limit>>,
    /// The names of limits, and the names in `replaces`.
    given: HashSet<NameId, FixedState>,
    replaced: Vec<(Location, NameId)>,
}

impl<'s> LimitsBuild<'s> {
    pub(super) fn new(options: Options, problems: Problems<'s>) -> Self {
        LimitsBuild {
            options,
            problems,
            rules: Vec::new(),
            limits: Vec::new(),
            names: IndexSet::default(),
            owners: HashMap::default(),
            shared: Vec::new(),
            given: HashSet::default(),
            replaced: Vec::new(),
        }
    }

    /// A rule of a node with these limits.
    pub(super) fn rule(
        &mut self,
        context: &RuleContext<'_>,
        plan: Option<&Arc<str>>,
        limits: &[LimitText],
    ) -> RuleId {
        let id = RuleId::at(self.rules.len());
        let mut ids = SmallVec::new();
        let mut exemption = None;
        for (ordinal, text) in limits.iter().enumerate() {
            match self.limit(context, id, ordinal, text) {
                Some(limit) => ids.push(limit),
                None => {
                    let (name, replaces) = (self.name(text), self.replaces(text));
                    exemption = Some(Exemption {
                        name,
                        replaces,
                        requests_per_unit: text.requests_per_unit,
                        shadow: context.descriptor.mode == Some(Mode::Shadow),
                        quota: context.descriptor.quota,
                    });
                }
            }
        }
        self.rules.push(Rule {
            id,
            identity: context.identity.of_rule(),
            domain: Arc::clone(context.domain),
            path: Arc::clone(&context.path),
            plan: plan.map(Arc::clone),
            terms: None,
            limits: ids,
            exemption,
            metadata: context.metadata.clone(),
            detailed_metric: context.descriptor.detailed_metric,
            levels: Arc::clone(&context.levels),
            addresses: context.addresses.clone(),
        });
        id
    }

    /// A rule of a node for clients whose rows have these terms.
    pub(super) fn row_rule(
        &mut self,
        context: &RuleContext<'_>,
        plan: Option<&Arc<str>>,
        terms: &Arc<str>,
        limits: &[LimitText],
    ) -> RuleId {
        let id = self.rule(context, plan, limits);
        if let Some(rule) = self.rules.last_mut() {
            rule.terms = Some(Arc::clone(terms));
            rule.addresses = None;
        }
        id
    }

    /// Marks a rule as one whose limits depend on rows: no address alone says which apply.
    pub(super) fn depends_on_rows(&mut self, rule: RuleId) {
        if let Some(rule) = self.rules.get_mut(rule.index()) {
            rule.addresses = None;
        }
    }

    /// One limit; none when it is unlimited.
    fn limit(
        &mut self,
        context: &RuleContext<'_>,
        rule: RuleId,
        ordinal: usize,
        text: &LimitText,
    ) -> Option<LimitId> {
        let terms = text.terms.as_ref()?;
        let id = LimitId::at(self.limits.len());
        let algorithm = terms.limit.algorithm();
        let identity = context.identity.of_limit(text.name.as_deref(), ordinal, algorithm);
        let name = self.name(text);
        let owner = Owner { home: context.home, rule, name, location: text.location };
        self.own(identity, owner);
        let descriptor = context.descriptor;
        let limit = RuleLimit {
            id,
            rule,
            name,
            limit: self.shared(&limit_under(terms, self.options)),
            unit: terms.unit,
            mode: terms.mode.or(descriptor.mode).unwrap_or_default().with_percent(
                terms
                    .enforce_percent
                    .or(descriptor.enforce_percent)
                    .map_or(Percent::ALL, Percent::new),
            ),
            quota: descriptor.quota,
            replaces: self.replaces(text),
            identity,
            on_store_error: terms.on_store_error.unwrap_or(self.options.on_store_error),
            consistency: terms.consistency,
            when_over: terms.when_over,
            refusal_status: terms.refusal_status,
            cost: terms.cost,
        };
        self.limits.push(limit);
        Some(id)
    }

    /// The limit, shared with rules that have the same one.
    fn shared(&mut self, limit: &Limit) -> Arc<Limit> {
        if let Some(known) = self.shared.iter().rev().find(|known| ***known == *limit) {
            return Arc::clone(known);
        }
        if self.shared.len() == SHARED_MAX {
            self.shared.remove(0);
        }
        let new = Arc::new(limit.clone());
        self.shared.push(Arc::clone(&new));
        new
    }

    fn name(&mut self, text: &LimitText) -> Option<NameId> {
        let name = self.intern(text.name.as_deref()?);
        self.given.insert(name);
        Some(name)
    }

    fn replaces(&mut self, text: &LimitText) -> Box<[NameId]> {
        let mut replaced = Vec::new();
        for name in &text.replaces {
            let id = self.intern(&name.value);
            self.replaced.push((name.location, id));
            replaced.push(id);
        }
        replaced.into()
    }

    fn intern(&mut self, name: &str) -> NameId {
        let index = match self.names.get_index_of(name) {
            Some(index) => index,
            None => self.names.insert_full(name.into()).0,
        };
        NameId::at(index)
    }

    /// Registers the owner of an identity; reports a second owner, unless it is another plan of the same node.
    fn own(&mut self, identity: u64, owner: Owner) {
        let Some(other) = self.owners.insert(identity, owner) else {
            return;
        };
        let other_plan = other.home == owner.home && other.rule != owner.rule;
        // Equal names in one list have their own message.
        let equal_names = other.rule == owner.rule && owner.name.is_some();
        if other_plan || equal_names {
            return;
        }
        let fault = Fault::new("identity_collision", "two limits would share their counters")
            .related(other.location, "the other is here")
            .hint("give one of them another `name`");
        self.problems.error(owner.location, fault);
    }

    /// Warns of every `replaces` that names no limit.
    pub(super) fn warn_unknown_replaced(&mut self) {
        for (location, name) in &self.replaced {
            if self.given.contains(name) {
                continue;
            }
            let text = self.names.get_index(name.index()).map_or("", |name| name);
            let message = format!("no limit is called `{text}`, so nothing is replaced");
            let fault = Fault::new("unknown_replaced", message)
                .hint("check the `name` of the limit that should not apply");
            self.problems.warn(*location, fault);
        }
    }
}

/// The limit under these options: calendar months, refused hits.
fn limit_under(terms: &Terms, options: Options) -> Limit {
    let Algorithm::FixedWindow(window) = terms.limit.algorithm() else {
        return terms.limit.clone();
    };
    let by_month = terms.unit == Some(Unit::Month) && matches!(window.window(), Window::Every(_));
    let mut meant = window.clone();
    if options.calendar_months && by_month {
        meant = meant.with_window(Window::Calendar(CalendarUnit::Month, TimeZone::UTC));
    }
    if options.compat && !terms.says_count_refused {
        meant = meant.counting_refused(true);
    }
    let limit = Limit::new(meant);
    match terms.limit.soft() {
        Some(soft) => limit.with_soft(soft),
        None => limit,
    }
}

/// Reports limits of one list that have the same name.
pub(super) fn refuse_equal_names(limits: &[LimitText], problems: &mut Problems<'_>) {
    for (at, limit) in limits.iter().enumerate() {
        let Some(name) = &limit.name else { continue };
        let first = limits[..at].iter().find(|other| other.name.as_ref() == Some(name));
        if let Some(first) = first {
            let message = format!("two limits of one rule are called `{name}`");
            let fault = Fault::new("duplicate_limit_name", message)
                .related(first.location, "the other is here")
                .hint("give one of them another `name`");
            problems.error(limit.location, fault);
        }
    }
}
