//! From a request to a page: who may ask, what is asked, what changed.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::service::Service;
use tidegate_engine::{Clock, CounterStore, Engine};
use tidegate_metrics::Format;
use tokio::time::timeout;

use super::answer::{self, Answer, Problem};
use super::change::{Change, ChangeCounts};
use super::limiters::Switchboard;
use super::metrics_only::MetricsDoor;
use super::routes::{self, Found, Guard, Page};
use super::settings::DebugParts;
use super::{log_level, metrics, rlconfig, stats, switches, top};

/// A change is a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long a client may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Shows and switches what an engine does. Cheap to clone.
pub struct DebugDoor<S, C> {
    inner: Arc<Inner<S, C>>,
}

/// What all clones of a door share.
pub(super) struct Inner<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) parts: DebugParts,
    pub(super) board: Arc<Switchboard>,
    pub(super) changes: ChangeCounts,
    pub(super) denied: AtomicU64,
}

/// How a page is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Json,
}

impl<S, C> DebugDoor<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// A door to this engine.
    pub fn new(engine: Arc<Engine<S, C>>, parts: DebugParts) -> Self {
        let board = parts.switchboard.clone();
        let board = board.unwrap_or_else(|| Arc::new(Switchboard::new(Arc::clone(&engine), None)));
        let (changes, denied) = (ChangeCounts::default(), AtomicU64::new(0));
        DebugDoor { inner: Arc::new(Inner { engine, parts, board, changes, denied }) }
    }
}

impl<S: CounterStore, C: Clock> DebugDoor<S, C> {
    /// The same door reduced to its metrics, at this path.
    pub fn metrics_only(&self, path: &str) -> MetricsDoor<S, C> {
        MetricsDoor::new(self.clone(), path)
    }

    /// The page of metrics in the format that the header fields ask for.
    pub(super) fn metrics(&self, headers: &HeaderMap) -> Answer {
        self.inner.metrics(headers)
    }

    async fn answer<B>(&self, head: &Parts, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let path = head.uri.path();
        let route = match routes::find(&head.method, path) {
            Found::Route(route) => route,
            Found::OtherMethod => return answer::method_not_allowed(&routes::allowed(path)),
            Found::Nothing => {
                let detail = "no such page; `/` lists them";
                return Problem::new(StatusCode::NOT_FOUND, detail).into();
            }
        };
        // Before the body is read: strangers cost as little as can be.
        if let Err(problem) = self.inner.admit(route.guard, &head.headers) {
            return problem.into();
        }
        let answered = match route.guard {
            Guard::Open | Guard::Private => self.inner.show(route.page, head),
            Guard::Change => match read(body).await {
                Ok(body) => self.inner.change(route.page, &body),
                Err(problem) => Err(problem),
            },
        };
        answered.unwrap_or_else(Answer::from)
    }
}

impl<S: CounterStore, C: Clock> Inner<S, C> {
    /// Whether a request may have a page.
    fn admit(&self, guard: Guard, headers: &HeaderMap) -> Result<(), Problem> {
        let settings = &self.parts.settings;
        let problem = match (guard, &settings.token) {
            (Guard::Open, _) | (Guard::Private, None) => return Ok(()),
            (_, Some(token)) if token.is_brought_by(headers) => return Ok(()),
            (_, Some(_)) => {
                let detail = "this page asks for the token: `Authorization: Bearer …`";
                Problem::new(StatusCode::UNAUTHORIZED, detail)
            }
            (Guard::Change, None) if !settings.changes_without_token => {
                let detail = "changes are off: no token is configured";
                Problem::new(StatusCode::FORBIDDEN, detail)
            }
            // Without a token the port alone protects us, and a browser on
            // this machine reaches it for any page that it shows.
            (Guard::Change, None) if headers.contains_key(ORIGIN) => {
                let detail = "changes from a browser ask for a token, and none is configured";
                Problem::new(StatusCode::FORBIDDEN, detail)
            }
            (Guard::Change, None) => return Ok(()),
        };
        self.denied.fetch_add(1, Ordering::Relaxed);
        Err(problem)
    }

    /// The page of metrics in the format that the header asks for.
    fn metrics(&self, headers: &HeaderMap) -> Answer {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let format = Format::negotiate(accept.unwrap_or_default());
        let content_type = HeaderValue::from_static(format.content_type());
        answer::typed(content_type, metrics::page(self, format))
    }

