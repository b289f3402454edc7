//! Entries: all that people change, in one form.
//!
//! A rule document, a plan, a client, a row, a switch and an API key are entries: a kind, a collection, a name, a body,
//! and who set it, when, why and until when. One form means one history, one diff, one ETag and one audit for all of
//! them. [`EntryKind::check`] says what the body of each kind holds.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_access::parse_sha256;
use tidegate_rules::canonical_terms;
use tidegate_snapshot_file::SwitchTarget;
use tidegate_words::words;

use crate::content::split_collection;
use crate::error::InputProblem;

/// The most bytes of a name or a collection.
pub const NAME_BYTES_MAX: usize = 512;
/// The most bytes of a reason or a ticket.
pub const WHY_BYTES_MAX: usize = 1_024;
/// The most bytes of the body of an entry that is no document.
const BODY_BYTES_MAX: usize = 64 * 1024;

words! {
    /// What an entry is.
    #[derive(PartialOrd, Ord)]
    pub enum EntryKind {
        /// A rule file. `{"text": "domain: api …"}`.
        Document = "document",
        /// A plan of a domain: the collection is the domain. `{"limits": […]}`, as below `plans:` in a rule file.
        Plan = "plan",
        /// A client of a table: the collection is DOMAIN/TABLE. `{"plan": "gold", "labels": {"team": "a"}}`.
        Client = "client",
        /// A row of a table, before the client's plan: the collection is DOMAIN/TABLE. `{"terms": "rate=500"}`.
        Row = "row",
        /// A switch: the name is its scope. `{"target": "all", "mode": "shadow"}`.
        Switch = "switch",
        /// An API key of the gateway: the name is the hash of the key. `{"owner": "acme", "plan": "gold"}`.
        Key = "key",
    }
}

impl EntryKind {
    /// Whether a restored version brings these back. A switch is set for the present, and a revoked key stays revoked.
    pub const fn is_restored(self) -> bool {
        !matches!(self, EntryKind::Switch | EntryKind::Key)
    }

    /// Whether the rules have to be compiled again when one changes.
    pub(crate) const fn is_compiled(self) -> bool {
        matches!(self, EntryKind::Document | EntryKind::Plan)
    }

    /// Whether it lies in a collection.
    pub const fn has_collection(self) -> bool {
        matches!(self, EntryKind::Plan | EntryKind::Client | EntryKind::Row)
    }

    /// The most entries of this kind in all collections.
    pub(crate) const fn entries_max(self, rows_max: u64) -> u64 {
        match self {
            EntryKind::Document => 10_000,
            EntryKind::Plan | EntryKind::Switch => 1_024,
            EntryKind::Client | EntryKind::Row => rows_max,
            EntryKind::Key => 100_000,
        }
    }

    /// Checks a body, and returns it in its canonical form: keys in order, no spaces.
    ///
    /// # Errors
    /// When a field is missing, blank, unknown or of another type.
    pub fn check(self, place: &str, name: &str, body: &Value) -> Result<String, InputProblem> {
        let at = |field: &str| format!("{place}.body.{field}");
        let Value::Object(fields) = body else {
            return Err(InputProblem::new(format!("{place}.body"), "expected an object"));
        };
        let known: &[&str] = match self {
            EntryKind::Document => &["text"],
            EntryKind::Plan => &["limits"],
            EntryKind::Client => &["plan", "labels"],
            EntryKind::Row => &["terms"],
            EntryKind::Switch => &["target", "mode", "limiter", "domain", "path", "limit"],
            EntryKind::Key => &["owner", "plan"],
        };
        if let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) {
            let problem = InputProblem::new(at(unknown), "unknown field");
            return Err(problem.hint(format!("a {} has {}", self.as_str(), known.join(", "))));
        }
        let text = |field: &str| {
            required_text(fields, field).map_err(|what| InputProblem::new(at(field), what))
        };
        match self {
            EntryKind::Document => drop(text("text")?),
            EntryKind::Plan => {
                let limits = fields.get("limits").and_then(Value::as_array);
                if limits.is_none_or(Vec::is_empty) {
                    let problem = InputProblem::new(at("limits"), "expected a list of limits");
                    return Err(problem.hint("write the limits as in a rule file"));
                }
            }
            EntryKind::Client => {
                one_word(&text("plan")?).map_err(|what| InputProblem::new(at("plan"), what))?;
                check_labels(fields.get("labels"))
                    .map_err(|what| InputProblem::new(at("labels"), what))?;
            }
            EntryKind::Row => {
                // Equal terms have one text: terms are numbered by it.
                let terms = canonical_terms(&text("terms")?).map_err(|error| {
                    InputProblem::new(at("terms"), error.message).hint(error.hint)
                })?;
                return Ok(serde_json::json!({ "terms": terms }).to_string());
            }
            EntryKind::Switch => check_switch(place, name, body)?,
            EntryKind::Key => {
                one_word(&text("owner")?).map_err(|what| InputProblem::new(at("owner"), what))?;
                one_word(&text("plan")?).map_err(|what| InputProblem::new(at("plan"), what))?;
                if parse_sha256(name).is_none() {
                    let problem = InputProblem::new(format!("{place}.name"), "expected a SHA-256");
                    return Err(
                        problem.hint("the name of an API key is its hash, 64 hexadecimal digits")
                    );
                }
            }
        }
        let mut canonical = body.clone();
        canonical.sort_all_objects();
        let canonical = canonical.to_string();
        if self != EntryKind::Document && canonical.len() > BODY_BYTES_MAX {
            let what = format!("a body has up to {BODY_BYTES_MAX} bytes");
            return Err(InputProblem::new(format!("{place}.body"), what));
        }
        Ok(canonical)
    }
}

