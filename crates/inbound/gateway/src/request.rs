//! A request in flight: waits for its limits, enters the gate, and is forwarded to its upstream.

mod disconnect_guard;
mod queued;
mod upstream_guard;

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;
use tidegate_admission::{Admission, EndGuard, Grant, Refund};
use tidegate_engine::{Clock, CounterStore, LimiterStage, contain, contain_future};
use tidegate_overload::{Category, Entry, Pass, Refusal, SteadyClock};
use tidegate_server::ResponseDeadline;
use tokio::time::Instant;

use super::active_document::ActiveDocument;
use super::body::{BodyProgress, BodyState, GatewayBody, RequestBody};
use super::decode::{DecodedHead, PendingRequest};
use super::encode::{Answer, Fault};
use super::forward::{Hop, ProvenanceContext, UpstreamRequest, remove_hop_by_hop, tunnel};
use super::queue::ShedRequest;
use super::route::Route;
use super::upstream::{SendError, SendOptions, UpstreamBody};
use disconnect_guard::DisconnectGuard;
use upstream_guard::UpstreamGuard;

/// A response up to this size fits into buffers on its way, so that its client cannot stall.
const BUFFERED_BYTES: u64 = 16 * 1024;

/// A request in flight. Boxed from the start: a future moves its arguments, and then holds them twice.
pub(super) struct InFlightRequest {
    pub(super) hop: Arc<Hop>,
    pub(super) pending: PendingRequest,
    pub(super) head: Parts,
    pub(super) body: RequestBody,
    pub(super) progress: Option<Arc<BodyProgress>>,
}

/// A request that is inside the gate: the pass, and the category that it entered with.
#[derive(Default)]
struct GatePass {
    pass: Option<Pass<SteadyClock>>,
    category: Option<Category>,
}

impl<S: CounterStore, C: Clock> ActiveDocument<S, C> {
    /// Takes a request to its response.
    pub(super) async fn handle(self: Arc<Self>, mut request: Box<InFlightRequest>) -> Answer {
        // Rare futures are boxed: otherwise the future of every request would have their size.
        let admission = match request.pending.decided.take() {
            Some(Admission::Pass(grant)) => Admission::Pass(grant),
            decided => Box::pin(self.await_admission(decided, &mut request)).await,
        };
        match admission {
            Admission::Pass(grant) => self.enter_and_forward(request, grant).await,
            Admission::WaitInLine(wait) => Box::pin(self.enqueue(request, wait)).await,
            Admission::Refused(refusal) => {
                match self.render_refusal(&mut request.pending.context, refusal) {
                    Some((answer, outcome)) => {
                        self.finish(request.pending.context, answer, outcome)
                    }
                    None => self.enter_and_forward(request, Grant::unlimited()).await,
                }
            }
        }
    }

    /// Waits for the store, or in line.
    async fn await_admission(
        &self,
        decided: Option<Admission>,
        request: &mut InFlightRequest,
    ) -> Admission {
        let InFlightRequest { pending, head, .. } = request;
        let PendingRequest { context, route, description, .. } = pending;
        let Some(description) = description else { return Admission::Pass(Grant::unlimited()) };
        let guard = DisconnectGuard::new(self, context);
        let patience = self.client_patience(head, route, Some(Instant::now()));
        let pipeline = self.pipeline();
        let decision = pipeline.decide(decided, &description.described, patience);
        let admission = contain_future(LimiterStage::Decide, decision).await;
        guard.disarm(context);
        match &admission {
            Some(Admission::Pass(grant)) => context.count = self.admitted(grant, context.began),
            Some(Admission::WaitInLine(_) | Admission::Refused(_)) => {}
            None => context.count = self.failed_open(context.began),
        }
        admission.unwrap_or_else(|| Admission::Pass(Grant::unlimited()))
    }