    fn show(&self, page: Page, head: &Parts) -> Result<Answer, Problem> {
        let shape = Shape::asked_for(head.uri.query())?;
        Ok(match page {
            Page::Index => answer::text(routes::index()),
            Page::Metrics => self.metrics(&head.headers),
            Page::Rlconfig => answer::text(rlconfig::page(&self.engine.snapshot())),
            Page::Stats => {
                let stats = stats::read(self);
                match shape {
                    Shape::Text => answer::text(stats.lines()),
                    Shape::Json => answer::json(&stats),
                }
            }
            Page::Top => {
                let reading = self.parts.observations.top();
                match shape {
                    Shape::Text => answer::text(top::table(&reading)),
                    Shape::Json => answer::json(&reading),
                }
            }
            Page::Switches => answer::json(&switches::read(&self.engine, &self.board)),
            Page::LogLevel => log_level::show(&self.parts)?,
            Page::Gateway => {
                let none = || Problem::new(StatusCode::NOT_FOUND, "there is no gateway");
                answer::json_text(self.parts.gateway_page.as_ref().ok_or_else(none)?())
            }
            // Those that change something are guarded as such.
            Page::ClearTop
            | Page::SwitchOff
            | Page::SwitchOn
            | Page::SwitchLimit
            | Page::SwitchLimitBack
            | Page::SwitchLimiter
            | Page::SwitchLimiterBack
            | Page::SetLogLevel
            | Page::Reload => {
                return Err(Problem::new(StatusCode::NOT_FOUND, "nothing to show"));
            }
        })
    }

    fn change(&self, page: Page, body: &[u8]) -> Result<Answer, Problem> {
        let (change, answer) = match page {
            Page::SwitchOff => switches::kill(&self.board, self.engine.clock().now(), body)?,
            Page::SwitchOn => switches::revive(&self.board),
            Page::SwitchLimit => switches::limit(&self.engine, body)?,
            Page::SwitchLimitBack => switches::limit_back(&self.engine, body)?,
            Page::SwitchLimiter => switches::limiter(&self.board, self.engine.clock().now(), body)?,
            Page::SwitchLimiterBack => switches::limiter_back(&self.board, body)?,
            Page::SetLogLevel => log_level::set(&self.parts, body)?,
            Page::Reload => {
                let none = || Problem::new(StatusCode::NOT_FOUND, "nothing to read again");
                self.parts.reload.as_ref().ok_or_else(none)?();
                let mut answer = answer::text("the files are being read again\n".to_owned());
                *answer.status_mut() = StatusCode::ACCEPTED;
                (Change::Reload, answer)
            }
            Page::ClearTop => {
                self.parts.observations.clear_top();
                (Change::TopCleared, answer::text("counting anew\n".to_owned()))
            }
            // Those that only show something are guarded as such.
            Page::Index
            | Page::Gateway
            | Page::Metrics
            | Page::Rlconfig
            | Page::Stats
            | Page::Top
            | Page::Switches
            | Page::LogLevel => {
                return Err(Problem::new(StatusCode::NOT_FOUND, "nothing to change"));
            }
        };
        self.changes.count(&change);
        if let Some(tell) = &self.parts.on_change {
            tell(&change);
        }
        Ok(answer)
    }
}

impl Shape {
    fn asked_for(query: Option<&str>) -> Result<Self, Problem> {
        let mut shape = Shape::Text;
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            shape = match pair {
                "format=text" => Shape::Text,
                "format=json" => Shape::Json,
                _ => {
                    let detail = "the query may say format=text or format=json";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
            };
        }
        Ok(shape)
    }
}

/// The whole body of a change.
async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let read = timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let Ok(read) = read else {
        return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
    };
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("a body may have up to {BODY_BYTES_MAX} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Err(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body broke off")),
    }
}

impl<S, C, B> Service<Request<B>> for DebugDoor<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
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

impl<S, C> Clone for DebugDoor<S, C> {
    fn clone(&self) -> Self {
        DebugDoor { inner: Arc::clone(&self.inner) }
    }
}

impl<S, C> fmt::Debug for DebugDoor<S, C> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DebugDoor").field("parts", &self.inner.parts).finish_non_exhaustive()
    }
}
