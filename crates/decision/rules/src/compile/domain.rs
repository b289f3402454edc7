//! One domain: merges its files and builds its tree.

use std::sync::Arc;

use compact_str::{CompactString, format_compact};
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use tidegate_algorithms::{Charge, Period};

use super::limits::{LimitsBuild, RuleContext, refuse_equal_names};
use super::tables::{Made, Tables, read_rows, take_tables};
use crate::document::{CounterSharing, Descriptor, LimitText, Limits, RuleFile, ValuePattern};
use crate::matching::{CountBy, EarlierNode, End, NodeId, TreeBuilder};
use crate::options::Options;
use crate::rule::Rule;
use crate::snapshot::{Domain, PlanChoice, RowChoice};
use tidegate_document::{Fault, LocatedValue, Location, Problems, Source, closest};
use tidegate_row_table::{RowTable, Rows};

/// A plan and its location.
#[derive(Debug)]
struct PlanBuild {
    location: Location,
    limits: Vec<LimitText>,
}

/// A domain under construction.
#[derive(Debug)]
pub(super) struct DomainBuild {
    name: Arc<str>,
    number: usize,
    charge: Option<LocatedValue<Charge>>,
    store_deadline: Option<LocatedValue<Period>>,
    plans: IndexMap<Arc<str>, PlanBuild, FixedState>,
    tables: Tables,
    row_choices: Vec<RowChoice>,
    /// The number of rules that terms made.
    row_rules: usize,
    tree: TreeBuilder,
    /// By node.
    ends: Vec<End>,
    choices: Vec<PlanChoice>,
    labels: Vec<CompactString>,
    locations: Vec<Location>,
}

/// The descriptors from the top down to the one being added.
type Trail<'d> = Vec<&'d Descriptor>;

impl DomainBuild {
    pub(super) fn new(name: &str, number: usize) -> Self {
        DomainBuild {
            name: name.into(),
            number,
            charge: None,
            store_deadline: None,
            plans: IndexMap::default(),
            tables: IndexMap::default(),
            row_choices: Vec::new(),
            row_rules: 0,
            tree: TreeBuilder::default(),
            ends: vec![End::Nothing],
            choices: Vec::new(),
            labels: vec![CompactString::default()],
            locations: vec![Location::default()],
        }
    }

    /// Merges the settings, plans and tables of all files. Must run before the descriptors are added: they may use those
    /// of any file.
    pub(super) fn settings(
        &mut self,
        files: &[RuleFile],
        sources: &[Source],
        problems: &mut Problems<'_>,
    ) {
        for file in files {
            merge_setting(&mut self.charge, &file.charge, "charge", problems);
            let deadline = &mut self.store_deadline;
            merge_setting(deadline, &file.store_deadline, "store_deadline", problems);
            self.take_plans(file, problems);
            take_tables(&mut self.tables, &self.name, file, sources, problems);
        }
    }

    fn take_plans(&mut self, file: &RuleFile, problems: &mut Problems<'_>) {
        for plan in &file.plans {
            refuse_equal_names(&plan.limits, problems);
            if let Some(first) = self.plans.get(plan.name.value.as_str()) {
                let message = format!("plan `{}` is given twice", plan.name.value);
                let fault = Fault::new("duplicate_plan", message)
                    .related(first.location, "first given here")
                    .hint("keep one of the two");
                problems.error(plan.name.location, fault);
                continue;
            }
            let build = PlanBuild { location: plan.name.location, limits: plan.limits.clone() };
            self.plans.insert(plan.name.value.as_str().into(), build);
        }
    }

    /// Adds the descriptors of one file.
    pub(super) fn descriptors(&mut self, descriptors: &[Descriptor], limits: &mut LimitsBuild<'_>) {
        let mut trail = Trail::new();
        for descriptor in descriptors {
            self.descriptor(descriptor, NodeId::ROOT, &mut trail, limits);
        }
    }

