//! Checks between documents: mistakes that no file shows by itself.
//!
//! A gateway whose descriptors meet no rule limits no request, and every file of it is well formed. [`cross_check`]
//! compares the configuration, the gateway's document and the rules, and returns warnings with their location in the
//! gateway's document. It reads no files and decides nothing; `config check` prints the findings and `serve` logs them.

use std::collections::{BTreeSet, HashMap};

use tidegate_document::did_you_mean;
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, GatewayDocument, GatewayError, GatewaySettings, PathMatch,
    RouteSettings, SettingProblem, ValueFrom, WhenMissing, api_key_plans,
};
use tidegate_rules::{Problem, Rule, Severity, ShownValue, Snapshot};

use crate::config::Config;

/// How much of a gateway is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Coverage {
    /// All routes.
    pub(crate) routes: usize,
    /// Routes whose requests meet at least one limit.
    pub(crate) limited: usize,
    /// Routes that are exempt on purpose.
    pub(crate) exempt: usize,
}

/// Compares the documents with each other.
pub(crate) fn cross_check(
    config: &Config,
    document: &GatewayDocument,
    rules: &Snapshot,
) -> (Vec<Problem>, Coverage) {
    let gateway = document.settings();
    // A key file that cannot be read is an error of its own, and reported as such.
    let plans = gateway.api_keys.as_ref().and_then(|keys| api_key_plans(keys).ok());
    let plans = plans.unwrap_or_default();
    let rule_index = RuleIndex::of(rules, &gateway.domain);
    let mut check = CrossCheck { document, gateway, rules: rule_index, problems: Vec::new() };
    let has_domain = check.domain(rules);
    let mut coverage = Coverage { routes: gateway.routes.len(), ..Coverage::default() };
    for (index, route) in gateway.routes.iter().enumerate() {
        check.reachable(index, route);
        if route.exempt {
            coverage.exempt += 1;
            continue;
        }
        let mut limited = Vec::new();
        for (number, descriptor) in route.descriptors.iter().enumerate() {
            let key_path = format!("routes[{index}].descriptors[{number}]");
            check.sources(&key_path, descriptor);
            if check.descriptor(&key_path, descriptor, has_domain) {
                limited.push((key_path, descriptor));
            }
            check.plans(descriptor, &plans);
        }
        check.missing_values(route, &limited);
        coverage.limited += usize::from(!limited.is_empty());
    }
    check.overload(config);
    (check.problems, coverage)
}

struct CrossCheck<'d> {
    document: &'d GatewayDocument,
    gateway: &'d GatewaySettings,
    rules: RuleIndex<'d>,
    problems: Vec<Problem>,
}

/// The rules of the gateway's domain by the keys of their levels: 100,000 rules cost one pass.
struct RuleIndex<'d> {
    by_keys: HashMap<Vec<&'d str>, Vec<&'d Rule>>,
}

impl<'d> RuleIndex<'d> {
    fn of(rules: &'d Snapshot, domain: &str) -> Self {
        let mut by_keys: HashMap<Vec<&str>, Vec<&Rule>> = HashMap::new();
        for rule in rules.rules().iter().filter(|rule| rule.domain() == domain) {
            let keys = rule.levels().iter().map(|level| level.key()).collect();
            by_keys.entry(keys).or_default().push(rule);
        }
        RuleIndex { by_keys }
    }

    /// The rules that a descriptor of these entries can meet.
    fn candidates<'s>(
        &'s self,
        entries: &'s [&EntrySettings],
    ) -> impl Iterator<Item = &'d Rule> + use<'s, 'd> {
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let rules = self.by_keys.get(keys.as_slice()).map(Vec::as_slice).unwrap_or_default();
        rules.iter().copied().filter(move |rule| {
            let mut levels = rule.levels().iter().zip(entries);
            levels.all(|(level, entry)| match (level.shown(), &entry.value) {
                (ShownValue::Written(written), ValueFrom::Fixed(value)) if is_literal(written) => {
                    **written == **value
                }
                _ => true,
            })
        })
    }
}

/// Whether a rule's value is compared as it is: neither a pattern nor a range of addresses.
fn is_literal(written: &str) -> bool {
    !written.contains(['*', '/', ','])
}

impl<'d> CrossCheck<'d> {
    /// Warns at a key of the gateway's document, such as `routes[2].descriptors[0]`.
    fn warn(&mut self, code: &'static str, key_path: &str, message: &str, hint: &str) {
        let problem = SettingProblem { setting: key_path.to_owned(), problem: message.to_owned() };
        let report = self.document.report(&GatewayError { problems: vec![problem] });
        let (severity, hint) = (Severity::Warning, Some(hint.to_owned()));
        let warning = |problem| Problem { severity, code, hint: hint.clone(), ..problem };
        self.problems.extend(report.into_problems().into_iter().map(warning));
    }

