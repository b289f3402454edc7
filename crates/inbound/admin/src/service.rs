//! The service: finds the route of a request, checks its access, and shows a page or makes a change.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::service::Service;
use tidegate_access::{AccessError, BodyError, BodyLimits, read_body};
use tidegate_engine::{Clock, CounterStore, Engine};
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_metrics::Format;
use tidegate_statsd::StatsReading;

use super::answer::{self, Answer, Problem};
use super::change::{Change, ChangeCounts, ChangeKind};
use super::limiters::Switchboard;
use super::routes::{self, Action, Command, Page};
use super::settings::DebugParts;
use super::{log_level, metrics, rlconfig, stats, switches, top};

/// The largest body: a change is a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

const BODY_LIMITS: BodyLimits =
    BodyLimits { bytes_max: BODY_BYTES_MAX, timeout: Duration::from_secs(10) };

/// Shows and switches what an engine does. Clones are cheap and share everything.
pub struct DebugDoor<S, C> {
    inner: Arc<Inner<S, C>>,
    /// The path of the metrics, if there are no other pages.
    metrics_only: Option<Arc<str>>,
}

/// The state that all clones share.
pub(super) struct Inner<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) parts: DebugParts,
    pub(super) board: Arc<Switchboard>,
    pub(super) changes: ChangeCounts,
    pub(super) denied: AtomicU64,
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
        let inner = Arc::new(Inner { engine, parts, board, changes, denied });
        DebugDoor { inner, metrics_only: None }
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
            None => self.inner.respond(head, body).await,
        };
        answered.unwrap_or_else(Answer::from)
    }
}

impl<S: CounterStore, C: Clock> Inner<S, C> {
    async fn respond<B: Body<Data = Bytes>>(
        &self,
        head: &Parts,
        body: B,
    ) -> Result<Answer, Problem> {
        if !self.parts.settings.hosts.accept(head) {
            let detail = "the debug port does not answer to this host; add it to `debug.hosts`, or use an IP address";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
        }
        let route = match routes::find(&head.method, head.uri.path()) {
            Ok(route) => route,
            Err(Some(allowed)) => return Ok(answer::method_not_allowed(&allowed)),
            Err(None) => {
                return Err(Problem::new(StatusCode::NOT_FOUND, "no such page; `/` lists them"));
            }
        };
        // Before the body is read: a request without access costs as little as possible.
        self.authorize(route.action, &head.headers)?;
        match route.action {
            Action::Open(page) | Action::Private(page) => self.show(page, head),
            Action::Change(command) => {
                let body = read_body(body, BODY_LIMITS).await.map_err(body_problem)?;
                self.change(command, &body)
            }
        }
    }

    /// Whether a request has the access that its route needs.
    fn authorize(&self, action: Action, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(role) = action.role() else { return Ok(()) };
        let now = || self.engine.clock().now();
        self.parts.settings.access.authorize(headers, role, now).map_err(|error| {
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

    fn show(&self, page: Page, head: &Parts) -> Result<Answer, Problem> {
        let format = PageFormat::of(head.uri.query())?;
        Ok(match page {
            Page::Index => answer::text(routes::index()),
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
                let reading = self.parts.observations.top();
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
        })
    }

    fn change(&self, command: Command, body: &[u8]) -> Result<Answer, Problem> {
        let now = self.engine.clock().now();
        let (change, answer) = match command {
            Command::SwitchOff => switches::kill(&self.board, now, body)?,
            Command::SwitchOn => switches::revive(&self.board),
            Command::SwitchLimit => switches::limit(&self.engine, body)?,
            Command::RestoreLimit => switches::limit_back(&self.engine, body)?,
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
        };
        self.changes.count(&change);
        if let Some(on_change) = &self.parts.on_change {
            on_change(&change);
        }
        Ok(answer)
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
    type Response = Response<Full<Bytes>>;
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

clone_fields!([S, C] DebugDoor<S, C> { inner, metrics_only });

debug_fields!([S, C] DebugDoor<S, C> { parts = inner.parts });