fn required_text(fields: &Map<String, Value>, field: &str) -> Result<String, &'static str> {
    match fields.get(field) {
        None => Err("this field is missing"),
        Some(Value::String(text)) if text.trim().is_empty() => Err("this field is blank"),
        Some(Value::String(text)) if text.contains('\0') => Err("this field has a zero byte"),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err("expected a text"),
    }
}

/// The file of API keys and the terms of rows are lines of words.
fn one_word(text: &str) -> Result<(), &'static str> {
    let is_word = text.chars().all(|letter| !letter.is_whitespace() && !letter.is_control());
    if is_word { Ok(()) } else { Err("expected one word") }
}

fn check_labels(labels: Option<&Value>) -> Result<(), &'static str> {
    match labels {
        None => Ok(()),
        Some(Value::Object(labels)) if labels.values().all(Value::is_string) => Ok(()),
        Some(_) => Err("expected an object of texts"),
    }
}

fn check_switch(place: &str, name: &str, body: &Value) -> Result<(), InputProblem> {
    let wrong = |field: &str, what: String| InputProblem::new(format!("{place}.{field}"), what);
    let mode = body["mode"].as_str().unwrap_or_default();
    let percent = mode.strip_prefix("enforce ").and_then(|rest| rest.strip_suffix('%'));
    let percent = percent.and_then(|digits| digits.parse::<f64>().ok());
    let is_share = percent.is_some_and(|percent| (0.0..=100.0).contains(&percent));
    if !["enforce", "shadow", "off"].contains(&mode) && !is_share {
        return Err(wrong("body.mode", "expected enforce, shadow, off or `enforce 5%`".to_owned()));
    }
    let target: SwitchTarget = serde_json::from_value(body.clone()).map_err(|error| {
        let problem = wrong("body.target", error.to_string());
        problem.hint("write all, limiter with its `limiter`, or limit with `domain` and `path`")
    })?;
    let scope = switch_scope(&target);
    if name != scope {
        return Err(wrong("name", format!("the name of this switch is `{scope}`")));
    }
    Ok(())
}

/// The name of a switch: there is one for each target.
pub fn switch_scope(target: &SwitchTarget) -> String {
    match target {
        SwitchTarget::All => "all".to_owned(),
        SwitchTarget::Limiter { limiter } => format!("limiter:{limiter}"),
        SwitchTarget::Limit { domain, path, limit: None } => format!("limit:{domain}:{path}"),
        SwitchTarget::Limit { domain, path, limit: Some(limit) } => {
            format!("limit:{domain}:{path}#{limit}")
        }
    }
}

/// Which entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// What it is.
    pub kind: EntryKind,
    /// A domain or a table; empty for kinds without collections.
    pub collection: String,
    /// Its name in the collection.
    pub name: String,
}

impl EntryKey {
    /// The entry of a kind without collections.
    pub fn new(kind: EntryKind, name: impl Into<String>) -> Self {
        EntryKey { kind, collection: String::new(), name: name.into() }
    }

    /// The same in a collection.
    #[must_use]
    pub fn within(mut self, collection: impl Into<String>) -> Self {
        self.collection = collection.into();
        self
    }

    /// Checks the texts.
    pub(crate) fn check(&self, place: &str) -> Result<(), InputProblem> {
        let text = |field: &str, text: &str| {
            let at = format!("{place}.{field}");
            if text.is_empty() {
                return Err(InputProblem::new(at, "this field is blank"));
            }
            if text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
                let what =
                    format!("expected up to {NAME_BYTES_MAX} bytes without control characters");
                return Err(InputProblem::new(at, what));
            }
            Ok(())
        };
        text("name", &self.name)?;
        match (self.kind.has_collection(), self.collection.is_empty()) {
            (true, _) => {
                text("collection", &self.collection)?;
                let is_table = matches!(self.kind, EntryKind::Client | EntryKind::Row);
                if is_table && split_collection(&self.collection).is_none() {
                    let at = format!("{place}.collection");
                    return Err(InputProblem::new(at, "expected a table as DOMAIN/TABLE"));
                }
                Ok(())
            }
            (false, true) => Ok(()),
            (false, false) => {
                let what = format!("a {} lies in no collection", self.kind.as_str());
                Err(InputProblem::new(format!("{place}.collection"), what))
            }
        }
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.as_str();
        match self.collection.as_str() {
            "" => write!(f, "{kind} `{}`", self.name),
            collection => write!(f, "{kind} `{collection}/{}`", self.name),
        }
    }
}

