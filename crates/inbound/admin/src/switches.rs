//! Run-time switches: shown, set, taken back.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_engine::{Clock, Engine, Mode, Nanos, Percent, Target, Timestamp, UnknownTarget};

use super::answer::{self, Answer, Problem};
use super::change::{Change, ChangeKind};
use super::limiters::{LimiterName, SwitchTarget, Switchboard};

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
}

#[derive(Debug, Serialize)]
struct WrittenMode {
    mode: &'static str,
    enforce_percent: u8,
}

pub(super) fn read<S, C: Clock>(engine: &Engine<S, C>, board: &Switchboard) -> SwitchesReading {
    let mut limits = Vec::new();
    engine.for_each_switch(|snapshot, rule, limit, mode| {
        limits.push(SwitchedLimit {
            domain: rule.domain().to_owned(),
            path: rule.path().to_owned(),
            limit: snapshot.limit_name(rule, limit).into_owned(),
            mode: mode.as_str(),
            enforce_percent: mode.enforce_percent(),
            written: WrittenMode {
                mode: limit.mode.as_str(),
                enforce_percent: limit.mode.enforce_percent(),
            },
        });
    });
    let mode = |limiter: LimiterName| Some((limiter.as_str(), board.mode(limiter)?.to_string()));
    let limiters = LimiterName::ALL.into_iter().filter_map(mode).collect();
    let now = engine.clock().now();
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
}

pub(super) fn kill(
    board: &Switchboard,
    now: Timestamp,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let KillSwitch { off, for_seconds } = parse(body)?;
    board.switch_off(off);
    if let Some(seconds) = for_seconds.filter(|_| off) {
        board.end_at(SwitchTarget::Everything, now.after(Nanos::from_secs(seconds)));
    }
    Ok(killed(off))
}

pub(super) fn revive(board: &Switchboard) -> (Change, Answer) {
    board.switch_off(false);
    killed(false)
}

fn killed(off: bool) -> (Change, Answer) {
    let state = if off { "off" } else { "on" };
    let change = Change::new(ChangeKind::KillSwitch, format!("everything was switched {state}"));
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
}

pub(super) fn limit<S, C: Clock>(
    engine: &Engine<S, C>,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimitSwitch { domain, path, limit, mode, enforce_percent } = parse(body)?;
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
    let target = Target { domain: &domain, path: &path, limit: limit.as_deref() };
    let limits = engine.set_switch(target, mode).map_err(unknown)?;
    let state = format!("was switched to {}, {} % enforced", mode.as_str(), mode.enforce_percent());
    let change = Change::of_limits(ChangeKind::Limit, target, &state);
    Ok((change, answer::json(&json!({ "limits": limits }))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimitBack {
    domain: String,
    path: String,
    limit: Option<String>,
}

pub(super) fn limit_back<S, C: Clock>(
    engine: &Engine<S, C>,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimitBack { domain, path, limit } = parse(body)?;
    let target = Target { domain: &domain, path: &path, limit: limit.as_deref() };
    let limits = engine.unset_switch(target).map_err(unknown)?;
    let state = "is as its rule file says again";
    let change = Change::of_limits(ChangeKind::LimitBack, target, state);
    Ok((change, answer::json(&json!({ "limits": limits }))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimiterSwitch {
    limiter: String,
    mode: String,
    for_seconds: Option<u64>,
}

pub(super) fn limiter(
    board: &Switchboard,
    now: Timestamp,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let LimiterSwitch { limiter, mode, for_seconds } = parse(body)?;
    let limiter = named(&limiter)?;
    let mode = Mode::parse(&mode).ok_or_else(|| {
        let detail = format!("`mode` is {}", Mode::SYNTAX);
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    if !board.set(limiter, mode) {
        return Err(unprotected(limiter));
    }
    if let Some(seconds) = for_seconds {
        board.end_at(SwitchTarget::Limiter(limiter), now.after(Nanos::from_secs(seconds)));
    }
    let limiter = limiter.as_str();
    let description = format!("limiter {limiter} was switched to {mode}");
    let answer = answer::json(&json!({ "limiter": limiter, "mode": mode.to_string() }));
    Ok((Change::new(ChangeKind::Limiter, description), answer))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimiterBack {
    limiter: String,
}

pub(super) fn limiter_back(board: &Switchboard, body: &[u8]) -> Result<(Change, Answer), Problem> {
    let LimiterBack { limiter } = parse(body)?;
    let limiter = named(&limiter)?;
    let mode = board.restore(limiter).ok_or_else(|| unprotected(limiter))?;
    let limiter = limiter.as_str();
    let description = format!("limiter {limiter} is as configured again: {mode}");
    let answer = answer::json(&json!({ "limiter": limiter, "mode": mode.to_string() }));
    Ok((Change::new(ChangeKind::LimiterBack, description), answer))
}

fn named(word: &str) -> Result<LimiterName, Problem> {
    LimiterName::from_word(word).ok_or_else(|| {
        let words = LimiterName::ALL.map(LimiterName::as_str).join(", ");
        Problem::new(StatusCode::NOT_FOUND, format!("`limiter` is one of {words}"))
    })
}

fn unprotected(limiter: LimiterName) -> Problem {
    let detail = format!(
        "there is no limiter `{}` here: nothing protects the node, since `overload.capacity` is not set",
        limiter.as_str()
    );
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
