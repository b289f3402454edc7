//! From the head of a request to its route.
//!
//! Together with `decide` this is the part of a request that never waits. The tests are in order of cost: a malformed
//! head, a path without a route, overload, and then the caller's own limits. A request that is refused here allocates
//! only what its response needs.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::request::Parts;
use tidegate_admission::Admission;
use tidegate_answers::Negotiation;
use tidegate_engine::{Clock, CounterStore, Timestamp};
use tidegate_metrics::AnswerKind;
use tidegate_overload::{Category, ScreenedRequest};

use super::access_log::{AccessLog, DetailsWanted, Record};
use super::active_document::ActiveDocument;
use super::decide::{Denial, FirstDecision};
use super::describe::{Description, Identity, RequestView};
use super::encode::{self, Answer, Fault};
use super::forward::Hop;
use super::head::{HeadCheck, Target, examine};
use super::queue::{QUEUE_PATH, QueueId, RESPONSE_SUFFIX};
use super::route::{Route, find_route};
use super::tally::Outcome;

/// A request that was not answered at once.
pub(super) struct PendingRequest {
    pub(super) context: RequestContext,
    pub(super) route: Arc<Route>,
    pub(super) target: Target,
    /// Whether the hop that it came from is trusted.
    pub(super) trusted: bool,
    /// Stored for requests that wait, or are charged afterwards. Boxed, because few requests have it and a pending
    /// request is moved a few times.
    pub(super) description: Option<Box<Description>>,
    /// What its limits decided; [`None`] if the store has to be awaited.
    pub(super) decided: Option<Admission>,
    /// The result of overload protection, if there is any.
    pub(super) screened: Option<(ScreenedRequest, Category)>,
}

/// What a request needs until its end: how to answer it, and where to record its outcome.
pub(super) struct RequestContext {
    pub(super) client_form: Negotiation,
    /// The index of its route; one past the last if it has none.
    pub(super) route_index: usize,
    pub(super) began: Timestamp,
    pub(super) client: Option<IpAddr>,
    /// Its address as the kernel sees it, if the client is connected directly and somebody wants to know.
    pub(super) direct: Option<IpAddr>,
    pub(super) record: Option<Box<Record>>,
    pub(super) count: CountState,
}

/// Whether a request is in the counts of answers. Each is counted once, when it is known how it ended for the limiter:
/// a request that passes its limits may still be shed at the gate, or fail at its upstream.
#[derive(Clone, Copy, Debug)]
pub(super) enum CountState {
    /// Its limits have not decided.
    Undecided,
    /// Its limits admitted it, after this time.
    Admitted { answer: AnswerKind, took: Duration },
    /// It is counted, or belongs to a route that is not.
    Counted,
    /// It was counted and logged when it was put into the queue.
    Queued,
}

impl RequestContext {
    /// The context of the same request in the queue: it is counted and logged only once.
    pub(super) fn for_queue(&self) -> Self {
        let count = CountState::Queued;
        RequestContext { client_form: self.client_form.clone(), record: None, count, ..*self }
    }
}

/// The decoded head of a request.
pub(super) struct DecodedHead<'r> {
    pub(super) head: &'r Parts,
    pub(super) target: &'r Target,
    pub(super) client: Option<IpAddr>,
    pub(super) hop: &'r Hop,
    pub(super) body_bytes: Option<u64>,
}

impl<'r> DecodedHead<'r> {
    /// The head with the request's route and caller.
    pub(super) fn with(&self, route: &'r Route, identity: &'r Identity) -> RequestView<'r> {
        RequestView {
            head: self.head,
            target: self.target,
            client: self.client,
            hop: self.hop,
            route: &route.name,
            identity,
            body_bytes: self.body_bytes,
        }
    }
}