    fn domain(&mut self, rules: &Snapshot) -> bool {
        let domain = &self.gateway.domain;
        if rules.domain(domain).is_some() {
            return true;
        }
        let hint = did_you_mean(domain, rules.domains().map(|known| known.name()))
            .unwrap_or_else(|| format!("add a rule file with `domain: {domain}`"));
        let message =
            format!("no rule file has the domain `{domain}`: the gateway limits no request");
        self.warn("unknown_domain", "domain", &message, &hint);
        false
    }

    /// Whether an earlier route takes every request of this one.
    fn reachable(&mut self, index: usize, route: &RouteSettings) {
        let earlier = self.gateway.routes.iter().take(index).find(|earlier| covers(earlier, route));
        if let Some(earlier) = earlier {
            let (name, first) = (&route.name, &earlier.name);
            let message =
                format!("no request reaches the route `{name}`: `{first}` takes them all");
            let hint = format!("put `{name}` before `{first}`");
            self.warn("unreachable_route", &format!("routes[{index}]"), &message, &hint);
        }
    }

    /// Whether the values of a descriptor can exist at all.
    fn sources(&mut self, key_path: &str, descriptor: &DescriptorSettings) {
        for (number, entry) in descriptor.entries.iter().enumerate() {
            let key_path = format!("{key_path}.entries[{number}]");
            match &entry.value {
                ValueFrom::Claim(claim) if self.gateway.jwt.is_none() => {
                    let message = format!("no request has the claim `{claim}`: there is no `jwt`");
                    let hint = "add `jwt` with the key that verifies tokens";
                    self.warn("claim_without_jwt", &key_path, &message, hint);
                }
                ValueFrom::Plan | ValueFrom::ApiKeyName if self.gateway.api_keys.is_none() => {
                    let message = "no request has an API key: there are no `api_keys`";
                    let hint = "add `api_keys` with the keys, or a file of them";
                    self.warn("plan_without_api_keys", &key_path, message, hint);
                }
                _ => {}
            }
        }
    }

    /// Whether a descriptor meets a limit.
    fn descriptor(
        &mut self,
        key_path: &str,
        descriptor: &DescriptorSettings,
        has_domain: bool,
    ) -> bool {
        let all: Vec<&EntrySettings> = descriptor.entries.iter().collect();
        let kept: Vec<&EntrySettings> = all
            .iter()
            .copied()
            .filter(|entry| entry.when_missing != Some(WhenMissing::SkipEntry))
            .collect();
        let mut met = self.rules.candidates(&all).chain(self.rules.candidates(&kept)).peekable();
        if met.peek().is_some() {
            return met.any(|rule| !rule.unlimited());
        }
        drop(met);
        if has_domain {
            let keys: BTreeSet<&str> = self.rules.by_keys.keys().flatten().copied().collect();
            let unknown = all.iter().find(|entry| !keys.contains(entry.key.as_str()));
            let hint = match unknown {
                Some(entry) => did_you_mean(&entry.key, keys).unwrap_or_else(|| {
                    format!("no rule of `{}` has the key `{}`", self.gateway.domain, entry.key)
                }),
                None => "rules nest one level for each entry, in the same order".to_owned(),
            };
            let names: Vec<&str> = all.iter().map(|entry| entry.key.as_str()).collect();
            let message = format!(
                "no rule matches the descriptor `{}`: it limits no request",
                names.join(", ")
            );
            self.warn("unmatched_descriptor", key_path, &message, &hint);
        }
        false
    }

    /// Whether requests of a route that lack a value are limited by nothing, and no entry says that they should be.
    fn missing_values(&mut self, route: &RouteSettings, limited: &[(String, &DescriptorSettings)]) {
        let skips = |entry: &EntrySettings| {
            let skips = matches!(entry.when_missing, None | Some(WhenMissing::SkipDescriptor));
            skips && self.can_be_missing(route, &entry.value)
        };
        if limited.iter().any(|(_, descriptor)| !descriptor.entries.iter().any(skips)) {
            return;
        }
        let mut found = Vec::new();
        for (key_path, descriptor) in limited {
            let mut entries = descriptor.entries.iter().enumerate();
            let silent = entries.find(|(_, entry)| entry.when_missing.is_none() && skips(entry));
            found.extend(
                silent.map(|(index, entry)| {
                    (format!("{key_path}.entries[{index}]"), entry.key.clone())
                }),
            );
        }
        for (key_path, key) in found {
            let message =
                format!("requests to `{}` without a value for `{key}` are not limited", route.name);
            let hint = "add `default: anonymous` to limit them together, `when_missing: reject` to reject them, or \
                        `when_missing: skip` to let them pass";
            self.warn("unlimited_when_missing", &key_path, &message, hint);
        }
    }

