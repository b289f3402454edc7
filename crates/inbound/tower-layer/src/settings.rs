//! The settings of the layer: engine, description of requests, header fields, waits, own answers.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate_engine::{
    ConfigError, Engine, MemoryConfig, MemoryStore, Options, Report, Source, SystemClock, compile,
};
use tower_layer::Layer;

use super::service::RateLimit;
use tidegate_admission::{DelaySettings, RequestDescription, WaitingRoom};
use tidegate_answers::{HeaderSet, HeadersOn, Refusal, Renderer};
use tidegate_macros::{clone_fields, debug_fields};

/// Where the rules of [`RateLimitLayer::by_key`] apply.
const KEYED_DOMAIN: &str = "keyed";
const KEYED_ENTRY: &str = "caller";

/// A limit that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The text is not a limit.
    #[error(transparent)]
    Rules(#[from] Report),
    /// The memory store cannot be made.
    #[error(transparent)]
    Memory(#[from] ConfigError),
}

type DescribeRequest = dyn Fn(&Parts) -> Option<RequestDescription> + Send + Sync;
type AnswerRefusal = dyn Fn(&Parts, &Refusal) -> Response<Bytes> + Send + Sync;

/// Limits a service of HTTP requests by the rules of an engine.
///
/// ```
/// use std::sync::Arc;
///
/// use http::request::Parts;
/// use tidegate_admission::RequestDescription;
/// use tidegate_tower_layer::RateLimitLayer;
/// use tidegate_engine::{Engine, MemoryConfig, MemoryStore, SystemClock};
///
/// let engine = Engine::new(MemoryStore::new(MemoryConfig::default())?, SystemClock::new());
/// let layer = RateLimitLayer::new(Arc::new(engine), "api", |request: &Parts| {
///     if request.uri.path() == "/health" {
///         return None; // not limited
///     }
///     let user = request.headers.get("x-user")?.to_str().ok()?;
///     Some(RequestDescription::new().descriptor([("user", user), ("path", request.uri.path())]))
/// });
/// # drop(layer);
/// # Ok::<(), tidegate_engine::ConfigError>(())
/// ```
pub struct RateLimitLayer<T = MemoryStore, C = SystemClock> {
    settings: Settings<T, C>,
}

/// What the services of the layer share.
pub(super) struct Settings<T, C> {
    pub(super) engine: Arc<Engine<T, C>>,
    pub(super) domain: Arc<str>,
    pub(super) describe: Arc<DescribeRequest>,
    pub(super) answer: Option<Arc<AnswerRefusal>>,
    pub(super) renderer: Arc<Renderer>,
    pub(super) headers: HeaderSet,
    pub(super) headers_on: HeadersOn,
    pub(super) wait_for_turn: bool,
    pub(super) delay: DelaySettings,
    /// Shared by all services of the layer and of its clones, like the engine.
    pub(super) room: WaitingRoom,
}

impl<T, C> RateLimitLayer<T, C> {
    /// Limits by the rules that `engine` has for `domain`. The closure describes what a request is limited by; `None`
    /// lets it pass unchecked.
    pub fn new<D>(
        engine: Arc<Engine<T, C>>,
        domain: impl Into<Arc<str>>,
        describe: impl Fn(&Parts) -> D + Send + Sync + 'static,
    ) -> Self
    where
        D: Into<Option<RequestDescription>>,
    {
        let settings = Settings {
            engine,
            domain: domain.into(),
            describe: Arc::new(move |request| describe(request).into()),
            answer: None,
            renderer: Arc::new(Renderer::default()),
            headers: HeaderSet::default(),
            headers_on: HeadersOn::default(),
            wait_for_turn: true,
            delay: DelaySettings::default(),
            room: WaitingRoom::default(),
        };
        RateLimitLayer { settings }
    }

    /// The same layer with other header fields.
    #[must_use]
    pub fn headers(mut self, headers: HeaderSet) -> Self {
        self.settings.headers = headers;
        self
    }

    /// The same layer with header fields on other answers.
    #[must_use]
    pub fn headers_on(mut self, headers_on: HeadersOn) -> Self {
        self.settings.headers_on = headers_on;
        self
    }

    /// Whether requests wait: for their turn in a leaky bucket, and for limits with `when_over: delay`. Default: yes,
    /// on tokio's timer, so the service must run on a tokio runtime with time enabled. Otherwise a request that a
    /// leaky bucket admits for later is passed on at once, and one over a limit is refused.
    #[must_use]
    pub fn wait_for_turn(mut self, wait_for_turn: bool) -> Self {
        self.settings.wait_for_turn = wait_for_turn;
        self
    }

    /// How many requests wait, and for how long. A request that would have to wait longer for its turn in a leaky
    /// bucket is refused and refunded; `Retry-After` says when to come back.
    #[must_use]
    pub fn delay(mut self, delay: DelaySettings) -> Self {
        self.settings.delay = delay;
        self
    }

    /// The same layer with another response for refused requests. `Retry-After` and the rate limit fields are added
    /// to it, except the ones that it has already.
    #[must_use]
    pub fn answer_refusals_with(
        mut self,
        answer: impl Fn(&Parts, &Refusal) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.settings.answer = Some(Arc::new(answer));
        self
    }
}

impl RateLimitLayer {
    /// One limit for each key, without rule files. The limit is written like an item of `limits` in a rule file,
    /// without the braces; the closure returns the key, or `None` for requests that are not limited.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tidegate_tower_layer::RateLimitLayer;
    ///
    /// let limit = "algorithm: token_bucket, unit: second, requests_per_unit: 10, burst: 20";
    /// let layer = RateLimitLayer::by_key(limit, |request: &Parts| {
    ///     Some(request.headers.get("x-api-key")?.to_str().ok()?.to_owned())
    /// })?;
    /// # drop(layer);
    /// # Ok::<(), tidegate_tower_layer::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// When the text is not a limit.
    pub fn by_key(
        limit: &str,
        key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, LimitError> {
        let rules = format!(
            "domain: {KEYED_DOMAIN}\ndescriptors:\n- key: {KEYED_ENTRY}\n  limits:\n  - {{{limit}}}\n"
        );
        let snapshot = compile(&[Source::new("limit", rules)], &Options::default())?;
        let store = MemoryStore::new(MemoryConfig::default())?;
        let engine = Engine::new(store, SystemClock::new()).with_rules(snapshot);
        Ok(Self::new(Arc::new(engine), KEYED_DOMAIN, move |request: &Parts| {
            Some(RequestDescription::new().descriptor([(KEYED_ENTRY, key(request)?)]))
        }))
    }
}

impl<S, T, C> Layer<S> for RateLimitLayer<T, C> {
    type Service = RateLimit<S, T, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::new(self.settings.clone()))
    }
}

clone_fields!([T, C] RateLimitLayer<T, C> { settings });

clone_fields! {
    [T, C] Settings<T, C> {
        engine, domain, describe, answer, renderer, headers, headers_on, wait_for_turn, delay, room
    }
}

debug_fields!([T, C] RateLimitLayer<T, C> { settings });

debug_fields! {
    [T, C] Settings<T, C> { domain, headers, headers_on, wait_for_turn, delay }
}