impl<S: CounterStore, C: Clock> ActiveDocument<S, C> {
    /// Decodes and decides a request as far as that is possible without waiting; breaks with a response.
    pub(super) fn receive(
        self: &Arc<Self>,
        hop: &Hop,
        head: &mut Parts,
        body_bytes: Option<u64>,
    ) -> ControlFlow<Answer, PendingRequest> {
        let began = self.state.engine.clock().now();
        let client = self.hops.client(hop.address, &head.headers);
        let is_traced = head.extensions.remove::<DetailsWanted>().is_some();
        let is_logged = self.state.log.as_ref().is_some_and(AccessLog::samples_next);
        // Others get their id when they are forwarded: a refused request that is not logged needs none.
        if is_logged || is_traced {
            self.add_request_id(&mut head.headers);
        }
        let record = (is_logged || is_traced).then(|| {
            let mut record = Box::new(Record::new(head, client, began));
            (record.is_logged, record.is_traced) = (is_logged, is_traced);
            record
        });
        let client_form = Negotiation::of(head);
        let route_index = self.routes.len();
        let count = CountState::Undecided;
        let is_direct = self.state.connections.is_some()
            && hop.peer.named_by.is_none()
            && !self.hops.trusts(hop.address);
        let direct = hop.address.filter(|_| is_direct);
        let mut context =
            RequestContext { client_form, route_index, began, client, direct, record, count };
        let mut target = match examine(head, &self.settings.head, hop.host()) {
            Ok(HeadCheck::Sound(target)) => target,
            Ok(HeadCheck::Capabilities) => {
                let answer = encode::capabilities();
                return ControlFlow::Break(self.finish(context, answer, Outcome::Own));
            }
            Err(fault) => return ControlFlow::Break(self.fault(context, fault)),
        };
        if let Some(id) = head.uri.path().strip_prefix(QUEUE_PATH) {
            let answer = self.queued_state(id, &context.client_form);
            return ControlFlow::Break(self.finish(context, answer, Outcome::Own));
        }
        let (index, route) = match find_route(&self.routes, head, &mut target) {
            Ok(found) => found,
            Err(fault) => return ControlFlow::Break(self.fault(context, fault)),
        };
        context.route_index = index;
        if !route.admits(client) {
            return ControlFlow::Break(self.fault(context, Fault::NetworkDenied));
        }
        let too_large = self.settings.head.body_bytes_max.zip(body_bytes);
        if too_large.is_some_and(|(most, bytes)| bytes > most.bytes()) {
            return ControlFlow::Break(self.fault(context, Fault::BodyTooLarge));
        }
        let decoded = DecodedHead { head, target: &target, client, hop, body_bytes };
        let trusted = self.hops.trusts(hop.address);
        let decision = match self.decide_now(route, &decoded, trusted, &mut context) {
            Ok(decision) => decision,
            Err(Denial::Refusal(refusal)) => match self.render_refusal(&mut context, refusal) {
                Some((answer, outcome)) => {
                    return ControlFlow::Break(self.finish(context, answer, outcome));
                }
                None => self.admit(began),
            },
            Err(Denial::Panic) => self.admit(began),
            Err(Denial::Fault(fault)) => return ControlFlow::Break(self.fault(context, fault)),
        };
        let route = Arc::clone(route);
        let FirstDecision { description, decided, screened, count } = decision;
        context.count = count;
        ControlFlow::Continue(PendingRequest {
            context,
            route,
            target,
            trusted,
            description,
            decided,
            screened,
        })
    }

    /// Gives a request an id, unless it has one or the settings turn ids off.
    pub(super) fn add_request_id(&self, headers: &mut HeaderMap) {
        if self.settings.request_ids {
            self.state.request_ids.add_missing(headers);
        }
    }

    fn queued_state(&self, id: &str, client: &Negotiation) -> Answer {
        let (id, wants_response) = match id.strip_suffix(RESPONSE_SUFFIX) {
            Some(id) => (id, true),
            None => (id, false),
        };
        let id = QueueId::parse(id);
        let found = id.and_then(|id| Some((id, self.state.queue.state(id)?)));
        let answer = found.and_then(|(id, state)| match wants_response {
            true => encode::queued_response(state),
            false => Some(encode::queued_state(id, &state)),
        });
        answer.unwrap_or_else(|| self.answers.fault(Fault::NoRoute, client))
    }
}
