//! Queued requests (`when_over: queue`): stored, processed at their turn, recovered after a restart.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, RETRY_AFTER, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::service::Service as _;
use tidegate_admission::{Grant, LineWait};
use tidegate_engine::{Clock, CounterStore};
use tidegate_overload::{Caller, Refusal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{GatePass, InFlightRequest, fault_of_body};
use crate::active_document::ActiveDocument;
use crate::body::RequestBody;
use crate::decode::{DecodedHead, PendingRequest};
use crate::encode::{self, Answer, Fault};
use crate::forward::{Hop, remove_hop_by_hop};
use crate::queue::{
    QueueId, QueuedRequest, QueuedResponse, QueuedState, RecoveredRequest, ShedRequest,
};
use crate::service::Gateway;
use crate::tally::Outcome;

/// How often claims on stored requests are renewed and those of an earlier process are looked for.
const RECOVER_EVERY: Duration = Duration::from_secs(10);
/// When a recovered request that was shed is tried again, if its refusal says nothing.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

impl<S, C> ActiveDocument<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Stores a request, and answers where its state can be read.
    pub(super) async fn enqueue(
        self: Arc<Self>,
        request: Box<InFlightRequest>,
        wait: Box<LineWait>,
    ) -> Answer {
        if request.head.extensions.get::<RecoveredRequest>().is_some() {
            return self.process_recovered(request, wait).await;
        }
        let InFlightRequest { hop, mut pending, head, body, progress } = *request;
        let limited = Limited::new(body, self.settings.queue.body_bytes_max.to_usize());
        let Ok(whole) = limited.collect().await else {
            let state = progress.map(|progress| progress.state());
            let fault = state.map_or(Fault::BodyTooLarge, fault_of_body);
            return self.fault(pending.context, fault);
        };
        let caller = self.caller_of(&hop, &pending, &head);
        let expected = self.state.waiting.lines.expected(&wait);
        let request = QueuedRequest { head, body: whole.to_bytes(), caller, peer: hop.peer };
        let Ok(id) = self.state.queue.push(request).await else {
            let Some(description) = &pending.description else {
                return self.fault(pending.context, Fault::BodyTooLarge);
            };
            let refusal = self.pipeline().give_up(*wait, &description.described).await;
            let cause = refusal.cause;
            let (answer, outcome) = self
                .render_refusal(&mut pending.context, refusal)
                // The body has been read, so that the request cannot be forwarded.
                .unwrap_or_else(|| (encode::bare_refusal(), Outcome::Refused(cause)));
            return self.finish(pending.context, answer, outcome);
        };
        let context = pending.context.for_queue();
        let answer = self.finish(pending.context, encode::queued(id, expected), Outcome::Kept);
        // The client has been answered, so its deadline does not apply.
        let screened =
            pending.screened.map(|(screened, category)| (screened.without_deadline(), category));
        let pending = PendingRequest { context, screened, ..pending };
        tokio::spawn(Arc::clone(&self).process_queued(hop, pending, wait, id));
        answer
    }

    /// The caller of a request, who has a share of the queue.
    fn caller_of(&self, hop: &Hop, pending: &PendingRequest, head: &Parts) -> Caller {
        let PendingRequest { context, route, target, .. } = pending;
        let needs = self.categories.needs();
        let identity = self.identities.identify(needs, head, context.began).unwrap_or_default();
        let decoded = DecodedHead { head, target, client: context.client, hop, body_bytes: None };
        self.categories.caller(&decoded.with(route, &identity))
    }

    /// Processes a queued request when its limits admit it.
    async fn process_queued(
        self: Arc<Self>,
        hop: Arc<Hop>,
        mut pending: PendingRequest,
        wait: Box<LineWait>,
        id: QueueId,
    ) {
        let turn = self.await_turn(&mut pending, wait).await;
        let taken = turn.and_then(|turn| Some((turn, self.state.queue.take(id)?)));
        let Some(((grant, entered), QueuedRequest { head, body, .. })) = taken else {
            self.state.counters.kept.count(Outcome::Expired);
            return self.state.queue.settle(id, QueuedState::Expired).await;
        };
        let body = RequestBody::whole(body);
        let request = Box::new(InFlightRequest { hop, pending, head, body, progress: None });
        let answer = self.forward_entered(request, grant, entered).await;
        let bytes_max = self.settings.queue.response_bytes_max.to_usize();
        let response = read_response(answer, bytes_max).await;
        self.state.queue.settle(id, QueuedState::Done(response)).await;
    }

    /// Processes a request of an earlier process that is over its limit again.
    async fn process_recovered(
        self: Arc<Self>,
        mut request: Box<InFlightRequest>,
        wait: Box<LineWait>,
    ) -> Answer {
        match self.await_turn(&mut request.pending, wait).await {
            Some((grant, entered)) => self.forward_entered(request, grant, entered).await,
            None => {
                let mut answer = encode::bare_refusal();
                answer.extensions_mut().insert(ShedRequest);
                self.finish(request.pending.context, answer, Outcome::Expired)
            }
        }
    }

    /// Waits until the limits and the gate let a request in; [`None`] if that takes too long.
    async fn await_turn(
        &self,
        pending: &mut PendingRequest,
        wait: Box<LineWait>,
    ) -> Option<(Grant, Result<GatePass, Refusal>)> {
        let end = Instant::now().checked_add(self.settings.queue.wait_max);
        let mut grant = match &pending.description {
            None => Grant::unlimited(),
            Some(description) => {
                let patience = self.queue_patience();
                self.pipeline().wait_in_line(*wait, &description.described, patience).await.ok()?
            }
        };
        // It stays in the queue until its turn.
        grant.wait_for_turn().await;
        let entered = self.enter_gate_until(pending, end).await;
        Some((grant, entered))
    }

    /// Enters the gate with a queued request. No client comes back for it, so the gateway retries as a client would.
    async fn enter_gate_until(
        &self,
        pending: &mut PendingRequest,
        end: Option<Instant>,
    ) -> Result<GatePass, Refusal> {
        loop {
            let refusal = match self.enter_gate(pending).await {
                Ok(entered) => return Ok(entered),
                Err(refusal) => refusal,
            };
            let again = Instant::now().checked_add(refusal.retry_after.into());
            match again.filter(|again| Some(*again) <= end) {
                Some(again) => sleep_until(again).await,
                None => return Err(refusal),
            }
        }
    }
}

