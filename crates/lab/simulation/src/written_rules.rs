//! The simulation's own model of a rule file.
//!
//! A run draws rules, renders them as YAML for the production compiler, and checks the answers by
//! this model: which rule matches a descriptor, which counter it uses, what the limit allows. It
//! shares no code with the production matching and arithmetic.

mod address;
mod draw;
mod matching;
mod render;
mod terms;

use tidegate_rules::{Charge, Mode};

pub(crate) use address::Network;
pub(crate) use draw::{PLANS, draw_mode, draw_percent};
pub(crate) use matching::{
    DrawnDescriptor, DrawnRequest, ExpectedVerdict, LimitName, Subject, Switches, limit_name,
};
pub(crate) use terms::{Kind, SoftTerms, Terms, Window};

/// The domain of every rule file here.
pub(crate) const DOMAIN: &str = "sim";

/// One rule file.
#[derive(Clone, Debug)]
pub(crate) struct WrittenRules {
    pub(crate) charge: Charge,
    pub(crate) plans: Vec<WrittenPlan>,
    pub(crate) rules: Vec<WrittenRule>,
    /// The number of names so far, so that each is unique.
    named: u64,
}

/// A named set of limits.
#[derive(Clone, Debug)]
pub(crate) struct WrittenPlan {
    pub(crate) name: &'static str,
    pub(crate) limits: Vec<WrittenLimit>,
}

/// A rule: its path and its limits.
#[derive(Clone, Debug)]
pub(crate) struct WrittenRule {
    pub(crate) levels: Vec<Level>,
    pub(crate) limits: Limits,
    pub(crate) mode: Option<Mode>,
    pub(crate) enforce_percent: Option<u8>,
    pub(crate) quota: bool,
}

/// The limits of a rule.
#[derive(Clone, Debug)]
pub(crate) enum Limits {
    Own(Vec<WrittenLimit>),
    Unlimited { replaces: Option<String> },
    Plan(&'static str),
    PlanNamedByValue { default: Option<&'static str> },
}

/// One level of a rule's path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) key: &'static str,
    pub(crate) values: Values,
}

/// The values that a level matches, and how they share counters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Every value, each with its own counter.
    Any,
    /// Every value, and it names the plan: all share a counter.
    PlanName,
    /// Every value, counted as an address.
    Address,
    Exactly(&'static str),
    /// Values with this prefix.
    Like {
        prefix: &'static str,
        shared: bool,
    },
    /// Addresses of a network.
    Within {
        net: Network,
        shared: bool,
    },
}

/// One limit.
#[derive(Clone, Debug)]
pub(crate) struct WrittenLimit {
    pub(crate) name: String,
    pub(crate) terms: Terms,
    pub(crate) mode: Option<Mode>,
    pub(crate) enforce_percent: Option<u8>,
    pub(crate) replaces: Option<String>,
    pub(crate) cost: u64,
}

impl WrittenRules {
    /// The limits of a rule, given the value of a request's last entry.
    pub(crate) fn limits<'w>(&'w self, rule: &'w WrittenRule, value: &str) -> &'w [WrittenLimit] {
        let plan = |name: &str| self.plans.iter().find(|plan| plan.name == name);
        let plan = match &rule.limits {
            Limits::Own(limits) => return limits,
            Limits::Unlimited { .. } => return &[],
            Limits::Plan(name) => plan(name),
            Limits::PlanNamedByValue { default } => plan(value).or_else(|| default.and_then(plan)),
        };
        plan.map_or(&[], |plan| &plan.limits)
    }

    /// Every limit with the path of its rule.
    pub(crate) fn all_limits(&self) -> impl Iterator<Item = (String, &WrittenLimit)> {
        self.rules.iter().flat_map(|rule| {
            let limits: Vec<&WrittenLimit> = match &rule.limits {
                Limits::PlanNamedByValue { .. } => {
                    self.plans.iter().flat_map(|plan| &plan.limits).collect()
                }
                _ => self.limits(rule, "").iter().collect(),
            };
            limits.into_iter().map(move |limit| (rule.path(), limit))
        })
    }
}

impl WrittenRule {
    /// The path in verdicts.
    pub(crate) fn path(&self) -> String {
        let labels: Vec<String> = self.levels.iter().map(Level::label).collect();
        labels.join(".")
    }
}

impl Level {
    fn label(&self) -> String {
        let key = self.key;
        match &self.values {
            Values::Any | Values::PlanName | Values::Address => key.to_owned(),
            Values::Exactly(value) => format!("{key}_{value}"),
            Values::Like { prefix, .. } => format!("{key}_{prefix}*"),
            Values::Within { net, .. } => format!("{key}_{net}"),
        }
    }
}
