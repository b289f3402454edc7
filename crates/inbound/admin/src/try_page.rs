//! `/api/try`: what would happen to a request now. It charges nothing.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_engine::{
    Clock, CounterStore, Descriptor, Entry, Mode, Request, Retry, Role, Ruling, Timestamp, Verb,
    Verdict,
};
use tidegate_overload::{Category, Limiter};

use super::answer::Problem;
use super::service::Inner;
use super::state_page::shed_words;
use super::switches::parse;

/// The most descriptors, and the most entries of one.
const DESCRIPTORS_MAX: usize = 64;
const ENTRIES_MAX: usize = 64;
const HEADERS_MAX: usize = 100;

/// The head of an HTTP request that is tried.
#[derive(Clone, Debug)]
pub struct TriedHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The header fields.
    pub headers: HeaderMap,
    /// The address that it would come from.
    pub client: Option<IpAddr>,
}

/// A descriptor of a trial: keys and values, and its cost if it has one.
pub type TrialDescriptor = (Vec<(String, String)>, Option<u64>);

/// What the gateway makes of a head.
#[derive(Clone, Debug, Default)]
pub struct TriedRoute {
    /// The route, if one serves it.
    pub route: Option<String>,
    /// The group of upstreams that it would go to.
    pub upstream: Option<String>,
    /// The category, which decides what is shed first.
    pub category: Option<Category>,
    /// The domain of its rules.
    pub domain: String,
    /// Its descriptors: keys and values, and the cost.
    pub descriptors: Vec<TrialDescriptor>,
    /// Why the gateway would reject it before its limits: status, code and text.
    pub fault: Option<(u16, &'static str, String)>,
    /// Whether the route is exempt from limits and protection.
    pub exempt: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct TryBody {
    request: Option<HeadBody>,
    domain: Option<String>,
    descriptors: Option<Vec<Vec<EntryBody>>>,
    cost: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct HeadBody {
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    client: Option<IpAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct EntryBody {
    key: String,
    value: String,
}

/// One limit that the request meets.
#[derive(Debug, Serialize)]
struct TriedLimit {
    rule: String,
    limit: String,
    terms: String,
    /// `enforced`, `shadow` or `quota`.
    role: &'static str,
    quota: u64,
    remaining: u64,
    passes: bool,
    retry_after_ms: Option<u64>,
    never: bool,
    reset_ms: u64,
}

/// The page.
pub(super) async fn read<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    body: &[u8],
) -> Result<Value, Problem> {
    let wrong = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, detail);
    let TryBody { request, domain, descriptors, cost } = parse(body)?;
    let route = match (request, domain, descriptors) {
        (Some(request), None, None) => {
            let none = || {
                let detail = "there is no gateway here; give `domain` and `descriptors`";
                Problem::new(StatusCode::NOT_FOUND, detail)
            };
            let describe = door.parts.try_request.as_ref().ok_or_else(none)?;
            describe(&head(request)?)
        }
        (None, Some(domain), Some(descriptors)) => {
            if descriptors.len() > DESCRIPTORS_MAX
                || descriptors.iter().any(|one| one.len() > ENTRIES_MAX)
            {
                return Err(wrong("too many descriptors or entries"));
            }
            let pairs = |one: Vec<EntryBody>| {
                one.into_iter().map(|EntryBody { key, value }| (key, value)).collect()
            };
            let descriptors = descriptors.into_iter().map(|one| (pairs(one), None)).collect();
            TriedRoute { domain, descriptors, ..TriedRoute::default() }
        }
        _ => return Err(wrong("give either `request`, or `domain` and `descriptors`")),
    };
    Ok(try_route(door, &route, cost.unwrap_or(1)).await)
}

fn head(body: HeadBody) -> Result<TriedHead, Problem> {
    let wrong = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
    let HeadBody { method, path, headers, client } = body;
    if headers.len() > HEADERS_MAX {
        return Err(wrong(format!("up to {HEADERS_MAX} header fields can be given")));
    }
    let method = method.as_deref().unwrap_or("GET").to_uppercase();
    let method = method.parse().map_err(|_| wrong(format!("`{method}` is no method")))?;
    let uri = path.parse().map_err(|_| wrong(format!("`{path}` is no path of a request")))?;
    let mut fields = HeaderMap::new();
    for (name, value) in headers {
        let field = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        let (name, value) = field.ok_or_else(|| wrong(format!("`{name}` is no header field")))?;
        fields.append(name, value);
    }
    Ok(TriedHead { method, uri, headers: fields, client })
}

async fn try_route<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    route: &TriedRoute,
    cost: u64,
) -> Value {
    let entries: Vec<Vec<Entry<'_>>> = route
        .descriptors
        .iter()
        .map(|(pairs, _)| pairs.iter().map(|(key, value)| Entry { key, value }).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .zip(&route.descriptors)
        .map(|(entries, (_, cost))| Descriptor { cost: *cost, ..Descriptor::new(entries) })
        .collect();
    let request = Request::new(&route.domain, &descriptors).with_cost(cost);
    let verdict = door.engine.apply(Verb::Peek, &request).await;
    let limits_pass = verdict.is_admitted();
    let shed = shedding(door, route);
    let refused_by = match (&route.fault, shed, limits_pass) {
        (Some((_, code, _)), ..) => Some((*code).to_owned()),
        (None, "all", _) => Some("worker".to_owned()),
        (None, _, false) => verdict.refusal().map(|refusal| {
            let name = refusal.limit.map(|name| format!(" ({name})")).unwrap_or_default();
            format!("{}{name}", refusal.path)
        }),
        (None, _, true) => None,
    };
    json!({
        "passes": refused_by.is_none() && limits_pass,
        "refused_by": refused_by,
        "off": verdict.is_switched_off(),
        "domain": route.domain,
        "domain_known": verdict.domain_is_known(),
        "route": route.route,
        "upstream": route.upstream,
        "exempt": route.exempt,
        "category": route.category.map(Category::as_str),
        "shed_now": shed,
        "fault": route.fault.as_ref().map(|(status, code, text)| {
            json!({ "status": status, "code": code, "detail": text })
        }),
        "undecided": verdict.undecided().map(ToString::to_string),
        "descriptors": descriptors_json(door, &entries, &route.domain, &verdict),
    })
}

/// Whether the worker shedder refuses the request's category now.
fn shedding<S: CounterStore, C: Clock>(door: &Inner<S, C>, route: &TriedRoute) -> &'static str {
    let (Some(protection), Some(category)) = (door.board.protection(), route.category) else {
        return "no";
    };
    let enforces = matches!(protection.mode(Limiter::Worker), Mode::Enforce(_));
    if !enforces || route.exempt || door.board.is_off() {
        return "no";
    }
    shed_words(protection.gauges().worker.shed_level, category)
}

fn descriptors_json<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    descriptors: &[Vec<Entry<'_>>],
    domain: &str,
    verdict: &Verdict,
) -> Vec<Value> {
    let known = verdict.snapshot().domain(domain);
    let describe = |(index, entries): (usize, &Vec<Entry<'_>>)| {
        let limits: Vec<TriedLimit> = verdict
            .rulings()
            .iter()
            .filter(|ruling| usize::try_from(ruling.descriptor) == Ok(index))
            .map(|ruling| tried_limit(door, verdict, ruling))
            .collect();
        let explanation = known.map(|domain| {
            domain.explain(entries, verdict.decided_at().unwrap_or(Timestamp::EPOCH))
        });
        json!({
            "entries": entries.iter().map(|entry| (entry.key, entry.value)).collect::<Vec<_>>(),
            "ending": explanation.as_ref().map(|found| found.ending.to_string()),
            "levels": explanation.map(|found| found.levels),
            "limits": limits,
        })
    };
    descriptors.iter().enumerate().map(describe).collect()
}

fn tried_limit<S, C>(door: &Inner<S, C>, verdict: &Verdict, ruling: &Ruling) -> TriedLimit {
    let decision = &ruling.decision;
    let terms = door.parts.limit_terms.zip(verdict.limit(ruling));
    TriedLimit {
        rule: super::observations::rule_label(verdict, ruling).to_owned(),
        limit: super::observations::limit_label(verdict, ruling),
        terms: terms.map(|(terms, limit)| terms(limit)).unwrap_or_default(),
        role: match ruling.role {
            Role::Required => "enforced",
            Role::Observed => "shadow",
            Role::Alternative => "quota",
        },
        quota: decision.limit,
        remaining: decision.remaining,
        passes: decision.is_admitted(),
        retry_after_ms: match decision.retry {
            Retry::After(wait) => Some(wait.get().div_ceil(1_000_000)),
            Retry::Now | Retry::Never => None,
        },
        never: decision.retry == Retry::Never,
        reset_ms: decision.reset_after.get().div_ceil(1_000_000),
    }
}
