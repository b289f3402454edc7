//! Errors of serde as problems: in plain words, with location and hint.

use serde::Deserialize;
use serde_json::error::Category;
use serde_path_to_error::Segment;
use tidegate_rules::closest;

use super::object::{JsonObject, Object};
use crate::problem::{Location, RequestProblem};

/// The longest message: it may repeat a value of the body.
const MESSAGE_CHARS_MAX: usize = 256;
/// The longest path: it may hold an unknown name.
const PATH_CHARS_MAX: usize = 256;
/// The longest unknown name that is repeated.
const NAME_CHARS_MAX: usize = 64;

/// The problem of a body that cannot be decoded.
#[cold]
pub(super) fn problem<'a, T: Deserialize<'a> + JsonObject>(
    body: &'a [u8],
    error: &serde_json::Error,
) -> RequestProblem {
    if body.iter().all(u8::is_ascii_whitespace) {
        let problem = RequestProblem::bad_request("the body is empty");
        return problem.hint(format!("send {}", T::DESCRIPTION));
    }
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let suffix = format!(" at line {line} column {column}");
    let message = message.strip_suffix(&suffix).unwrap_or(&message);
    let detail = match error.classify() {
        Category::Data => in_plain_words(message),
        Category::Eof => format!("the JSON ends too early: {message}"),
        Category::Syntax | Category::Io => format!("the body is no JSON: {message}"),
    };
    let detail: String = detail.chars().take(MESSAGE_CHARS_MAX).collect();
    let path = path_to_error::<T>(body);
    RequestProblem::bad_request(detail).at(Location { path, line, column: column.max(1) })
}

/// A message of serde with a hint instead of a list of fields, and without names of Rust's types.
fn in_plain_words(message: &str) -> String {
    if let Some((name, fields)) = unknown_field(message) {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        return match closest(name, fields.iter().copied()) {
            Some(meant) => format!("there is no field `{shown}`; did you mean `{meant}`?"),
            None => format!("there is no field `{shown}`; there are: {}", fields.join(", ")),
        };
    }
    match message.strip_suffix("expected u64") {
        Some(start) => format!("{start}expected a whole number from 0 to {}", u64::MAX),
        None => message.to_owned(),
    }
}

/// The unknown field that a message is about, and the fields that there are.
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let (name, expected) = message.strip_prefix("unknown field `")?.rsplit_once("`, expected ")?;
    // Names are between backticks, so every second part is one.
    Some((name, expected.split('`').skip(1).step_by(2).collect()))
}

fn path_to_error<'a, T: Deserialize<'a> + JsonObject>(body: &'a [u8]) -> Option<String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let error = serde_path_to_error::deserialize::<_, Object<T>>(&mut json).err()?;
    // A name that cannot be read is left out: line and column locate it.
    let known = error.path().iter().take_while(|segment| !matches!(segment, Segment::Unknown));
    let mut path = String::new();
    for segment in known {
        if !path.is_empty() && matches!(segment, Segment::Map { .. }) {
            path.push('.');
        }
        path.push_str(&segment.to_string());
    }
    (!path.is_empty()).then(|| path.chars().take(PATH_CHARS_MAX).collect())
}

/// The fields of an object, as its error for an unknown field lists them.
#[cfg(test)]
pub(super) fn fields_of<T: Deserialize<'static> + JsonObject + std::fmt::Debug>() -> Vec<String> {
    let error = serde_json::from_str::<Object<T>>(r#"{"?": 0}"#).unwrap_err().to_string();
    let (_, fields) = unknown_field(&error).unwrap();
    fields.into_iter().map(ToOwned::to_owned).collect()
}
