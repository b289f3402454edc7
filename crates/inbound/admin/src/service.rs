//! The service: finds the route of a request, checks its access, and shows a page or makes a change.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use serde_json::Value;
use tidegate_access::{AccessError, BodyError, BodyLimits, Role, read_body};
use tidegate_engine::{Clock, CounterStore, Engine, Timestamp};
use tidegate_history::{History, HistoryFileError};
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_metrics::Format;
use tidegate_statsd::StatsReading;

use super::answer::{self, Answer, Problem};
use super::audit::{AuditEntry, AuditLog};
use super::body::DebugBody;
use super::change::{Change, ChangeCounts, ChangeKind};
use super::events::{self, Streams};
use super::limiters::Switchboard;
use super::recorder::Recorder;
use super::routes::{self, Action, Command, Page, Question, Route};
use super::settings::DebugParts;
use super::{
    assets, callers_page, changes_page, findings_page, fleet_page, limits_page, series_page,
};
use super::{log_level, metrics, rlconfig, stats, switches, top};
use super::{state_page, try_page};

/// The largest body: a change is a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

const BODY_LIMITS: BodyLimits =
    BodyLimits { bytes_max: BODY_BYTES_MAX, timeout: Duration::from_secs(10) };

/// Shows and switches what an engine does. Clones are cheap and share everything.
pub struct DebugDoor<S, C> {
    inner: Arc<Inner<S, C>>,
    /// The path of the metrics, if there are no other pages.
    metrics_only: Option<Arc<str>>,
    /// The other end of the connection, if it is known.
    peer: Option<SocketAddr>,
}

/// The state that all clones share.
pub(super) struct Inner<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) parts: DebugParts,
    pub(super) board: Arc<Switchboard>,
    pub(super) changes: ChangeCounts,
    pub(super) denied: AtomicU64,
    pub(super) audit: AuditLog,
    pub(super) recorder: Recorder,
    pub(super) streams: Streams,
}

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageFormat {
    Text,
    Json,
}

impl<S: CounterStore, C: Clock> DebugDoor<S, C> {
    /// A door to this engine.
    pub fn new(engine: Arc<Engine<S, C>>, parts: DebugParts) -> Self {
        let board = parts.switchboard.clone();
        let board = board.unwrap_or_else(|| Arc::new(Switchboard::new(Arc::clone(&engine), None)));
        let (changes, denied) = (ChangeCounts::default(), AtomicU64::new(0));
        let recorder = Recorder::new(parts.settings.history_bytes);
        let streams = Streams::new(parts.settings.streams_max);
        let audit = AuditLog::default();
        let inner = Inner { engine, parts, board, changes, denied, audit, recorder, streams };
        DebugDoor { inner: Arc::new(inner), metrics_only: None, peer: None }
    }

    /// The same door for one connection: its changes are recorded with this address.
    #[must_use]
    pub fn for_peer(&self, peer: Option<SocketAddr>) -> Self {
        DebugDoor { peer, ..self.clone() }
    }

    /// Takes a reading of everything that has a history. Call it once a second, not from a thread that decides
    /// requests: with ten thousand limits it takes milliseconds.
    pub fn record(&self) {
        let now = self.inner.engine.clock().now();
        self.inner.parts.observations.tick(now);
        self.inner.recorder.record(&self.inner, now);
        for change in self.inner.board.take_changes() {
            self.inner.changes.count(&change);
            self.inner.audit(&change, None, None, now);
        }
    }

    /// Begins with the changes that earlier processes recorded: the lines that [`DebugParts::on_audit`] got. Returns how
    /// many of the lines are no changes.
    pub fn restore_changes(&self, lines: &str) -> usize {
        self.inner.audit.restore(lines)
    }

    /// This node in a few words for the other nodes of its fleet, as JSON of up to a kibibyte.
    pub fn node_state(&self) -> String {
        fleet_page::node_state(&self.inner).to_string()
    }

