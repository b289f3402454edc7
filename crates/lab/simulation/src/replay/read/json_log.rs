//! Logs with one JSON object a line: Envoy's, and our access log.

use std::borrow::Cow;

use serde_json::{Map, Value};
use tidegate_algorithms::{Nanos, Timestamp};

use super::super::logged_request::{LoggedRequest, TimeResolution};
use super::log_format::address;
use super::log_time::{epoch_time, iso_time};

/// The names under which Envoy's operators log the same thing. The first that is there counts.
const TIMES: &[&str] = &["start_time", "time", "timestamp", "@timestamp"];
const CLIENTS: &[&str] = &[
    "x_forwarded_for",
    "x-forwarded-for",
    "downstream_remote_address_without_port",
    "downstream_remote_address",
    "downstream_direct_remote_address_without_port",
    "client_ip",
    "remote_addr",
];
const METHODS: &[&str] = &["method", ":method", "request_method"];
const TARGETS: &[&str] = &["path", "x_envoy_original_path", "x-envoy-original-path", ":path"];
const HOSTS: &[&str] = &["authority", ":authority", "host"];
const STATUSES: &[&str] = &["response_code", "status", "code"];
const DURATIONS: &[&str] = &["duration", "duration_ms", "request_duration"];
const FLAGS: &[&str] = &["response_flags", "flags"];

/// Reads a line of an access log of Envoy. Other members become variables: `x-user` is `http_x_user`.
pub(crate) fn envoy<'l>(line: &str) -> Option<LoggedRequest<'l>> {
    let Ok(Value::Object(members)) = serde_json::from_str(line) else { return None };
    let text = |names: &[&str]| find(&members, names).and_then(text_of);
    let time = time_of(find(&members, TIMES)?)?;
    let status = text(STATUSES).and_then(|status| status.parse().ok());
    let flags = text(FLAGS).unwrap_or_default();
    let mut request = LoggedRequest {
        time,
        resolution: TimeResolution::Exact,
        // Envoy's start time is the beginning, although the line is written at the end.
        ends_at: false,
        duration: text(DURATIONS).and_then(|millis| millis_of(&millis)),
        client: text(CLIENTS).map(|text| first_address(&text)),
        user: None,
        method: text(METHODS).map(Cow::Owned),
        target: text(TARGETS).map(Cow::Owned),
        host: text(HOSTS).map(Cow::Owned),
        status,
        refused: status == Some(429) || flags.split(',').any(|flag| flag == "RL"),
        fields: Vec::new(),
    };
    add_fields(&mut request, &members);
    Some(request)
}

/// Reads a line of our access log.
pub(crate) fn tidegate<'l>(line: &str) -> Option<LoggedRequest<'l>> {
    let Ok(Value::Object(members)) = serde_json::from_str(line) else { return None };
    let text = |name: &str| members.get(name).and_then(text_of);
    let micros = members.get("micros").and_then(Value::as_u64);
    let refused = members.get("refused_by").is_some_and(Value::is_string)
        || text("outcome").as_deref() == Some("rate_limited");
    let mut request = LoggedRequest {
        time: iso_time(&text("time")?)?,
        resolution: TimeResolution::Exact,
        ends_at: false,
        duration: micros.map(|micros| Nanos::new(micros.saturating_mul(1_000))),
        client: text("client").map(Cow::Owned),
        user: text("caller").map(Cow::Owned),
        method: text("method").map(Cow::Owned),
        target: text("target").map(Cow::Owned),
        host: None,
        status: text("status").and_then(|status| status.parse().ok()),
        refused,
        fields: Vec::new(),
    };
    if let Some(agent) = text("user_agent") {
        request.add_field("http_user_agent", Cow::Owned(agent));
    }
    if let Some(referer) = text("referer") {
        request.add_field("http_referer", Cow::Owned(referer));
    }
    add_fields(&mut request, &members);
    Some(request)
}

fn find<'m>(members: &'m Map<String, Value>, names: &[&str]) -> Option<&'m Value> {
    names.iter().find_map(|name| members.get(*name).filter(|value| !is_absent(value)))
}

fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text == "-" || text.is_empty())
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text != "-" => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// An RFC 3339 time, or seconds since 1970; a number above the year 5138 in seconds is milliseconds.
fn time_of(value: &Value) -> Option<Timestamp> {
    let text = text_of(value)?;
    if let Some(time) = iso_time(&text) {
        return Some(time);
    }
    match text.parse::<u64>() {
        Ok(millis) if millis > 100_000_000_000 => {
            Some(Timestamp::from_nanos(millis.checked_mul(1_000_000)?))
        }
        _ => epoch_time(&text),
    }
}

/// A duration in milliseconds, as Envoy writes it.
fn millis_of(text: &str) -> Option<Nanos> {
    let whole = text.split('.').next()?;
    Some(Nanos::new(whole.parse::<u64>().ok()?.checked_mul(1_000_000)?))
}

/// The first of a list of addresses, without a port.
fn first_address(text: &str) -> Cow<'static, str> {
    let first = text.split(',').next().unwrap_or(text).trim();
    Cow::Owned(address(first).into_owned())
}

fn add_fields(request: &mut LoggedRequest<'_>, members: &Map<String, Value>) {
    for (name, value) in members {
        let Some(value) = text_of(value) else { continue };
        let lower = name.to_ascii_lowercase().replace('-', "_");
        request.add_field(lower.clone(), Cow::Owned(value.clone()));
        if !lower.starts_with("http_") {
            request.add_field(format!("http_{lower}"), Cow::Owned(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_envoy_is_read_with_its_header_fields() {
        let line = r#"{"start_time":"2026-07-16T12:00:00.123Z","method":"GET","path":"/a?b=1",
            "response_code":429,"response_flags":"RL","duration":12,"authority":"api.example",
            "x_forwarded_for":"192.0.2.7, 10.0.0.1","x-user":"ada","user_agent":"curl"}"#;
        let request = envoy(line).unwrap();
        assert_eq!(request.began().as_nanos(), 1_784_203_200_123_000_000);
        assert_eq!(request.variable("remote_addr"), Some("192.0.2.7"));
        assert_eq!(request.variable("http_x_user"), Some("ada"));
        assert_eq!(request.variable("uri"), Some("/a"));
        assert_eq!(request.duration, Some(Nanos::from_millis(12)));
        assert!(request.refused);
    }

    #[test]
    fn a_line_of_our_access_log_is_read() {
        let line = r#"{"time":"2026-07-16T12:00:00.123Z","client":"::1","method":"POST",
            "target":"/x","status":200,"micros":1500,"outcome":"served","caller":"ada","limit":null}"#;
        let request = tidegate(line).unwrap();
        assert_eq!(request.variable("remote_user"), Some("ada"));
        assert_eq!(request.duration, Some(Nanos::new(1_500_000)));
        assert!(!request.refused);
    }

    #[test]
    fn other_json_is_not_read() {
        for line in ["{}", "[]", "1", "{\"start_time\":\"x\"}", "{\"start_time\":{}}", "{"] {
            assert_eq!(envoy(line), None, "{line}");
            assert_eq!(tidegate(line), None, "{line}");
        }
    }
}