    /// Waits for the request's turn, enters the gate, and forwards it.
    async fn enter_and_forward(
        self: &Arc<Self>,
        mut request: Box<InFlightRequest>,
        mut grant: Grant,
    ) -> Answer {
        if grant.turn.is_some() {
            let guard = DisconnectGuard::new(&**self, &mut request.pending.context);
            let turn = contain_future(LimiterStage::Decide, grant.wait_for_turn());
            Box::pin(turn).await;
            guard.disarm(&mut request.pending.context);
        }
        let entered = self.enter_gate(&mut request.pending).await;
        self.forward_entered(request, grant, entered).await
    }

    /// Forwards a request that is inside the gate, and refunds one that was shed.
    async fn forward_entered(
        self: &Arc<Self>,
        mut request: Box<InFlightRequest>,
        mut grant: Grant,
        entered: Result<GatePass, Refusal>,
    ) -> Answer {
        let pass = match entered {
            Ok(pass) => pass,
            Err(refusal) => {
                let refund = std::mem::take(&mut grant.refund);
                contain(LimiterStage::Record, || self.pay_refund(&request, refund));
                let refusal = self.shed(&refusal);
                match self.render_refusal(&mut request.pending.context, refusal) {
                    Some((mut answer, outcome)) => {
                        answer.extensions_mut().insert(ShedRequest);
                        return self.finish(request.pending.context, answer, outcome);
                    }
                    None => GatePass::default(),
                }
            }
        };
        self.forward_upstream(request, grant, pass).await
    }

    /// Enters the gate, if there is one. A request whose limiter code panics passes it by.
    async fn enter_gate(&self, pending: &mut PendingRequest) -> Result<GatePass, Refusal> {
        let entered = contain_future(LimiterStage::Decide, self.try_enter_gate(pending)).await;
        entered.unwrap_or_else(|| Ok(GatePass::default()))
    }

    async fn try_enter_gate(&self, pending: &mut PendingRequest) -> Result<GatePass, Refusal> {
        let (Some(protection), Some((screened, category))) =
            (&self.state.protection, pending.screened)
        else {
            return Ok(GatePass::default());
        };
        let pass = match protection.try_enter(screened) {
            Entry::Entered(pass) => pass,
            Entry::Refused(refusal) => return Err(refusal),
            Entry::Queued(queued) => {
                let guard = DisconnectGuard::new(self, &mut pending.context);
                let entered = queued.wait().await;
                guard.disarm(&mut pending.context);
                entered?
            }
        };
        Ok(GatePass { pass: Some(pass), category: Some(category) })
    }

    /// Refunds a request that was shed. Its description is usually made a second time: storing it would cost all the
    /// requests that are served.
    #[cold]
    fn pay_refund(&self, request: &InFlightRequest, refund: Refund) {
        if refund.is_nothing() {
            return;
        }
        let InFlightRequest { hop, pending, head, body, .. } = request;
        let PendingRequest { context, route, target, description, .. } = pending;
        match description {
            Some(description) => refund.pay(&description.described, self.limits()),
            None => {
                let body_bytes = body.size_hint().exact();
                let decoded = DecodedHead { head, target, client: context.client, hop, body_bytes };
                // Described before without a fault.
                if let Ok(description) = self.describe_again(route, &decoded, context.began) {
                    refund.pay(&description.described, self.limits());
                }
            }
        }
    }