    /// Whether requests of a route can lack a value. One that no request has is reported already.
    fn can_be_missing(&self, route: &RouteSettings, value: &ValueFrom) -> bool {
        match value {
            ValueFrom::Header(_) | ValueFrom::Cookie(_) | ValueFrom::Query(_) => true,
            ValueFrom::Claim(_) => self.gateway.jwt.is_some(),
            ValueFrom::Plan | ValueFrom::ApiKeyName => self.gateway.api_keys.is_some(),
            ValueFrom::PathTemplate | ValueFrom::PathParameter(_) => {
                matches!(route.path, PathMatch::Prefix(_))
            }
            ValueFrom::Fixed(_)
            | ValueFrom::Address { .. }
            | ValueFrom::Path
            | ValueFrom::Method
            | ValueFrom::Host
            | ValueFrom::Route => false,
        }
    }

    /// Whether each plan of the API keys has a rule, where a descriptor names the plan.
    fn plans(&mut self, descriptor: &DescriptorSettings, plans: &BTreeSet<String>) {
        let entries: Vec<&EntrySettings> = descriptor.entries.iter().collect();
        let Some(level) = entries.iter().position(|entry| entry.value == ValueFrom::Plan) else {
            return;
        };
        let candidates: Vec<&Rule> = self.rules.candidates(&entries).collect();
        if candidates.is_empty() {
            return;
        }
        let known: BTreeSet<&str> =
            candidates.iter().filter_map(|rule| plan_of(rule, level)).collect();
        // A rule for any value of this key, without plans, limits every plan.
        if known.len() < candidates.len()
            && candidates.iter().any(|rule| plan_of(rule, level).is_none())
        {
            return;
        }
        for plan in plans.iter().filter(|plan| !known.contains(plan.as_str())) {
            let quoted = format!("`{plan}`");
            let is_known = |problem: &Problem| {
                problem.code == "unknown_plan" && problem.message.contains(&quoted)
            };
            if self.problems.iter().any(is_known) {
                continue;
            }
            let hint = did_you_mean(plan, known.iter().copied()).unwrap_or_else(|| {
                let plans: Vec<&str> = known.iter().copied().collect();
                format!("rules have the plans {}", plans.join(", "))
            });
            let message = format!(
                "an API key has the plan `{plan}`, which no rule has: its requests get the default plan or no limit"
            );
            self.warn("unknown_plan", "api_keys", &message, &hint);
        }
    }

    /// Whether settings for overload have an effect.
    fn overload(&mut self, config: &Config) {
        if config.overload.capacity.is_none() && !self.gateway.categories.rules.is_empty() {
            let message = "categories have no effect: `overload.capacity` is not set";
            let hint = "set `overload.capacity` to the requests that the node can work on at once";
            self.warn("categories_without_capacity", "categories", message, hint);
        }
    }
}

/// The plan or literal value that a rule wants at this level; none if it takes any value.
fn plan_of(rule: &Rule, level: usize) -> Option<&str> {
    let written = rule.levels().get(level).and_then(|level| match level.shown() {
        ShownValue::Written(written) if is_literal(written) => Some(&**written),
        _ => None,
    });
    written.or_else(|| rule.plan())
}

/// Whether a route takes every request that a later one could.
fn covers(earlier: &RouteSettings, later: &RouteSettings) -> bool {
    let hosts = earlier.hosts.is_empty()
        || (!later.hosts.is_empty() && later.hosts.iter().all(|host| earlier.hosts.contains(host)));
    let methods = earlier.methods.is_empty()
        || (!later.methods.is_empty()
            && later.methods.iter().all(|method| earlier.methods.contains(method)));
    hosts && methods && covers_path(&earlier.path, &later.path)
}

fn covers_path(earlier: &PathMatch, later: &PathMatch) -> bool {
    match (earlier, later) {
        (PathMatch::Prefix(prefix), PathMatch::Prefix(path) | PathMatch::Template(path)) => {
            let rest = path.strip_prefix(prefix.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        (PathMatch::Template(earlier), PathMatch::Template(later)) => earlier == later,
        (PathMatch::Template(_), PathMatch::Prefix(_)) => false,
    }
}
