//! The pages of the debug port: any query and any body are answered with a page or a problem, JSON is valid, and no cell
//! of a table is a formula.
//!
//! An input is a body, sent to every route that reads one. Its first line is also tried as a path with a query, and its
//! words as callers.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use serde_json::Value;
use tidegate_access::AccessPolicy;
use tidegate_admin::{DebugDoor, DebugParts, DebugSettings, Observations};
use tidegate_engine::{
    Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Nanos, NearLimit, Options,
    Request as Asked, Source, compile,
};
use tokio::runtime::{Builder, Runtime};

use super::doors::{Clock, at_once, clock};
use super::{Target, Trail, shape};

pub(super) const WORDS: &[&str] = &[
    "/api/series?names=",
    "admitted,refused",
    "&since=",
    "&step=",
    "18446744073709551615",
    "/api/limits?sort=",
    "refused_share",
    "&find=",
    "&after=",
    "&format=csv",
    "/api/limits/",
    "ffffffffffffffff",
    "/api/callers?find=",
    "/api/changes?after=",
    "/api/events?kinds=",
    "state,changes,verdicts",
    "/api/state",
    "/api/findings",
    "/api/fleet",
    "/ui/app.js",
    "/ui/../",
    "/top?format=json",
    "%00",
    "%ff",
    "%",
    "+",
    "=cmd()",
    "@x",
    "\t=1",
    "<script>",
    "\u{202e}",
    "\n",
    "{\"request\": {\"path\": \"/orders\", \"headers\": [[\"X-User\", \"ada\"]]}}",
    "{\"domain\": \"api\", \"descriptors\": [{\"entries\": [{\"key\": \"user\", \"value\": \"a\"}]}]}",
    "{\"limiter\": \"rate\", \"mode\": \"enforce 10%\", \"for_seconds\": 1, \"reason\": \"x\"}",
    "{\"off\": true, \"until_ms\": 18446744073709551615}",
    "{\"domain\": \"api\", \"path\": \"user\", \"limit\": \"1\", \"mode\": \"shadow\"}",
];

/// The routes that read a body.
const READERS: [(Method, &str); 7] = [
    (Method::POST, "/api/try"),
    (Method::PUT, "/switches/kill"),
    (Method::PUT, "/switches/limit"),
    (Method::DELETE, "/switches/limit"),
    (Method::PUT, "/switches/limiter"),
    (Method::DELETE, "/switches/limiter"),
    (Method::DELETE, "/switches/kill"),
];
/// The pages that show callers and changes.
const TABLES: [&str; 4] = [
    "/api/callers?format=csv",
    "/api/changes?format=csv",
    "/api/limits?format=csv",
    "/api/callers",
];
const RULES: &str = "
domain: api
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 1}
";

pub(super) struct PagesTarget {
    engine: Arc<Engine<MemoryStore, Clock>>,
    door: DebugDoor<MemoryStore, Clock>,
    clock: Clock,
    /// Streams have timers.
    runtime: Runtime,
}

impl PagesTarget {
    pub(super) fn new() -> Self {
        let clock = clock();
        let config =
            MemoryConfig { budget_bytes: 1 << 20, seed: Some(1), ..MemoryConfig::default() };
        let store = MemoryStore::new(config).expect("the budget is enough");
        let sources = [Source::new("rules.yaml", RULES)];
        let rules = compile(&sources, &Options::default()).expect("the rules are right");
        let observations = Arc::new(Observations::default());
        let engine = Engine::new(store, Arc::clone(&clock))
            .with_tallies(NearLimit::default())
            .with_observer(Arc::clone(&observations) as _)
            .with_rules(rules);
        let engine = Arc::new(engine);
        let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
        let parts = DebugParts { settings, observations, ..DebugParts::default() };
        let door = DebugDoor::new(Arc::clone(&engine), parts);
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        PagesTarget { engine, door, clock, runtime }
    }

    /// Counts requests of a caller, more than it may send.
    fn refuse(&self, caller: &str) {
        let entries = [Entry { key: "user", value: caller }];
        for _ in 0..2 {
            self.engine.check_now(&Asked::new("api", &[Descriptor::new(&entries)]));
        }
    }

    fn judge(&self, method: &Method, uri: &Uri, body: Bytes) -> Result<(u16, String), String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        let Ok(answer) = at_once(self.door.call(request))?;
        let (parts, mut body) = answer.into_parts();
        let kind = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let kind = String::from_utf8_lossy(kind).into_owned();
        let status = parts.status.as_u16();
        let fail = |reason: String| Err(format!("{method} {uri}: {status}: {reason}"));
        if kind == "text/event-stream" {
            // A stream has no end; its first frame comes at once if it has news.
            drop(at_once(body.frame()));
            return Ok((status, kind));
        }
        let Ok(body) = at_once(body.collect())?;
        let body = body.to_bytes();
        if status == 500 {
            return fail("the port failed".to_owned());
        }
        if kind.starts_with("text/csv") {
            let text = String::from_utf8_lossy(&body);
            let found = cells(&text).into_iter().find(|cell| is_formula(cell));
            if let Some(cell) = found {
                return fail(format!("{cell:?} is a formula"));
            }
        }
        if !kind.ends_with("json") {
            return Ok((status, kind));
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(page) if status < 400 || page["status"] == status => {
                Ok((status, page["detail"].as_str().map(shape).unwrap_or_default()))
            }
            Ok(_) => fail("the problem tells of another status".to_owned()),
            Err(error) => fail(error.to_string()),
        }
    }
}

/// The cells of a table: separated by commas and ends of lines outside of quotes.
fn cells(table: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut rest = table.chars().peekable();
    while let Some(char) = rest.next() {
        let is_escaped = quoted && char == '"' && rest.peek() == Some(&'"');
        match char {
            '"' if is_escaped => rest.next().into_iter().for_each(|quote| push(&mut cells, quote)),
            '"' => quoted = !quoted,
            ',' | '\n' if !quoted => cells.push(String::new()),
            '\r' if !quoted => {}
            other => push(&mut cells, other),
        }
    }
    cells
}

fn push(cells: &mut [String], char: char) {
    if let Some(cell) = cells.last_mut() {
        cell.push(char);
    }
}

/// Whether a spreadsheet would take a cell for a formula.
fn is_formula(cell: &str) -> bool {
    cell.starts_with(['=', '@', '\t', '\r'])
}

impl Target for PagesTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let _entered = self.runtime.enter();
        self.clock.advance(Nanos::from_secs(1));
        self.door.record();
        let text = String::from_utf8_lossy(input);
        text.split_whitespace().take(4).for_each(|word| self.refuse(word));
        self.refuse(&text);
        let body = Bytes::copy_from_slice(input);
        let mut answers = Vec::new();
        for (method, path) in &READERS {
            answers.push(self.judge(method, &Uri::from_static(path), body.clone())?);
        }
        for path in TABLES {
            answers.push(self.judge(&Method::GET, &Uri::from_static(path), Bytes::new())?);
        }
        let first = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first.starts_with(b"/")
            && let Ok(uri) = Uri::try_from(first)
        {
            answers.push(self.judge(&Method::GET, &uri, Bytes::new())?);
        }
        Ok(Trail::of(answers))
    }
}