    /// Forwards a request to its upstream, and returns the response.
    async fn forward_upstream(
        self: &Arc<Self>,
        mut request: Box<InFlightRequest>,
        grant: Grant,
        GatePass { pass, category }: GatePass,
    ) -> Answer {
        let trusted = request.pending.trusted;
        match category {
            Some(category) => self.categories.set_field(&mut request.head.headers, category),
            None => self.categories.remove_untrusted_field(&mut request.head.headers, trusted),
        }
        self.add_request_id(&mut request.head.headers);
        let body = std::mem::replace(&mut request.body, RequestBody::empty());
        let has_body = !body.is_empty();
        let PendingRequest { target, route, .. } = &request.pending;
        let from = ProvenanceContext { provenance: &self.provenance, hop: &request.hop, trusted };
        let mut outgoing = UpstreamRequest::prepare(&mut request.head, body, target, route, from);
        let InFlightRequest { pending, progress, .. } = *request;
        let PendingRequest { context, route, description, .. } = pending;
        let timeouts = &route.timeouts;
        let end = timeouts.total.and_then(|total| Instant::now().checked_add(total));
        let options = SendOptions { timeouts, end, progress: progress.as_ref() };
        let mut guard = Box::new(UpstreamGuard::new(self, context, grant.slots, pass));
        guard.defer(description, progress.clone());
        let Some(group) = self.upstreams.get(route.upstream_group) else {
            return guard.fault(Fault::UpstreamUnreachable);
        };
        let UpstreamRequest { exchange, adapter, upgrade } = &mut outgoing;
        if let Err(error) = group.send(exchange, &options, adapter).await {
            tracing::debug!(route = &*route.name, error = &error as &dyn StdError, "failed");
            let fault = fault_of(&error);
            if fault == Fault::OutOfResources {
                self.state.counters.log_lack(&error, Instant::now());
            }
            return guard.fault(fault);
        }
        let Some((answer, mut lease)) = exchange.answered.take() else {
            return guard.fault(Fault::UpstreamBroken);
        };
        let (answer, body) = answer.into_parts();
        let sent = progress.as_ref().is_some_and(|body| body.state() == BodyState::Complete);
        let body = lease.take_body(&answer, body, !has_body || sent);
        let mut answer = Response::from_parts(answer, body);
        contain(LimiterStage::Record, || guard.charge_reported(answer.headers_mut()));
        guard.answered(answer.status(), lease);
        guard.attach_details(&mut answer);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return switch_protocols(guard, answer, upgrade.take(), &route);
        }
        remove_hop_by_hop(answer.headers_mut());
        route.response_edits.apply(answer.headers_mut());
        contain(LimiterStage::Render, || grant.fields.add_to(answer.headers_mut()));
        *answer.version_mut() = Version::HTTP_11;
        if let Some(end) = end {
            // Also ends a response that its client does not read: a timer in the body would not run.
            answer.extensions_mut().insert(ResponseDeadline(end));
        }
        if answer.body().size_hint().upper().is_none_or(|bytes| bytes > BUFFERED_BYTES)
            && let Some(stall) = guard.watch_stall()
        {
            answer.extensions_mut().insert(stall);
        }
        let slots = guard.take_slots();
        let guard = EndGuard::new(guard);
        answer.map(|body| GatewayBody::of_upstream(body, timeouts.idle, end, guard, slots))
    }
}

/// Both sides switch to another protocol: from now on the gateway copies bytes.
fn switch_protocols<S, C>(
    guard: Box<UpstreamGuard<S, C>>,
    answer: Response<UpstreamBody>,
    client: Option<OnUpgrade>,
    route: &Route,
) -> Answer
where
    S: CounterStore,
    C: Clock,
{
    // An upstream that switches without being asked is broken.
    let Some(client) = client else { return guard.fault(Fault::UpstreamBroken) };
    let (mut head, body) = answer.into_parts();
    let Some(upstream) = head.extensions.remove::<OnUpgrade>() else {
        return guard.fault(Fault::UpstreamBroken);
    };
    drop(body);
    let protocol = head.headers.get(UPGRADE).cloned();
    remove_hop_by_hop(&mut head.headers);
    route.response_edits.apply(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    guard.count_tunnel();
    tunnel(client, upstream, route.timeouts.idle, guard);
    Response::from_parts(head, GatewayBody::own(Bytes::new()))
}

fn fault_of(error: &SendError) -> Fault {
    match error {
        SendError::Connect(error) if error.is_local() => Fault::OutOfResources,
        SendError::Connect(_) => Fault::UpstreamUnreachable,
        SendError::Broken(_) | SendError::Framing => Fault::UpstreamBroken,
        SendError::Timeout => Fault::UpstreamTimeout,
        SendError::Body(state) => fault_of_body(*state),
    }
}

const fn fault_of_body(state: BodyState) -> Fault {
    match state {
        BodyState::TooSlow => Fault::BodyTooSlow,
        BodyState::Broken => Fault::BodyBroken,
        BodyState::TooLarge | BodyState::Incomplete | BodyState::Complete => Fault::BodyTooLarge,
    }
}