    /// What would happen to a request: the page `/api/try`, with the same body.
    ///
    /// # Errors
    /// A sentence about a body that is malformed.
    pub async fn try_request(&self, body: &str) -> Result<Value, String> {
        let page = try_page::read(&self.inner, body.as_bytes()).await;
        page.map_err(|problem| problem.detail)
    }

    /// The bytes that the history takes.
    pub fn history_bytes(&self) -> usize {
        self.inner.recorder.with(History::bytes)
    }

    /// The files of the dashboard, compressed as browsers get them.
    pub fn dashboard_files() -> impl Iterator<Item = Bytes> {
        assets::files()
    }

    /// The history of limits as bytes, for a file.
    pub fn encode_history(&self) -> Vec<u8> {
        self.inner.recorder.with(History::encode)
    }

    /// Goes on from [`DebugDoor::encode_history`].
    ///
    /// # Errors
    /// When the bytes are not a history, of another version, or damaged. Then nothing changes.
    pub fn restore_history(&self, bytes: &[u8]) -> Result<(), HistoryFileError> {
        self.inner.recorder.restore(self.inner.parts.settings.history_bytes, bytes)
    }

    /// The same door reduced to its metrics, at this path: for a port that others may reach.
    #[must_use]
    pub fn metrics_only(&self, path: &str) -> Self {
        DebugDoor { metrics_only: Some(path.into()), ..self.clone() }
    }

    /// All statistics now, as the page `/stats` has them.
    pub fn statistics(&self) -> StatsReading {
        stats::read(&self.inner)
    }

    async fn answer<B: Body<Data = Bytes>>(&self, head: &Parts, body: B) -> Answer {
        let answered = match &self.metrics_only {
            Some(path) => self.inner.metrics_at(path, head),
            None => self.inner.respond(head, body, self.peer).await,
        };
        answered.unwrap_or_else(Answer::from)
    }
}

impl<S: CounterStore, C: Clock> Inner<S, C> {
    async fn respond<B: Body<Data = Bytes>>(
        self: &Arc<Self>,
        head: &Parts,
        body: B,
        peer: Option<SocketAddr>,
    ) -> Result<Answer, Problem> {
        let found = routes::find(&head.method, head.uri.path());
        if !self.answers_to_host(head, found.as_ref().ok().map(|route| route.action)) {
            let detail = "the debug port does not answer to this host; add it to `debug.hosts`, or use an IP address";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
        }
        let route = match found {
            Ok(route) => route,
            Err(Some(allowed)) => return Ok(answer::method_not_allowed(&allowed)),
            Err(None) => {
                return Err(Problem::new(StatusCode::NOT_FOUND, "no such page; `/` lists them"));
            }
        };
        // Before the body is read: a request without access costs as little as possible.
        self.authorize(route.action, &head.headers)?;
        match route.action {
            Action::Open(page) | Action::Private(page) => self.show(page, route, head).await,
            Action::Ask(Question::Try) => {
                let body = read_body(body, BODY_LIMITS).await.map_err(body_problem)?;
                Ok(answer::json(&try_page::read(self, &body).await?))
            }
            Action::Change(command) => {
                let body = read_body(body, BODY_LIMITS).await.map_err(body_problem)?;
                let (change, answer) = self.change(command, &body)?;
                self.register(&change, &head.headers, peer);
                Ok(answer)
            }
        }
    }

    /// Whether a request is for a host that the port answers to. As upstream's port, it answers to every name with pages
    /// that are open to everyone, which say nothing about callers.
    fn answers_to_host(&self, head: &Parts, action: Option<Action>) -> bool {
        let is_upstreams = self.parts.settings.compat && matches!(action, Some(Action::Open(_)));
        is_upstreams || self.parts.settings.hosts.accept(head)
    }

