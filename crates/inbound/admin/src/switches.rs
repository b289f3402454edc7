//! What is switched at run time: shown, set, taken back.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_engine::{Clock, Engine, Mode, Nanos, Percent, Target, Timestamp, UnknownTarget};

use super::answer::{self, Answer, Problem};
use super::change::Change;
use super::limiters::{LimiterName, Switchboard, Switched};

/// Everything that is switched.
#[derive(Debug, Serialize)]
pub(super) struct SwitchesReading {
    /// Whether the kill switch is pulled.
    off: bool,
    /// What each limiter does.
    limiters: BTreeMap<&'static str, String>,
    /// In how many seconds switches end by themselves.
    ends_in: BTreeMap<&'static str, u64>,
    limits: Vec<SwitchedLimit>,
}

#[derive(Debug, Serialize)]
struct SwitchedLimit {
    domain: String,
    path: String,
    /// Its name, or its place in the rule.
    limit: String,
    mode: &'static str,
    enforce_percent: u8,
    /// What the rule file says.
    written: Written,
}

#[derive(Debug, Serialize)]
struct Written {
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
            written: Written {
                mode: limit.mode.as_str(),
                enforce_percent: limit.mode.enforce_percent(),
            },
        });
    });
    let mode = |limiter: LimiterName| Some((limiter.as_str(), board.mode(limiter)?.to_string()));
    let limiters = LimiterName::ALL.into_iter().filter_map(mode).collect();
    let now = engine.clock().now();
    let left =
        |(switched, end): (Switched, Timestamp)| (switched.as_str(), end.since(now).as_secs_ceil());
    let ends_in = board.ends().into_iter().map(left).collect();
    SwitchesReading { off: board.is_off(), limiters, ends_in, limits }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct KillSwitch {
    off: bool,
    for_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Kill {
    off: bool,
}

pub(super) fn kill(
    board: &Switchboard,
    now: Timestamp,
    body: &[u8],
) -> Result<(Change, Answer), Problem> {
    let KillSwitch { off, for_seconds } = parse(body)?;
    board.switch_off(off);
    if let Some(seconds) = for_seconds.filter(|_| off) {
        board.end_at(Switched::Everything, now.after(Nanos::from_secs(seconds)));
    }
    Ok((Change::Kill { off }, answer::json(&Kill { off })))
}

pub(super) fn revive(board: &Switchboard) -> (Change, Answer) {
    board.switch_off(false);
    (Change::Kill { off: false }, answer::json(&Kill { off: false }))
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

/// How many limits were switched.
#[derive(Debug, Serialize)]
struct SwitchedCount {
    limits: usize,
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
    let answer = answer::json(&SwitchedCount { limits });
    Ok((Change::Limit { domain, path, limit, mode }, answer))
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
    let answer = answer::json(&SwitchedCount { limits });
    Ok((Change::LimitBack { domain, path, limit }, answer))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LimiterSwitch {
    limiter: String,
    mode: String,
    for_seconds: Option<u64>,
}

/// What a limiter does now.
#[derive(Debug, Serialize)]
struct SwitchedLimiter {
    limiter: &'static str,
    mode: String,
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
        board.end_at(Switched::Limiter(limiter), now.after(Nanos::from_secs(seconds)));
    }
    let now = SwitchedLimiter { limiter: limiter.as_str(), mode: mode.to_string() };
    Ok((Change::Limiter { limiter, mode }, answer::json(&now)))
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
    let now = SwitchedLimiter { limiter: limiter.as_str(), mode: mode.to_string() };
    Ok((Change::LimiterBack { limiter, mode }, answer::json(&now)))
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

/// A body as the page wants it, or what is wrong with it and where.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}
