//! The access log: one line per request, written by the thread of a [`LogQueue`].

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use compact_str::CompactString;
use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Uri, Version};
use serde_json::json;
use tidegate_access::sha256;
use tidegate_engine::Timestamp;
use tidegate_overload::Category;

use super::log_queue::LogQueue;
use super::settings::{AccessLogFormat, AccessLogSettings, CallerFormat};
use super::tally::Outcome;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Bytes of the hash of a caller: enough that no two callers of a log are the same.
const CALLER_HASH_BYTES: usize = 8;

/// The part of a line that is known when a request begins.
#[derive(Debug)]
pub(super) struct Record {
    began: Timestamp,
    client: Option<IpAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    trace_parent: Option<HeaderValue>,
    /// The category of the request; [`None`] if it is not decided.
    pub(super) category: Option<Category>,
    /// The caller, as the settings identify it.
    pub(super) caller: Option<CompactString>,
    /// The limit that refused it.
    pub(super) limit: Option<CompactString>,
    /// The limiter that refused it.
    pub(super) refused_by: Option<&'static str>,
    /// The server that answered.
    pub(super) upstream: Option<Authority>,
    /// Whether it becomes a line of the log.
    pub(super) is_logged: bool,
    /// Whether its response has [`RequestDetails`].
    pub(super) is_traced: bool,
}

/// Marks a request whose response is to have [`RequestDetails`], as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct DetailsWanted;

/// What the gateway knows of a request, as an extension of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestDetails {
    /// The name of its route.
    pub route: Option<Box<str>>,
    /// How it ended: `served`, `rate_limited`, `shed_worker` and others, as in the access log.
    pub code: &'static str,
    /// Whether a limiter refused it.
    pub is_refused: bool,
    /// The limit that refused it.
    pub limit: Option<CompactString>,
    /// The limiter that refused it.
    pub refused_by: Option<&'static str>,
    /// Its category; [`None`] if it is not decided.
    pub category: Option<&'static str>,
    /// Its caller, as the settings show it.
    pub caller: Option<String>,
    /// Its `x-request-id`.
    pub request_id: Option<HeaderValue>,
}

impl Record {
    pub(super) fn new(head: &Parts, client: Option<IpAddr>, began: Timestamp) -> Self {
        Record {
            began,
            client,
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            user_agent: head.headers.get(USER_AGENT).cloned(),
            referer: head.headers.get(REFERER).cloned(),
            request_id: head.headers.get(X_REQUEST_ID).cloned(),
            trace_parent: head.headers.get(TRACEPARENT).cloned(),
            category: None,
            caller: None,
            limit: None,
            refused_by: None,
            upstream: None,
            is_logged: false,
            is_traced: false,
        }
    }

    pub(super) fn details(
        &self,
        route: Option<Box<str>>,
        outcome: Outcome,
        caller: CallerFormat,
    ) -> RequestDetails {
        RequestDetails {
            route,
            code: outcome.code(),
            is_refused: matches!(outcome, Outcome::Refused(_)),
            limit: self.limit.clone(),
            refused_by: self.refused_by,
            category: self.category.map(Category::as_str),
            caller: self.caller.as_deref().and_then(|name| show_caller(name, caller)),
            request_id: self.request_id.clone(),
        }
    }
}

/// A line of the log, known when the request has ended.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) record: Box<Record>,
    pub(super) ended: Timestamp,
    pub(super) status: StatusCode,
    pub(super) bytes: u64,
    pub(super) outcome: &'static str,
    pub(super) route: Box<str>,
}

/// The access log: which requests it has, and the queue of the writing thread.
#[derive(Debug)]
pub(super) struct AccessLog {
    lines: LogQueue<LogLine>,
    one_of: NonZeroU64,
    seen: AtomicU64,
}

impl AccessLog {
    /// Starts the thread that writes.
    pub(super) fn start(
        settings: &AccessLogSettings,
        out: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let AccessLogSettings { format, caller, one_of, waiting_max } = *settings;
        let write = move |line: &LogLine, text: &mut String| match format {
            AccessLogFormat::Json => line.as_json(caller, text),
            AccessLogFormat::Common => line.as_common(text),
        };
        let lines = LogQueue::start("access-log", waiting_max, out, write)?;
        Ok(AccessLog { lines, one_of, seen: AtomicU64::new(0) })
    }

    /// Whether the next request is sampled.
    pub(super) fn samples_next(&self) -> bool {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        seen.is_multiple_of(self.one_of.get())
    }

    pub(super) fn write(&self, line: LogLine) {
        self.lines.push(line);
    }

    /// Waits until all lines so far are written, with a timeout. Returns whether they are. Blocks.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        self.lines.flush(patience)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.lines.dropped()
    }
}

impl LogLine {
    fn as_json(&self, caller: CallerFormat, out: &mut String) {
        let record = &self.record;
        let text = |value: &Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let line = json!({
            "time": instant(record.began, "%Y-%m-%dT%H:%M:%S%.3fZ"),
            "client": record.client,
            "method": record.method.as_str(),
            "target": record.uri.to_string(),
            "protocol": format!("{:?}", record.version),
            "status": self.status.as_u16(),
            "bytes": self.bytes,
            "micros": self.ended.since(record.began).get() / 1_000,
            "outcome": self.outcome,
            "route": self.route,
            "limit": record.limit.as_deref(),
            "refused_by": record.refused_by,
            "category": record.category.map(Category::as_str),
            "caller": record.caller.as_deref().and_then(|name| show_caller(name, caller)),
            "upstream": record.upstream.as_ref().map(Authority::as_str),
            "request_id": text(&record.request_id),
            "trace_id": record.trace_parent.as_ref().and_then(trace_id),
            "user_agent": text(&record.user_agent),
            "referer": text(&record.referer),
        });
        let _ = writeln!(out, "{line}");
    }

    fn as_common(&self, out: &mut String) {
        let record = &self.record;
        match record.client {
            Some(client) => _ = write!(out, "{client}"),
            None => out.push('-'),
        }
        let _ = writeln!(
            out,
            " - - [{}] \"{} {} {:?}\" {} {}",
            instant(record.began, "%d/%b/%Y:%H:%M:%S +0000"),
            record.method,
            // A URI cannot contain quotes or line ends.
            record.uri,
            record.version,
            self.status.as_u16(),
            self.bytes,
        );
    }
}

/// The name of a caller as the settings show it: in clear, as the start of its SHA-256, or not at all.
pub fn show_caller(name: &str, format: CallerFormat) -> Option<String> {
    match format {
        CallerFormat::Plain => Some(name.to_owned()),
        CallerFormat::Hashed => {
            let hash = sha256(name.as_bytes());
            let bytes = hash.iter().take(CALLER_HASH_BYTES);
            Some(bytes.map(|byte| format!("{byte:02x}")).collect())
        }
        CallerFormat::Off => None,
    }
}

/// The trace of a `traceparent` field (W3C Trace Context).
fn trace_id(parent: &HeaderValue) -> Option<&str> {
    let id = parent.to_str().ok()?.split('-').nth(1)?;
    let valid = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then_some(id)
}

/// Formats an instant in UTC, in a format of jiff.
fn instant(at: Timestamp, format: &str) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos()));
    moment.unwrap_or(jiff::Timestamp::MAX).strftime(format).to_string()
}
