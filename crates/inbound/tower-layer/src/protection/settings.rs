//! The settings of the layer: the protection, the description of requests, own answers.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_overload::{Protection, Refusal, SteadyClock};
use tower_layer::Layer;

use super::arrival::ArrivingRequest;
use super::service::ProtectedService;

type DescribeArrival = dyn Fn(&Parts) -> Option<ArrivingRequest> + Send + Sync;
type AnswerOverload = dyn Fn(&Parts, &Refusal) -> Response<Bytes> + Send + Sync;

/// Protects a service of HTTP requests from overload.
///
/// ```
/// use std::sync::Arc;
///
/// use http::request::Parts;
/// use tidegate_tower_layer::{ArrivingRequest, ProtectionLayer};
/// use tidegate_overload::{Category, Protection, ProtectionSettings, SteadyClock, run};
/// # use tidegate_engine::Timestamp;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // A service that works on 64 requests at once.
/// let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
/// let protection = Arc::new(Protection::new(ProtectionSettings::new(64), clock));
/// tokio::spawn(run(Arc::clone(&protection)));
/// let layer = ProtectionLayer::new(protection, |request: &Parts| match request.uri.path() {
///     "/health" => None, // never refused, never counted
///     "/pay" => Some(ArrivingRequest::of(request).in_category(Category::Critical)),
///     _ => Some(ArrivingRequest::of(request)),
/// });
/// # drop(layer);
/// # }
/// ```
pub struct ProtectionLayer<C = SteadyClock> {
    pub(super) settings: Arc<Settings<C>>,
    pub(super) step: ProtectionStep,
}

/// How far a layer takes a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProtectionStep {
    /// Screens it and leaves the gate to an inner layer.
    Screen,
    /// Screens it, unless an outer layer did, and enters the gate.
    Enter,
}

/// What the services of a layer share.
pub(super) struct Settings<C> {
    pub(super) protection: Arc<Protection<C>>,
    pub(super) describe: Arc<DescribeArrival>,
    pub(super) answer: Option<Arc<AnswerOverload>>,
}

impl<C> ProtectionLayer<C> {
    /// Protects by what `protection` decides. The closure describes a request; `None` lets it pass uncounted.
    pub fn new<D>(
        protection: Arc<Protection<C>>,
        describe: impl Fn(&Parts) -> D + Send + Sync + 'static,
    ) -> Self
    where
        D: Into<Option<ArrivingRequest>>,
    {
        let describe = Arc::new(move |request: &Parts| describe(request).into());
        let settings = Arc::new(Settings { protection, describe, answer: None });
        ProtectionLayer { settings, step: ProtectionStep::Enter }
    }

    /// The same layer with another response for refused requests. `Retry-After` and the fields about what was shed are
    /// added to it.
    #[must_use]
    pub fn answer_refusals_with(
        self,
        answer: impl Fn(&Parts, &Refusal) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        let Settings { protection, describe, .. } = &*self.settings;
        let (protection, describe) = (Arc::clone(protection), Arc::clone(describe));
        let answer: Option<Arc<AnswerOverload>> = Some(Arc::new(answer));
        let settings = Arc::new(Settings { protection, describe, answer });
        ProtectionLayer { settings, ..self }
    }

    /// The part that holds no slot: the worker shedder, and whether there is enough time. Put it outside of a
    /// [`RateLimitLayer`](crate::RateLimitLayer) and this layer inside: then a request that cannot be served spends
    /// nothing of its caller's budget, and one that waits for its turn holds no slot. Without it, this layer does both.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use axum::{Router, routing::get};
    /// # use http::request::Parts;
    /// # use tidegate_tower_layer::{ArrivingRequest, ProtectionLayer, RateLimitLayer};
    /// # use tidegate_overload::{Protection, ProtectionSettings, SteadyClock};
    /// # use tidegate_engine::Timestamp;
    /// # let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
    /// # let protection = Arc::new(Protection::new(ProtectionSettings::new(64), clock));
    /// # let limits = RateLimitLayer::by_key(
    /// #     "algorithm: token_bucket, unit: second, requests_per_unit: 10",
    /// #     |_: &Parts| None,
    /// # )?;
    /// let protect = ProtectionLayer::new(protection, ArrivingRequest::of);
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(protect.clone())      // 3: the fleet's share, the gate
    ///     .layer(limits)               // 2: the caller's own limits
    ///     .layer(protect.screening()); // 1: the worker shedder
    /// # Ok::<(), tidegate_tower_layer::LimitError>(())
    /// ```
    #[must_use]
    pub fn screening(&self) -> Self {
        ProtectionLayer { step: ProtectionStep::Screen, ..self.clone() }
    }
}

impl<S, C> Layer<S> for ProtectionLayer<C> {
    type Service = ProtectedService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ProtectedService::new(inner, self.clone())
    }
}

clone_fields!([C] ProtectionLayer<C> { settings, step });

debug_fields!([C] ProtectionLayer<C> { step });
