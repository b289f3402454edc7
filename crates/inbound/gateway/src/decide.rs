//! Deciding a request: shed, then limit. The gate and the upstream follow in `request`; the crate `tidegate-admission`
//! has the whole order and its reasons.

#![expect(
    clippy::result_large_err,
    reason = "a refusal is moved once; a box would be an allocation per refusal"
)]

use std::borrow::Cow;
use std::time::Duration;

use http::request::Parts;
use tidegate_admission::{Admission, DomainEngine, Grant, Patience, Pipeline, Waiter};
use tidegate_answers::Refusal;
use tidegate_engine::{Clock, CounterStore, LimiterStage, Nanos, Timestamp, contain};
use tidegate_overload::{Arrival, Category, ScreenedRequest};
use tokio::time::Instant;

use super::active_document::ActiveDocument;
use super::decode::{CountState, DecodedHead, RequestContext};
use super::describe::{Description, Identity, RequestView};
use super::encode::Fault;
use super::route::Route;

/// What is known of a request after the first decision.
pub(super) struct FirstDecision {
    pub(super) description: Option<Box<Description>>,
    /// [`None`] if the store has to be awaited.
    pub(super) decided: Option<Admission>,
    pub(super) screened: Option<(ScreenedRequest, Category)>,
    pub(super) count: CountState,
}

/// Why a request is not served.
pub(super) enum Denial {
    /// A limiter refuses it.
    Refusal(Refusal),
    /// It cannot be served as it is.
    Fault(Fault),
    /// Limiter code panicked, so that the request is admitted.
    Panic,
}

impl FirstDecision {
    fn unlimited(screened: Option<(ScreenedRequest, Category)>, count: CountState) -> Self {
        let decided = Some(Admission::Pass(Grant::unlimited()));
        FirstDecision { description: None, decided, screened, count }
    }
}

impl<S: CounterStore, C: Clock> ActiveDocument<S, C> {
    /// Sheds or limits a request without waiting.
    ///
    /// # Errors
    /// Why it is not served, or that limiter code panicked.
    pub(super) fn decide_now(
        &self,
        route: &Route,
        decoded: &DecodedHead<'_>,
        trusted: bool,
        context: &mut RequestContext,
    ) -> Result<FirstDecision, Denial> {
        let decide = || self.try_decide_now(route, decoded, trusted, context);
        contain(LimiterStage::Decide, decide).unwrap_or(Err(Denial::Panic))
    }

    /// The decision for a request whose limiter code panicked: it is admitted.
    pub(super) fn admit(&self, began: Timestamp) -> FirstDecision {
        FirstDecision::unlimited(None, self.failed_open(began))
    }

    fn try_decide_now(
        &self,
        route: &Route,
        decoded: &DecodedHead<'_>,
        trusted: bool,
        context: &mut RequestContext,
    ) -> Result<FirstDecision, Denial> {
        let began = context.began;
        if route.exempt {
            return Ok(FirstDecision::unlimited(None, CountState::Counted));
        }
        let mut needs = route.describer.needs() | self.identities.needs();
        if self.state.protection.is_some() || context.record.is_some() || context.direct.is_some() {
            needs = needs | self.categories.needs();
        }
        let identify = || self.identities.identify(needs, decoded.head, began);
        let identity = contain(LimiterStage::Describe, identify).ok_or(Denial::Panic)?;
        let identity = identity.map_err(Denial::Fault)?;
        let seen = decoded.with(route, &identity);
        if let Some(record) = &mut context.record {
            record.category = Some(self.categories.categorize(&seen, trusted).0);
            record.caller = self.categories.caller_name(&seen);
        }
        self.report_identity(&seen, &identity, trusted, context);
        let screened = self.screen(&seen, trusted).map_err(Denial::Refusal)?;
        if route.describer.is_empty() {
            let count = self.admitted(&Grant::unlimited(), began);
            return Ok(FirstDecision::unlimited(screened, count));
        }
        let description = contain(LimiterStage::Describe, || route.describer.describe(&seen));
        let description = description.ok_or(Denial::Panic)?.map_err(Denial::Fault)?;
        let decided = if description.described.is_empty() {
            Some(Admission::Pass(Grant::unlimited()))
        } else {
            let patience = self.client_patience(decoded.head, route, None);
            self.pipeline().decide_now(&description.described, patience)
        };
        let count = match &decided {
            Some(Admission::Pass(grant)) => self.admitted(grant, began),
            Some(Admission::WaitInLine(_) | Admission::Refused(_)) | None => CountState::Undecided,
        };
        if let Some(Admission::Refused(refusal)) = decided {
            return Err(Denial::Refusal(refusal));
        }
        let passes = matches!(count, CountState::Admitted { .. });
        let is_stored = !passes || !description.deferred.is_empty();
        let description = is_stored.then(|| Box::new(description.into_owned()));
        Ok(FirstDecision { description, decided, screened, count })
    }