/// An entry as it is at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which one.
    pub key: EntryKey,
    /// Its body: canonical JSON.
    pub body: String,
    /// When it ends by itself, in seconds since the epoch.
    pub until: Option<u64>,
    /// The team that may change it; empty for everybody.
    pub owner: String,
    /// The version in which it became as it is: its ETag.
    pub version: u64,
    /// The name of the token that set it.
    pub set_by: String,
    /// When, in milliseconds since the epoch.
    pub set_at: u64,
    /// Why.
    pub why: String,
}

impl Entry {
    /// The body as a value.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// A text of the body.
    pub fn text(&self, field: &str) -> String {
        self.value()[field].as_str().unwrap_or_default().to_owned()
    }
}

/// An entry in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryView {
    /// What it is.
    pub kind: String,
    /// Its collection; absent for kinds without collections.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collection: String,
    /// Its name.
    pub name: String,
    /// Its body.
    pub body: Value,
    /// When it ends by itself: RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The team that may change it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The version in which it became as it is.
    #[serde(default)]
    pub version: u64,
    /// Who set it.
    #[serde(default)]
    pub set_by: String,
    /// When: RFC 3339 in UTC.
    #[serde(default)]
    pub set_at: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> Self {
        EntryView {
            kind: entry.key.kind.as_str().to_owned(),
            collection: entry.key.collection.clone(),
            name: entry.key.name.clone(),
            body: entry.value(),
            until: entry.until.map(|until| show_time(until.saturating_mul(1_000))),
            owner: entry.owner.clone(),
            version: entry.version,
            set_by: entry.set_by.clone(),
            set_at: show_time(entry.set_at),
            why: entry.why.clone(),
        }
    }
}

/// An instant in RFC 3339, in whole seconds unless it has milliseconds.
pub fn show_time(millis: u64) -> String {
    let instant = i64::try_from(millis)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    instant.map(|instant| instant.to_string()).unwrap_or_default()
}

/// Parses an instant of RFC 3339 or a day (its beginning in UTC); seconds since the epoch.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let day = text.parse::<jiff::civil::Date>().ok().filter(|_| text.len() == 10)?;
        jiff::tz::TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()
    })?;
    u64::try_from(instant.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: EntryKind, body: &Value) -> Result<String, String> {
        let hash = "a".repeat(64);
        kind.check("changes[0]", &hash, body)
            .map_err(|problem| format!("{}: {}", problem.place, problem.message))
    }

    #[test]
    fn a_body_with_a_blank_missing_or_unknown_field_is_refused_with_its_place() {
        for (kind, body, expected) in [
            (
                EntryKind::Document,
                json!({"text": " "}),
                "changes[0].body.text: this field is blank",
            ),
            (EntryKind::Row, json!({}), "changes[0].body.terms: this field is missing"),
            (EntryKind::Row, json!({"terms": 5}), "changes[0].body.terms: expected a text"),
            (EntryKind::Row, json!({"rate": 5}), "changes[0].body.rate: unknown field"),
            (EntryKind::Row, json!("rate=5"), "changes[0].body: expected an object"),
            (EntryKind::Client, json!({"plan": "a b"}), "changes[0].body.plan: expected one word"),
            (
                EntryKind::Plan,
                json!({"limits": []}),
                "changes[0].body.limits: expected a list of limits",
            ),
            (
                EntryKind::Switch,
                json!({"target": "all", "mode": "dark"}),
                "changes[0].body.mode: expected enforce, shadow, off or `enforce 5%`",
            ),
            (
                EntryKind::Switch,
                json!({"target": "all", "mode": "off"}),
                "changes[0].name: the name of this switch is `all`",
            ),
        ] {
            assert_eq!(check(kind, &body), Err(expected.to_owned()), "{body}");
        }
    }

    #[test]
    fn the_same_body_has_one_text() {
        let one = check(EntryKind::Key, &json!({"plan": "gold", "owner": "acme"})).unwrap();
        let other = check(EntryKind::Key, &json!({"owner": "acme", "plan": "gold"})).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn times_are_instants_or_days() {
        assert_eq!(parse_time("2027-01-15"), Some(1_799_971_200));
        assert_eq!(parse_time("2027-01-15T00:00:00Z"), Some(1_799_971_200));
        assert_eq!(show_time(1_799_971_200_000), "2027-01-15T00:00:00Z");
        for wrong in ["", "soon", "2027-13-01", "2027-01-15T", "1969-12-31"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_are_short_printable_texts() {
        let key = |name: &str| EntryKey::new(EntryKind::Row, name).within("api/clients").check("k");
        assert!(key("acme").is_ok());
        for wrong in ["", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(key(wrong).is_err(), "{wrong:?}");
        }
        assert!(EntryKey::new(EntryKind::Switch, "all").within("x").check("k").is_err());
        assert!(EntryKey::new(EntryKind::Row, "a").check("k").is_err());
    }
}
