//! `/v1/explain`: which rule a request matches, and why. For people, so speed does not matter.

use serde::Serialize;
use tidegate_engine::{Clock, Request};
use tidegate_engine::{
    Domain, Engine, Explanation, LimitId, MatchOutcome, Mode, Rule, RuleLimit, Snapshot, WhenOver,
};
use tidegate_rules::{Charge, LevelExplanation, closest};

use super::encode::Version;
use super::encode::response::to_json;
use super::problem::RequestProblem;

/// The explanation of a request's descriptors, as JSON.
pub(super) fn explain<S, C: Clock>(
    engine: &Engine<S, C>,
    request: &Request<'_>,
) -> Result<Vec<u8>, RequestProblem> {
    let snapshot = engine.snapshot();
    let domain =
        snapshot.domain(request.domain).ok_or_else(|| no_such_domain(&snapshot, request.domain))?;
    let now = engine.clock().now();
    let mut switches = Vec::new();
    engine.for_each_switch(|_, _, limit, switch| switches.push((limit.id, switch)));
    let descriptors = request.descriptors.iter().map(|descriptor| {
        if descriptor.limit.is_some() {
            return DescriptorExplanation::with_own_limit();
        }
        let explanation = domain.explain(descriptor.entries, now);
        let rule = domain.find(descriptor.entries, now).map(|found| found.rule);
        let rule = rule.map(|rule| RuleExplanation::of(&snapshot, rule, &switches));
        DescriptorExplanation::of(explanation, rule)
    });
    let explanation = RequestExplanation {
        domain: domain.name(),
        rules_version: Version(snapshot.version()),
        charge: domain.charge(),
        descriptors: descriptors.collect(),
    };
    Ok(to_json(&explanation))
}

fn no_such_domain(snapshot: &Snapshot, name: &str) -> RequestProblem {
    /// How many domains are named in a message.
    const NAMED_MAX: usize = 10;
    let names = || snapshot.domains().map(Domain::name);
    let hint = match closest(name, names()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if names().next().is_none() => "no rules are loaded".to_owned(),
        None => {
            let known: Vec<&str> = names().take(NAMED_MAX).collect();
            format!("there are: {}", known.join(", "))
        }
    };
    let shown: String = name.chars().take(64).collect();
    let detail = format!("no domain is called `{shown}`");
    RequestProblem::new(http::StatusCode::NOT_FOUND, detail).hint(hint)
}

#[derive(Serialize)]
struct RequestExplanation<'s> {
    domain: &'s str,
    rules_version: Version,
    charge: Charge,
    descriptors: Vec<DescriptorExplanation<'s>>,
}

#[derive(Serialize)]
struct DescriptorExplanation<'s> {
    /// The alternatives that were tried for each entry.
    levels: Vec<LevelExplanation>,
    /// The result as one word of a closed set.
    ending: &'static str,
    /// The same in a sentence.
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleExplanation<'s>>,
}

impl<'s> DescriptorExplanation<'s> {
    fn of(explanation: Explanation, rule: Option<RuleExplanation<'s>>) -> Self {
        let Explanation { levels, ending, .. } = explanation;
        let why = ending.to_string();
        let ending = match ending {
            MatchOutcome::Rule { .. } => "rule",
            MatchOutcome::NoLimitThere { .. } => "no_limit_there",
            MatchOutcome::NoSuchPlan { .. } => "no_such_plan",
            MatchOutcome::NoMatch => "no_match",
            MatchOutcome::NoEntries => "no_entries",
        };
        DescriptorExplanation { levels, ending, why, rule }
    }

    fn with_own_limit() -> Self {
        let why = "the descriptor carries its own limit, so no rule applies".to_owned();
        DescriptorExplanation { levels: Vec::new(), ending: "own_limit", why, rule: None }
    }
}

#[derive(Serialize)]
struct RuleExplanation<'s> {
    path: &'s str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'s str>,
    unlimited: bool,
    limits: Vec<LimitExplanation<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'s serde_json::Value>,
}

impl<'s> RuleExplanation<'s> {
    fn of(snapshot: &'s Snapshot, rule: &'s Rule, switches: &[(LimitId, Mode)]) -> Self {
        let limits = snapshot.limits_of(rule).iter();
        RuleExplanation {
            path: rule.path(),
            plan: rule.plan(),
            unlimited: rule.unlimited(),
            limits: limits.map(|limit| LimitExplanation::of(snapshot, limit, switches)).collect(),
            metadata: rule.metadata(),
        }
    }
}

#[derive(Serialize)]
struct LimitExplanation<'s> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'s str>,
    algorithm: &'static str,
    /// How much it allows in each period, or in flight.
    amount: u64,
    /// The period, or the time to live of slots in flight.
    period_ms: u64,
    /// The cost of one hit.
    cost: u64,
    mode: &'static str,
    enforce_percent: u8,
    /// Whether the mode comes from a run-time switch and not from the rule file.
    switched: bool,
    when_over: WhenOver,
    /// The names of the limits that it replaces.
    replaces: Vec<&'s str>,
}

impl<'s> LimitExplanation<'s> {
    fn of(snapshot: &'s Snapshot, limit: &'s RuleLimit, switches: &[(LimitId, Mode)]) -> Self {
        let switched = switches.iter().find(|(id, _)| *id == limit.id).map(|(_, mode)| *mode);
        let mode = switched.unwrap_or(limit.mode);
        let algorithm = limit.limit.algorithm();
        LimitExplanation {
            name: limit.name.map(|name| snapshot.name(name)),
            algorithm: algorithm.name(),
            amount: algorithm.quota(),
            period_ms: super::encode::ms(algorithm.period()),
            cost: limit.cost,
            mode: mode.as_str(),
            enforce_percent: mode.enforce_percent(),
            switched: switched.is_some(),
            when_over: limit.when_over,
            replaces: limit.replaces.iter().map(|name| snapshot.name(*name)).collect(),
        }
    }
}
