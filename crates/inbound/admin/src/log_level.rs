//! The log level, shown and changed.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::answer::{self, Answer, Problem};
use super::change::{Change, ChangeKind};
use super::settings::{DebugParts, LogLevel};
use super::switches::parse;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: String,
}

pub(super) fn show(parts: &DebugParts) -> Result<Answer, Problem> {
    Ok(answer::json(&Level { level: handle(parts)?.get() }))
}

pub(super) fn set(parts: &DebugParts, body: &[u8]) -> Result<(Change, Answer), Problem> {
    let handle = handle(parts)?;
    let Level { level } = parse(body)?;
    handle.set(&level).map_err(|detail| Problem::new(StatusCode::BAD_REQUEST, detail))?;
    let answer = answer::json(&Level { level: handle.get() });
    let description = format!("the log level was set to {level:?}");
    Ok((Change::new(ChangeKind::LogLevel, description), answer))
}

fn handle(parts: &DebugParts) -> Result<&dyn LogLevel, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "the log level is fixed here");
    parts.log_level.as_deref().ok_or_else(none)
}