    // The depth of the recursion is bounded by the nesting of the file.
    fn descriptor<'d>(
        &mut self,
        descriptor: &'d Descriptor,
        parent: NodeId,
        trail: &mut Trail<'d>,
        limits: &mut LimitsBuild<'_>,
    ) {
        trail.push(descriptor);
        if let Some(location) = descriptor.misused_share {
            limits.problems.error(location, self.misused_share(trail));
        }
        match self.declare(parent, descriptor) {
            Ok(node) => {
                let own = self.end(node, trail, limits);
                let end = self.with_overrides(own, node, trail, limits);
                self.ends.push(end);
                self.labels.push(label(descriptor));
                self.locations.push(descriptor.location);
                for child in &descriptor.children {
                    self.descriptor(child, node, trail, limits);
                }
            }
            Err(earlier) => {
                limits.problems.error(descriptor.location, self.duplicate(earlier, trail));
            }
        }
        trail.pop();
    }

    fn misused_share(&self, trail: &Trail<'_>) -> Fault {
        Fault::new(
            "share_without_pattern",
            "`share_threshold` needs a `value` with `*`, or a `cidr`",
        )
        .hint("a single value has one counter anyway: remove it")
        .compat(format!(
            "share_threshold can only be used with wildcard values (containing '*'), \
             but found key '{}.{}'",
            self.name,
            path(trail)
        ))
    }

    fn duplicate(&self, earlier: EarlierNode, trail: &Trail<'_>) -> Fault {
        let path = path(trail);
        let fault = Fault::new("duplicate_descriptor", format!("`{path}` is declared twice"))
            .hint("put everything about it into one descriptor")
            .compat(format!("duplicate descriptor composite key '{}.{path}'", self.name));
        match self.locations.get(earlier.0.index()) {
            Some(first) => fault.related(*first, "first declared here"),
            None => fault,
        }
    }

    fn declare(&mut self, parent: NodeId, descriptor: &Descriptor) -> Result<NodeId, EarlierNode> {
        let key = &descriptor.key;
        let named_by_value = matches!(descriptor.limits, Limits::PlanNamedByValue { .. });
        let count_by = match descriptor.sharing {
            // The value chooses the limits, not the counter: usage survives a change of plan.
            _ if named_by_value => CountBy::Nothing,
            CounterSharing::All => CountBy::Nothing,
            CounterSharing::None => CountBy::Value,
            CounterSharing::SameNetwork(prefixes) => CountBy::Network(prefixes),
        };
        match &descriptor.values {
            ValuePattern::Any => self.tree.bare(parent, key, count_by),
            ValuePattern::Exactly(value) => self.tree.exact(parent, key, value, count_by),
            ValuePattern::Like(pattern) => self.tree.like(parent, key, pattern, count_by),
            ValuePattern::Within(ranges) => self.tree.within(parent, key, ranges, count_by),
        }
    }

    /// The rule, or the choice of rules, that applies at the node of the last descriptor.
    fn end(&mut self, node: NodeId, trail: &Trail<'_>, limits: &mut LimitsBuild<'_>) -> End {
        let Some(descriptor) = trail.last() else {
            return End::Nothing;
        };
        let (domain, home) = (Arc::clone(&self.name), (self.number, node));
        let context = || RuleContext::new(&domain, home, trail, descriptor);
        match &descriptor.limits {
            Limits::None => End::Nothing,
            Limits::Own(own) if own.is_empty() => End::Nothing,
            Limits::Own(own) => {
                refuse_equal_names(own, &mut limits.problems);
                End::Rule(limits.rule(&context(), None, own))
            }
            Limits::Plan(name) => match self.plan(name, &mut limits.problems) {
                Some((_, plan, build)) => {
                    End::Rule(limits.rule(&context(), Some(plan), &build.limits))
                }
                None => End::Nothing,
            },
            Limits::PlanNamedByValue { default } => {
                let default = default.as_ref().map(|name| self.plan(name, &mut limits.problems));
                let mut first = None;
                let context = context();
                for (name, plan) in &self.plans {
                    let rule = limits.rule(&context, Some(name), &plan.limits);
                    first.get_or_insert(rule);
                }
                let Some(first) = first else {
                    let fault = Fault::new("unknown_plan", "the domain has no plans")
                        .hint("add `plans` at the top level of the file");
                    limits.problems.error(descriptor.location, fault);
                    return End::Nothing;
                };
                let default = default.flatten().map(|(at, ..)| at);
                let at = u32::try_from(self.choices.len()).unwrap_or(u32::MAX);
                self.choices.push(PlanChoice { first, default });
                End::Choice(at)
            }
        }
    }

    /// The choice among the terms of a table, if the last descriptor names one; otherwise `own`.
    fn with_overrides(
        &mut self,
        own: End,
        node: NodeId,
        trail: &Trail<'_>,
        limits: &mut LimitsBuild<'_>,
    ) -> End {
        let Some(descriptor) = trail.last() else { return own };
        let Some(name) = &descriptor.overrides else { return own };
        let Some((_, _, table)) = self.tables.get_full_mut(name.value.as_str()) else {
            limits.problems.error(name.location, unknown_table(name, &self.tables));
            return own;
        };
        table.is_used = true;
        if let End::Rule(rule) = own {
            limits.depends_on_rows(rule);
        }
        let entry = trail.iter().rposition(|above| above.key == table.key.value);
        let Some(entry) = entry else {
            let message = format!("table `{}` is about `{}`", name.value, table.key.value);
            let fault = Fault::new("overrides_without_key", message)
                .related(table.key.location, "its key is here")
                .hint("use the table on a descriptor with that key, or below one");
            limits.problems.error(name.location, fault);
            return own;
        };
        if !table.fits(self.row_rules, &mut limits.problems) {
            return own;
        }
        let base = match &descriptor.limits {
            Limits::Own(own) => own.as_slice(),
            Limits::Plan(name) => limits_of(&self.plans, Some(name)),
            Limits::PlanNamedByValue { default } => limits_of(&self.plans, default.as_ref()),
            Limits::None => &[],
        };
        let home = (self.number, node);
        let context = RuleContext::new(&self.name, home, trail, descriptor);
        let mut first = None;
        for terms in &mut table.terms {
            let text = Arc::clone(&terms.text);
            let rule = match terms.make(base, &mut limits.problems) {
                Made::Limits(made) => limits.row_rule(&context, None, &text, &made),
                Made::Plan(plan) => match self.plans.get_key_value(plan) {
                    Some((plan, build)) => {
                        limits.row_rule(&context, Some(plan), &text, &build.limits)
                    }
                    None => {
                        let names = self.plans.keys().map(|name| &**name);
                        let plan = plan.to_owned();
                        terms.unknown_plan(&plan, names, &mut limits.problems);
                        continue;
                    }
                },
            };
            first.get_or_insert(rule);
        }
        self.row_rules += table.terms.len();
        let Some(first) = first else { return own };
        let at = u32::try_from(self.row_choices.len()).unwrap_or(u32::MAX);
        let (first_terms, terms) = (table.first_terms, table.terms.len());
        self.row_choices.push(RowChoice {
            table: table.tag,
            entry,
            own,
            first_terms,
            terms,
            first,
        });
        End::Row(at)
    }

    /// Reports what rows say of no rule.
    pub(super) fn report_unused_tables(&self, problems: &mut Problems<'_>) {
        for (name, table) in &self.tables {
            table.report_unused(name, problems);
        }
    }

    fn plan(
        &self,
        name: &LocatedValue<String>,
        problems: &mut Problems<'_>,
    ) -> Option<(usize, &Arc<str>, &PlanBuild)> {
        let found = self.plans.get_full(name.value.as_str());
        if found.is_none() {
            let names = self.plans.keys().map(|name| &**name);
            let hint = match closest(&name.value, names.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.plans.is_empty() => "add `plans` at the top level of the file".into(),
                None => format!("the domain has {}", names.collect::<Vec<_>>().join(", ")),
            };
            let message = format!("no plan is called `{}`", name.value);
            problems.error(name.location, Fault::new("unknown_plan", message).hint(hint));
        }
        found
    }

    /// The domain, with the rules of the whole snapshot.
    pub(super) fn finish(self, rules: &Arc<[Rule]>, rows: &RowTable, options: Options) -> Domain {
        let default = if options.compat { Charge::Always } else { Charge::AllOrNothing };
        Domain {
            name: self.name,
            charge: self.charge.map_or(default, |charge| charge.value),
            store_deadline: self.store_deadline.map(|deadline| deadline.value),
            tree: self.tree.finish(&self.ends),
            choices: self.choices,
            row_choices: self.row_choices,
            rows: rows.clone(),
            labels: self.labels,
            plans: self.plans.into_keys().map(|name| (name, ())).collect(),
            rules: Arc::clone(rules),
        }
    }
}

