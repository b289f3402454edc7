//! Run-time switches: shown, set, taken back.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_engine::{Clock, Engine, Mode, Nanos, Percent, RuleLimit, Timestamp, UnknownTarget};

use super::answer::{self, Answer, Problem};
use super::audit::{REASON_BYTES_MAX, Undo};
use super::change::{Change, ChangeKind};
use super::limiters::{LimitTarget, LimiterName, SwitchTarget, Switchboard};

/// All switches.
#[derive(Debug, Serialize)]
pub(super) struct SwitchesReading {
    /// Whether the kill switch is pulled.
    off: bool,
    /// The mode of each limiter.
    limiters: BTreeMap<&'static str, String>,
    /// In how many seconds switches end by themselves.
    ends_in: BTreeMap<&'static str, u64>,
    limits: Vec<SwitchedLimit>,
}

#[derive(Debug, Serialize)]
struct SwitchedLimit {
    domain: String,
    path: String,
    /// Its name, or its position in the rule.
    limit: String,
    mode: &'static str,
    enforce_percent: u8,
    /// The mode in the rule file.
    written: WrittenMode,
    /// In how many seconds it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_in: Option<u64>,
}

#[derive(Debug, Serialize)]
struct WrittenMode {
    mode: &'static str,
    enforce_percent: u8,
}

pub(super) fn read<S, C: Clock>(engine: &Engine<S, C>, board: &Switchboard) -> SwitchesReading {
    let mut limits = Vec::new();
    let (now, ends) = (engine.clock().now(), board.limit_ends());
    engine.for_each_switch(|snapshot, rule, limit, mode| {
        let name = snapshot.limit_name(rule, limit);
        let is_of = |target: &LimitTarget| {
            let is_rule = target.domain == rule.domain() && target.path == rule.path();
            is_rule && target.limit.as_deref().is_none_or(|limit| limit == name)
        };
        let end = ends.iter().filter(|(target, _)| is_of(target)).map(|(_, end)| *end).min();
        limits.push(SwitchedLimit {
            domain: rule.domain().to_owned(),
            path: rule.path().to_owned(),
            limit: name.into_owned(),
            mode: mode.as_str(),
            enforce_percent: mode.enforce_percent(),
            written: WrittenMode {
                mode: limit.mode.as_str(),
                enforce_percent: limit.mode.enforce_percent(),
            },
            ends_in: end.map(|end| end.since(now).as_secs_ceil()),
        });
    });
    let mode = |limiter: LimiterName| Some((limiter.as_str(), board.mode(limiter)?.to_string()));
    let limiters = LimiterName::ALL.into_iter().filter_map(mode).collect();
    let left = |(switched, end): (SwitchTarget, Timestamp)| {
        (switched.as_str(), end.since(now).as_secs_ceil())
    };
    let ends_in = board.ends().into_iter().map(left).collect();
    SwitchesReading { off: board.is_off(), limiters, ends_in, limits }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct KillSwitch {
    off: bool,
    for_seconds: Option<u64>,
    until_ms: Option<u64>,
    reason: Option<ChangeReason>,
}

/// Why something is changed: one line of text, not too long.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct ChangeReason(String);

impl TryFrom<String> for ChangeReason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > REASON_BYTES_MAX {
            return Err(format!("a reason has up to {REASON_BYTES_MAX} bytes"));
        }
        Ok(ChangeReason(text))
    }
}

/// The text of a reason, unless it is empty.
fn text_of(reason: Option<ChangeReason>) -> Option<String> {
    reason.map(|ChangeReason(text)| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// When a switch ends that holds for so many seconds, or until an instant. One that is over ends with the next tick.
fn end_of(
    now: Timestamp,
    for_seconds: Option<u64>,
    until_ms: Option<u64>,
) -> Result<Option<Timestamp>, Problem> {
    match (for_seconds, until_ms) {
        (Some(_), Some(_)) => {
            let detail = "a switch has `for_seconds` or `until_ms`, not both";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail))
        }
        (Some(seconds), None) => Ok(Some(now.after(Nanos::from_secs(seconds)))),
        (None, Some(millis)) => Ok(Some(Timestamp::from_nanos(millis.saturating_mul(1_000_000)))),
        (None, None) => Ok(None),
    }
}

/// Adds to the body of a request the end of the switch that it restores.
fn put_end(body: &mut Value, end: Option<Timestamp>) {
    if let Some(end) = end {
        body["until_ms"] = json!(end.as_millis());
    }
}