    /// Whether a request has the access that its route needs.
    fn authorize(&self, action: Action, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(role) = action.role() else { return Ok(()) };
        let now = || self.engine.clock().now();
        if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
            self.denied.fetch_add(1, Ordering::Relaxed);
            let detail = "a page of another site may not read or change anything here";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        let access = self.parts.settings.access.authorize(headers, role, now);
        // The dashboard of this port: its host was checked before, so that no other site has this origin.
        if access == Err(AccessError::Browser) && is_same_origin(headers) {
            return Ok(());
        }
        access.map_err(|error| {
            self.denied.fetch_add(1, Ordering::Relaxed);
            let detail = match &error {
                AccessError::ChangesOff => format!("{error}; set `debug.token` or `debug.tokens`"),
                error => error.to_string(),
            };
            Problem::new(error.status(), detail)
        })
    }

    /// The answer where the metrics, at this path, are the only page.
    fn metrics_at(&self, path: &str, head: &Parts) -> Result<Answer, Problem> {
        if head.uri.path() != path {
            let detail = format!("the metrics are at {path}");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let detail = "metrics are read with GET";
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail));
        }
        let Some(upstream) = &self.parts.upstream_metrics else {
            return Ok(self.metrics(&head.headers));
        };
        // Names of counters without `_total` exist only in the older format.
        let format = Format::Prometheus;
        let page = upstream.render(&stats::read_upstream(self)) + &metrics::page(self, format);
        Ok(answer::typed(HeaderValue::from_static(format.content_type()), page))
    }

    /// The page of metrics in the format that the header fields ask for.
    fn metrics(&self, headers: &HeaderMap) -> Answer {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let format = Format::negotiate(accept.unwrap_or_default());
        let content_type = HeaderValue::from_static(format.content_type());
        answer::typed(content_type, metrics::page(self, format))
    }

    async fn show(
        self: &Arc<Self>,
        page: Page,
        route: &Route,
        head: &Parts,
    ) -> Result<Answer, Problem> {
        let (query, headers) = (head.uri.query(), &head.headers);
        match page {
            Page::ApiCallers => callers_page::list(self, query).await,
            Page::ApiChanges => changes_page::list(self, query),
            Page::ApiEvents => events::open(self, query, headers),
            Page::ApiEvidence => Ok(findings_page::evidence_page(self)),
            Page::ApiFindings => Ok(findings_page::findings_page(self)),
            Page::ApiFleet => Ok(fleet_page::page(self).await),
            Page::ApiLimit => limits_page::one(self, route.parameter(head.uri.path())),
            Page::ApiLimits => limits_page::list(self, query),
            Page::ApiSeries => series_page::columns(self, query),
            Page::ApiState => Ok(answer::json(&state_page::read(self))),
            Page::Ui => assets::index(headers),
            Page::UiFile => assets::file(route.parameter(head.uri.path()), headers),
            Page::Index
            | Page::Metrics
            | Page::Rlconfig
            | Page::Stats
            | Page::Top
            | Page::Switches
            | Page::LogLevel
            | Page::Gateway => self.show_plain(page, head),
        }
    }

    /// Pages for a terminal and for scripts.
    fn show_plain(&self, page: Page, head: &Parts) -> Result<Answer, Problem> {
        let format = PageFormat::of(head.uri.query())?;
        Ok(match page {
            Page::Index if wants_html(&head.headers) => assets::redirect(),
            Page::Metrics => self.metrics(&head.headers),
            Page::Rlconfig => {
                answer::text(rlconfig::page(&self.engine.snapshot(), self.parts.settings.compat))
            }
            Page::Stats => {
                let stats = stats::read(self);
                match format {
                    PageFormat::Text => answer::text(stats::lines(&stats)),
                    PageFormat::Json => answer::json(&stats.values()),
                }
            }
            Page::Top => {
                let reading = top::read(self);
                match format {
                    PageFormat::Text => answer::text(top::table(&reading)),
                    PageFormat::Json => answer::json(&reading),
                }
            }
            Page::Switches => answer::json(&switches::read(&self.engine, &self.board)),
            Page::LogLevel => log_level::show(&self.parts)?,
            Page::Gateway => {
                let none = || Problem::new(StatusCode::NOT_FOUND, "there is no gateway");
                answer::json_text(self.parts.gateway_page.as_ref().ok_or_else(none)?())
            }
            // The index, and the pages that `show` answers itself.
            _ => answer::text(routes::index()),
        })
    }

    fn change(&self, command: Command, body: &[u8]) -> Result<(Change, Answer), Problem> {
        let now = self.engine.clock().now();
        Ok(match command {
            Command::SwitchOff => switches::kill(&self.board, now, body)?,
            Command::SwitchOn => switches::revive(&self.board, body)?,
            Command::SwitchLimit => switches::limit(&self.engine, &self.board, body)?,
            Command::RestoreLimit => switches::limit_back(&self.engine, &self.board, body)?,
            Command::SwitchLimiter => switches::limiter(&self.board, now, body)?,
            Command::RestoreLimiter => switches::limiter_back(&self.board, body)?,
            Command::SetLogLevel => log_level::set(&self.parts, body)?,
            Command::Reload => {
                let none = || Problem::new(StatusCode::NOT_FOUND, "there is nothing to reload");
                self.parts.reload.as_ref().ok_or_else(none)?();
                let mut answer = answer::text("the files are being read again\n".to_owned());
                *answer.status_mut() = StatusCode::ACCEPTED;
                let description = "rules and the gateway's document are to be read again";
                (Change::new(ChangeKind::Reload, description), answer)
            }
            Command::ClearTop => {
                self.parts.observations.clear_top();
                let change =
                    Change::new(ChangeKind::TopCleared, "the most refused are counted anew");
                (change, answer::text("counting anew\n".to_owned()))
            }
        })
    }

    /// Counts, logs and records a change.
    fn register(&self, change: &Change, headers: &HeaderMap, peer: Option<SocketAddr>) {
        self.changes.count(change);
        let now = self.engine.clock().now();
        let tokens = &self.parts.settings.access.tokens;
        self.audit(change, tokens.authorize(headers, Role::Change, now).ok(), peer, now);
        if let Some(on_change) = &self.parts.on_change {
            on_change(change);
        }
    }

    /// Records a change.
    fn audit(&self, change: &Change, by: Option<String>, peer: Option<SocketAddr>, now: Timestamp) {
        let (before, after) = change.modes.clone().unzip();
        let line = self.audit.add(AuditEntry {
            id: 0,
            at_ms: now.as_millis(),
            by,
            peer,
            kind: change.kind().into(),
            what: change.description().to_owned(),
            before,
            after,
            reason: change.reason.clone(),
            until_ms: change.until.map(Timestamp::as_millis),
            target: change.target.clone(),
            undo: change.undo.clone(),
            before_start: false,
        });
        if let Some(on_audit) = &self.parts.on_audit {
            on_audit(&line);
        }
    }
}

impl PageFormat {
    fn of(query: Option<&str>) -> Result<Self, Problem> {
        let mut format = PageFormat::Text;
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            format = match pair {
                "format=text" => PageFormat::Text,
                "format=json" => PageFormat::Json,
                _ => {
                    let detail = "the query may be format=text or format=json";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
            };
        }
        Ok(format)
    }
}

/// Whether the client is a browser that opens a page.
fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Whether a page of this very host and port sent a request.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
    origin.zip(text(HOST)).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
}

/// The problem of a body that could not be read.
fn body_problem(error: BodyError) -> Problem {
    match error {
        BodyError::TooLarge => {
            let detail = format!("a body may have up to {BODY_BYTES_MAX} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        BodyError::TooSlow => {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
        }
        BodyError::Aborted => Problem::new(StatusCode::BAD_REQUEST, "the body ended early"),
    }
}

impl<S, C, B> Service<Request<B>> for DebugDoor<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<DebugBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let door = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            Ok(door.answer(&head, body).await)
        })
    }
}

clone_fields!([S, C] DebugDoor<S, C> { inner, metrics_only, peer });

debug_fields!([S, C] DebugDoor<S, C> { parts = inner.parts });
