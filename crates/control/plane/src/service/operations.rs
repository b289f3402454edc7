//! Tokens, audit, nodes, publisher.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidegate_access::{AccessToken, sha256};
use tidegate_metrics::{Collector, Exposition, Format};

use super::answer::{self, Answer, Rejection, json as json_answer, text};
use super::routes::Query;
use super::{Caller, REPORTS_MAX, RulesService, read_json};
use crate::database::{AuditEvent, NodeReport, StoredToken, TokenView, hexadecimal};
use crate::error::PlaneError;
use crate::publisher::Guard;

/// Begins every token, so that scanners for leaked secrets can find it.
const TOKEN_PREFIX: &str = "tgc_";
/// The most bytes of a node's report.
const REPORT_BYTES_MAX: usize = 4 * 1024;
/// The most bytes of a node's id.
const NODE_BYTES_MAX: usize = 128;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    name: String,
    roles: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    expires: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowBody {
    guards: Vec<String>,
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpochBody {
    #[serde(default)]
    at_least: u64,
    why: String,
}

/// A new token: its text, which only its owner needs, and what is stored.
///
/// # Errors
/// When the roles, the name or the day are wrong, or the system has no random bytes.
pub fn new_token(
    name: &str,
    roles: &str,
    owner: &str,
    expires: &str,
    made_by: &str,
    made_at: u64,
) -> Result<(String, StoredToken), PlaneError> {
    let mut random = [0; 32];
    let unavailable = |_| PlaneError::Unavailable("the system has no random bytes".to_owned());
    rand::fill(&mut random).map_err(unavailable)?;
    let secret = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let hash = hexadecimal(&sha256(secret.as_bytes()));
    let blank = name.chars().any(char::is_whitespace) || owner.chars().any(char::is_control);
    if name.is_empty() || blank {
        return Err(PlaneError::invalid("name", "the name of a token is one word"));
    }
    // The one reader of tokens checks them.
    let words = format!("{hash} {name} {roles} {expires}");
    words
        .trim_end()
        .parse::<AccessToken>()
        .map_err(|error| PlaneError::invalid("token", error.to_string()))?;
    let (name, roles) = (name.to_owned(), roles.to_owned());
    let (owner, expires) = (owner.to_owned(), expires.to_owned());
    let made_by = made_by.to_owned();
    Ok((secret, StoredToken { name, hash, roles, owner, expires, made_by, made_at }))
}

pub(super) async fn ready(service: &RulesService) -> Result<Answer, Rejection> {
    service.0.database.version().await?;
    Ok(text(StatusCode::OK, "ready\n"))
}

pub(super) fn metrics(service: &RulesService) -> String {
    let mut page = Exposition::new(Format::Prometheus);
    service.0.broadcast.collect(&mut page);
    page.finish()
}

pub(super) async fn status(service: &RulesService) -> Result<Answer, Rejection> {
    let (cell, database) = (&service.0.cell, &service.0.database);
    let view = json!({
        "cell": cell.name,
        "class": cell.class.as_str(),
        "rows_max": cell.rows_max(),
        "beat_ms": cell.beat_millis,
        "approvals": cell.approvals,
        "version": database.version().await?,
        "database": database.location(),
        "publisher": service.0.broadcast.status(),
    });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) async fn tokens(service: &RulesService) -> Result<Answer, Rejection> {
    let tokens = service.0.database.tokens().await?;
    let tokens: Vec<TokenView> = tokens.iter().map(TokenView::from).collect();
    Ok(json_answer(StatusCode::OK, &json!({ "tokens": tokens })))
}

fn event(caller: &Caller<'_>, action: &'static str, object: String, why: &str) -> AuditEvent {
    let (actor, why) = (caller.author.name.clone(), why.to_owned());
    AuditEvent { actor, action, object, outcome: "applied".to_owned(), why }
}

pub(super) async fn add_token(
    service: &RulesService,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: TokenBody =
        read_json(&caller.body, "{\"name\": \"ci\", \"roles\": \"read+change\"}")?;
    let (maker, now) = (&caller.author.name, service.now_millis());
    let (secret, token) =
        new_token(&read.name, &read.roles, &read.owner, &read.expires, maker, now)?;
    let object = format!("token `{}` with the roles {}", token.name, token.roles);
    let view = TokenView::from(&token);
    service.0.database.add_token(token, event(caller, "add token", object, "")).await?;
    service.refresh_tokens().await?;
    Ok(json_answer(StatusCode::CREATED, &json!({ "token": view, "secret": secret })))
}

pub(super) async fn remove_token(
    service: &RulesService,
    name: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let event = event(caller, "revoke token", format!("token `{name}`"), "");
    service.0.database.remove_token(name.to_owned(), event, service.now_millis()).await?;
    service.refresh_tokens().await?;
    Ok(json_answer(StatusCode::OK, &json!({ "token": name, "revoked": true })))
}

pub(super) async fn audit(service: &RulesService, query: &Query<'_>) -> Result<Answer, Rejection> {
    let after = query.number("after")?.unwrap_or(0);
    let limit = query.number("limit")?.unwrap_or(100);
    let rows = service.0.database.audit(after, limit).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "audit": rows })))
}