/// Takes the rows of all domains: those given, or else those in the files that tables name.
pub(super) fn take_rows(
    builds: &mut [DomainBuild],
    given: Option<&Rows>,
    sources: &[Source],
    problems: &mut Problems<'_>,
) -> Rows {
    let (rows, locations) = match given {
        Some(rows) => (rows.clone(), std::collections::HashMap::new()),
        None => {
            let domains = builds.iter().map(|build| (&*build.name, &build.tables));
            read_rows(domains, sources, problems)
        }
    };
    for build in builds {
        for (name, table) in &mut build.tables {
            table.take_terms(&build.name, name, &rows, &locations, problems);
        }
    }
    rows
}

fn limits_of<'p>(
    plans: &'p IndexMap<Arc<str>, PlanBuild, FixedState>,
    name: Option<&LocatedValue<String>>,
) -> &'p [LimitText] {
    let plan = name.and_then(|name| plans.get(name.value.as_str()));
    plan.map(|plan| plan.limits.as_slice()).unwrap_or_default()
}

fn unknown_table(name: &LocatedValue<String>, tables: &Tables) -> Fault {
    let names = tables.keys().map(|name| &**name);
    let hint = match closest(&name.value, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "add it to `tables` at the top level of the file".to_owned(),
    };
    Fault::new("unknown_table", format!("no table is called `{}`", name.value)).hint(hint)
}