pub(super) fn kill(
    board: &Switchboard,
    now: Timestamp,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let KillSwitch { off, for_seconds, until_ms, reason } = parse(body)?;
    let until = end_of(now, for_seconds, until_ms)?.filter(|_| off);
    let (change, answer) = switch_all(board, off);
    if let Some(end) = until {
        board.end_at(SwitchTarget::Everything, end);
    }
    Ok((change.because(text_of(reason), until), answer))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Revival {
    reason: Option<ChangeReason>,
}

pub(super) fn revive(board: &Switchboard, body: &[u8]) -> Result<(Change, Answer), Problem> {
    let Revival { reason } = if body.is_empty() { Revival::default() } else { parse(body)? };
    let (change, answer) = switch_all(board, false);
    Ok((change.because(text_of(reason), None), answer))
}

fn switch_all(board: &Switchboard, off: bool) -> (Change, Answer) {
    let state = |off: bool| if off { "off" } else { "on" };
    let before = board.is_off();
    let mut body = json!({ "off": before });
    put_end(&mut body, board.end_of(SwitchTarget::Everything));
    board.switch_off(off);
    let description = format!("everything was switched {}", state(off));
    let undo = Undo { method: "PUT", path: "/switches/kill", body };
    let change = Change::new(ChangeKind::KillSwitch, description)
        .between(state(before).to_owned(), state(off).to_owned(), undo)
        .at(SwitchTarget::Everything.as_str());
    (change, answer::json(&json!({ "off": off })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimitSwitch {
    domain: String,
    path: String,
    limit: Option<String>,
    mode: String,
    enforce_percent: Option<u8>,
    for_seconds: Option<u64>,
    until_ms: Option<u64>,
    reason: Option<ChangeReason>,
}

pub(super) fn limit<S, C: Clock>(
    engine: &Engine<S, C>,
    board: &Switchboard,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimitSwitch { domain, path, limit, mode, enforce_percent, for_seconds, until_ms, reason } =
        parse(body)?;
    let until = end_of(engine.clock().now(), for_seconds, until_ms)?;
    let mode = Mode::from_word(&mode).ok_or_else(|| {
        let words = Mode::WORDS.join(", ");
        Problem::new(StatusCode::BAD_REQUEST, format!("`mode` is one of {words}"))
    })?;
    let enforce_percent = enforce_percent.unwrap_or(100);
    if enforce_percent > 100 {
        let detail = "`enforce_percent` goes from 0 to 100";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let mode = mode.with_percent(Percent::new(enforce_percent));
    let owned = LimitTarget { domain, path, limit };
    let target = owned.as_target();
    let (before, undo) = before(engine, board, &owned);
    let limits = engine.set_switch(target, mode).map_err(unknown)?;
    if !board.end_limit_at(owned.clone(), until) {
        let detail = "too many switches of limits end by themselves";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let state = format!("was switched to {}, {} % enforced", mode.as_str(), mode.enforce_percent());
    let change = Change::of_limits(ChangeKind::Limit, target, &state)
        .between(before, mode.to_string(), undo)
        .because(text_of(reason), until);
    Ok((change, answer::json(&json!({ "limits": limits }))))
}

/// The mode of the first limit of a target, and the request that restores it.
fn before<S, C: Clock>(
    engine: &Engine<S, C>,
    board: &Switchboard,
    target: &LimitTarget,
) -> (String, Undo) {
    let LimitTarget { domain, path, limit: name } = target;
    let snapshot = engine.snapshot();
    let is_of = |limit: &&RuleLimit| {
        snapshot.rule(limit.rule).is_some_and(|rule| {
            let is_rule = rule.domain() == domain && rule.path() == path;
            is_rule && name.as_deref().is_none_or(|name| snapshot.limit_name(rule, limit) == name)
        })
    };
    let found = snapshot.limits().iter().find(is_of);
    let mut switched = None;
    engine.for_each_switch(|_, _, limit, mode| {
        if found.is_some_and(|found| found.identity == limit.identity) {
            switched = Some(mode);
        }
    });
    let written = found.map_or(Mode::Off, |limit| limit.mode);
    let mode = switched.unwrap_or(written);
    let mut body = json!({ "domain": domain, "path": path });
    if let Some(name) = name {
        body["limit"] = json!(name);
    }
    let method = match switched {
        Some(mode) => {
            body["mode"] = json!(mode.as_str());
            body["enforce_percent"] = json!(mode.enforce_percent());
            put_end(&mut body, board.limit_end(target));
            "PUT"
        }
        None => "DELETE",
    };
    (mode.to_string(), Undo { method, path: "/switches/limit", body })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimitBack {
    domain: String,
    path: String,
    limit: Option<String>,
    reason: Option<ChangeReason>,
}

pub(super) fn limit_back<S, C: Clock>(
    engine: &Engine<S, C>,
    board: &Switchboard,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimitBack { domain, path, limit, reason } = parse(body)?;
    let owned = LimitTarget { domain, path, limit };
    let target = owned.as_target();
    let (mode, undo) = before(engine, board, &owned);
    let limits = engine.unset_switch(target).map_err(unknown)?;
    board.end_limit_at(owned.clone(), None);
    let state = "is as its rule file says again";
    let (after, _) = before(engine, board, &owned);
    let change = Change::of_limits(ChangeKind::LimitBack, target, state)
        .between(mode, after, undo)
        .because(text_of(reason), None);
    Ok((change, answer::json(&json!({ "limits": limits }))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimiterSwitch {
    limiter: String,
    mode: String,
    for_seconds: Option<u64>,
    until_ms: Option<u64>,
    reason: Option<ChangeReason>,
}

pub(super) fn limiter(
    board: &Switchboard,
    now: Timestamp,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimiterSwitch { limiter, mode, for_seconds, until_ms, reason } = parse(body)?;
    let until = end_of(now, for_seconds, until_ms)?;
    let limiter = named(&limiter)?;
    let mode = Mode::parse(&mode).ok_or_else(|| {
        let detail = format!("`mode` is {}", Mode::SYNTAX);
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let before = board.mode(limiter);
    let undo = limiter_undo(board, limiter, before);
    if !board.set(limiter, mode) {
        return Err(unprotected(limiter));
    }
    if let Some(end) = until {
        board.end_at(SwitchTarget::Limiter(limiter), end);
    }
    let limiter = limiter.as_str();
    let description = format!("limiter {limiter} was switched to {mode}");
    let answer = answer::json(&json!({ "limiter": limiter, "mode": mode.to_string() }));
    let before = before.map(|before| before.to_string()).unwrap_or_default();
    let change = Change::new(ChangeKind::Limiter, description)
        .between(before, mode.to_string(), undo)
        .at(limiter)
        .because(text_of(reason), until);
    Ok((change, answer))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimiterBack {
    limiter: String,
    reason: Option<ChangeReason>,
}

/// The request that gives a limiter the mode that it had.
fn limiter_undo(board: &Switchboard, limiter: LimiterName, before: Option<Mode>) -> Undo {
    let name = limiter.as_str();
    let path = "/switches/limiter";
    match before.filter(|before| *before != board.configured(limiter)) {
        Some(mode) => {
            let mut body = json!({ "limiter": name, "mode": mode.to_string() });
            put_end(&mut body, board.end_of(SwitchTarget::Limiter(limiter)));
            Undo { method: "PUT", path, body }
        }
        None => Undo { method: "DELETE", path, body: json!({ "limiter": name }) },
    }
}

pub(super) fn limiter_back(board: &Switchboard, body: &[u8]) -> Result<(Change, Answer), Problem> {
    let LimiterBack { limiter, reason } = parse(body)?;
    let limiter = named(&limiter)?;
    let before = board.mode(limiter);
    let undo = limiter_undo(board, limiter, before);
    let mode = board.restore(limiter).ok_or_else(|| unprotected(limiter))?;
    let before = before.map(|before| before.to_string()).unwrap_or_default();
    let limiter = limiter.as_str();
    let description = format!("limiter {limiter} is as configured again: {mode}");
    let answer = answer::json(&json!({ "limiter": limiter, "mode": mode.to_string() }));
    let change = Change::new(ChangeKind::LimiterBack, description)
        .between(before, mode.to_string(), undo)
        .at(limiter)
        .because(text_of(reason), None);
    Ok((change, answer))
}

fn named(word: &str) -> Result<LimiterName, Problem> {
    LimiterName::from_word(word).ok_or_else(|| {
        let words = LimiterName::ALL.map(LimiterName::as_str).join(", ");
        Problem::new(StatusCode::NOT_FOUND, format!("`limiter` is one of {words}"))
    })
}

fn unprotected(limiter: LimiterName) -> Problem {
    let limiter_name = limiter.as_str();
    let detail = match limiter {
        LimiterName::Connection => {
            format!("there is no limiter `{limiter_name}` here: no door has one")
        }
        _ => format!(
            "there is no limiter `{limiter_name}` here: nothing protects the node, since `overload.capacity` is not set"
        ),
    };
    Problem::new(StatusCode::NOT_FOUND, detail)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unknown(error: UnknownTarget) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, error.to_string())
}

/// Decodes the body of a change; the problem has the location of the error.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}