    /// Reports who is behind the address of a connection.
    fn report_identity(
        &self,
        seen: &RequestView<'_>,
        identity: &Identity,
        trusted: bool,
        context: &RequestContext,
    ) {
        let (Some(address), Some(observer)) = (context.direct, &self.state.connections) else {
            return;
        };
        let is_critical = self.categories.categorize(seen, trusted).0 == Category::Critical;
        let caller = identity.number();
        if caller.is_some() || is_critical {
            observer.identified(address, caller, is_critical);
        }
    }

    /// Describes a request again whose description was not stored.
    pub(super) fn describe_again(
        &self,
        route: &Route,
        decoded: &DecodedHead<'_>,
        began: Timestamp,
    ) -> Result<Description, Fault> {
        let identity = self.identities.identify(route.describer.needs(), decoded.head, began)?;
        route.describer.describe(&decoded.with(route, &identity)).map(Cow::into_owned)
    }

    /// The worker shedder, and whether there is enough time.
    fn screen(
        &self,
        seen: &RequestView<'_>,
        trusted: bool,
    ) -> Result<Option<(ScreenedRequest, Category)>, Refusal> {
        let Some(protection) = &self.state.protection else { return Ok(None) };
        let (category, timeout) = self.categories.categorize(seen, trusted);
        let deadline = timeout.map(|timeout| protection.clock().now().after(Nanos::from(timeout)));
        let caller = self.categories.caller(seen);
        match protection.screen(Arrival::Counted { category, caller, deadline }) {
            Ok(screened) => Ok(Some((screened, category))),
            Err(refusal) => Err(self.shed(&refusal)),
        }
    }

    /// A refusal of overload protection as plain data.
    pub(super) fn shed(&self, refusal: &tidegate_overload::Refusal) -> Refusal {
        Refusal::of_overload(refusal, self.categories.names_shed())
    }

    /// The caller's own limits.
    pub(super) fn pipeline(&self) -> Pipeline<'_, S, C> {
        Pipeline {
            limits: self.limits(),
            room: &self.state.waiting,
            delay: &self.settings.delay,
            headers: &self.settings.headers,
            headers_on: self.settings.headers_on,
            hold_time: Some(&self.state.hold_time),
            refunds: self.state.protection.is_some(),
        }
    }

    pub(super) fn limits(&self) -> DomainEngine<'_, S, C> {
        DomainEngine { engine: &self.state.engine, domain: &self.settings.domain }
    }

    /// A client waits as long as the settings, its route and its own timeout allow.
    pub(super) fn client_patience<'p>(
        &'p self,
        head: &'p Parts,
        route: &'p Route,
        since: Option<Instant>,
    ) -> Patience<impl Fn() -> Duration + Copy + 'p> {
        let wait_max = move || {
            let total = route.timeouts.total.unwrap_or(Duration::MAX);
            let own = self.categories.timeout(head).unwrap_or(Duration::MAX);
            self.settings.delay.wait_max.min(total).min(own)
        };
        Patience { waiter: Waiter::ClientOrQueue, wait_max, since }
    }

    /// A queued request waits as long as the queue allows.
    pub(super) fn queue_patience(&self) -> Patience<impl Fn() -> Duration + Copy + '_> {
        let wait_max = || self.settings.queue.wait_max;
        Patience { waiter: Waiter::Queue, wait_max, since: Some(Instant::now()) }
    }
}