/// Merges a setting of the domain: files may repeat it, but not contradict it.
fn merge_setting<T: Clone + PartialEq>(
    known: &mut Option<LocatedValue<T>>,
    setting: &Option<LocatedValue<T>>,
    key: &str,
    problems: &mut Problems<'_>,
) {
    let Some(setting) = setting else { return };
    match known {
        Some(first) if first.value != setting.value => {
            let fault = Fault::new("contradicting_files", "another file says otherwise")
                .related(first.location, "the other is here")
                .hint(format!("a domain has one `{key}`"));
            problems.error(setting.location, fault);
        }
        Some(_) => {}
        None => *known = Some(setting.clone()),
    }
}

/// The part of the path that a descriptor adds.
pub(super) fn label(descriptor: &Descriptor) -> CompactString {
    let key = &descriptor.key;
    match written(&descriptor.values) {
        Some(value) => format_compact!("{key}_{value}"),
        None => key.into(),
    }
}

/// The value as the rule has it: a text, a pattern or address ranges.
pub(super) fn written(values: &ValuePattern) -> Option<CompactString> {
    match values {
        ValuePattern::Any => None,
        ValuePattern::Exactly(text) | ValuePattern::Like(text) => Some(text.into()),
        ValuePattern::Within(ranges) => {
            let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
            Some(ranges.join(",").into())
        }
    }
}

/// The path of the last descriptor.
pub(super) fn path(trail: &[&Descriptor]) -> String {
    trail.iter().map(|descriptor| label(descriptor)).collect::<Vec<_>>().join(".")
}