impl<S, C> Gateway<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Keeps the claims on stored requests, and processes those of an earlier process.
    pub(crate) async fn recover_queued(&self) {
        let mut beats = interval(RECOVER_EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tasks = JoinSet::new();
        loop {
            beats.tick().await;
            let state = Arc::clone(&self.current.active.load().state);
            for (id, request) in state.queue.recover().await {
                let gateway = self.for_peer(&request.peer);
                tasks.spawn(async move { gateway.run_recovered(id, request).await });
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Sends a recovered request through the gateway like a new one, until it is not shed.
    async fn run_recovered(&self, id: QueueId, request: QueuedRequest) {
        let document = self.current.active.load_full();
        let settings = document.settings.queue;
        let end = Instant::now().checked_add(settings.wait_max);
        let QueuedRequest { mut head, body, .. } = request;
        head.extensions.insert(RecoveredRequest);
        let state = loop {
            let request = Request::from_parts(head.clone(), Full::new(body.clone()));
            let Ok(answer) = self.call(request).await;
            if answer.extensions().get::<ShedRequest>().is_none() {
                break QueuedState::Done(
                    read_response(answer, settings.response_bytes_max.to_usize()).await,
                );
            }
            let again = Instant::now().checked_add(retry_after(answer.headers()));
            match again.filter(|again| Some(*again) <= end) {
                Some(again) => sleep_until(again).await,
                None => break QueuedState::Expired,
            }
        };
        document.state.queue.settle(id, state).await;
    }
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(RETRY_AFTER_DEFAULT, |seconds: u64| Duration::from_secs(seconds.max(1)))
}

/// Reads a response to its end, so that the upstream's is not cut off, and keeps the beginning.
async fn read_response(answer: Answer, bytes_max: usize) -> QueuedResponse {
    let (head, mut body) = answer.into_parts();
    let mut headers = head.headers;
    remove_hop_by_hop(&mut headers);
    headers.remove(SET_COOKIE);
    headers.remove(CONTENT_LENGTH);
    let mut kept = BytesMut::new();
    let mut truncated = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            truncated = true;
            break;
        };
        let Ok(data) = frame.into_data() else { continue };
        let room = bytes_max.saturating_sub(kept.len());
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
        truncated |= data.len() > room;
    }
    let body: Bytes = kept.freeze();
    QueuedResponse { status: head.status, headers, body, truncated }
}