pub(super) async fn nodes(service: &RulesService) -> Result<Answer, Rejection> {
    let now = service.now_millis();
    let nodes = service.0.database.nodes(now).await?;
    let view = json!({ "beat_ms": service.0.cell.beat_millis, "nodes": nodes });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) fn report(
    service: &RulesService,
    node: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    if node.is_empty() || node.len() > NODE_BYTES_MAX || node.chars().any(char::is_control) {
        let detail = format!("the id of a node has up to {NODE_BYTES_MAX} bytes");
        return Err(PlaneError::invalid("node", detail).into());
    }
    if caller.body.len() > REPORT_BYTES_MAX {
        let detail = format!("a report has up to {REPORT_BYTES_MAX} bytes");
        return Err(Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let report: NodeReport = read_json(&caller.body, "{\"version\": 12, \"sequence\": 900}")?;
    let mut reports = service.0.reports.lock();
    if reports.len() >= REPORTS_MAX && !reports.contains_key(node) {
        let detail = "too many reports wait; this one is dropped";
        return Err(Rejection::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    reports.insert(node.to_owned(), (service.now_millis(), report));
    Ok(text(StatusCode::ACCEPTED, "\n"))
}

pub(super) async fn allow_guards(
    service: &RulesService,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: AllowBody = read_json(&caller.body, "{\"guards\": [\"shrunk\"], \"why\": \"…\"}")?;
    if read.why.trim().is_empty() {
        return Err(PlaneError::invalid("why", "overruling a guard needs a reason").into());
    }
    for (index, word) in read.guards.iter().enumerate() {
        if Guard::from_word(word).is_none_or(|guard| !guard.can_be_overruled()) {
            let place = format!("guards[{index}]");
            let what = format!("expected one of {}", Guard::overrulable().join(", "));
            return Err(PlaneError::invalid(place, what).into());
        }
    }
    let version = service.0.database.version().await?;
    let allowed = json!({ "version": version, "guards": read.guards });
    let object = format!("guards {} for version {version}", read.guards.join(", "));
    let event = event(caller, "overrule guard", object, &read.why);
    let now = service.now_millis();
    service.0.database.set_allowed(allowed.to_string(), event, now).await?;
    Ok(json_answer(StatusCode::OK, &allowed))
}

pub(super) async fn start_epoch(
    service: &RulesService,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: EpochBody = read_json(&caller.body, "{\"why\": \"restored from a backup\"}")?;
    if read.why.trim().is_empty() {
        return Err(PlaneError::invalid("why", "a new epoch needs a reason").into());
    }
    let event = event(caller, "start epoch", "the publisher".to_owned(), &read.why);
    let now = service.now_millis();
    let epoch = service.0.database.start_epoch(read.at_least, event, now).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "epoch": epoch })))
}

pub(super) fn snapshot(service: &RulesService, ring: &str) -> Result<Answer, Rejection> {
    match service.0.broadcast.snapshot(ring) {
        Some(snapshot) => Ok(answer::bytes(snapshot)),
        None => {
            let detail = format!("no snapshot of the ring `{ring}` was published yet");
            Err(Rejection::new(StatusCode::NOT_FOUND, detail))
        }
    }
}
