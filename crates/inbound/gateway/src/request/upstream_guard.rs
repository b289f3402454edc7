//! A request while its upstream works on it.
//!
//! Everything that the request holds is released at its end, however it ends: the last byte of the response, a fault,
//! or a client that disconnects.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, Response, StatusCode};
use tidegate_admission::{BodyEnd, HeldSlots, OnBodyEnd, RequestDescription};
use tidegate_engine::{Clock, CounterStore, Timestamp, Verb};
use tidegate_overload::{Completion, Pass, SteadyClock};
use tidegate_server::StallFlag;
use tokio::runtime::Handle;

use crate::active_document::ActiveDocument;
use crate::body::BodyProgress;
use crate::decode::RequestContext;
use crate::describe::Description;
use crate::encode::{Answer, Fault};
use crate::outcome::RequestEnd;
use crate::tally::Outcome;
use crate::upstream::ConnectionLease;

/// A request while its upstream works on it.
pub(super) struct UpstreamGuard<S: CounterStore, C: Clock> {
    document: Arc<ActiveDocument<S, C>>,
    /// Taken when the end is recorded.
    context: Option<RequestContext>,
    began: Timestamp,
    slots: Option<HeldSlots>,
    pass: Option<Pass<SteadyClock>>,
    lease: Option<ConnectionLease>,
    status: StatusCode,
    /// What is charged when the cost is known.
    deferred: Option<Box<Description>>,
    progress: Option<Arc<BodyProgress>>,
    /// Whether the client has stalled, if its response is long enough for that.
    stall: Option<StallFlag>,
}

impl<S: CounterStore, C: Clock> UpstreamGuard<S, C> {
    pub(super) fn new(
        document: &Arc<ActiveDocument<S, C>>,
        context: RequestContext,
        slots: Option<HeldSlots>,
        pass: Option<Pass<SteadyClock>>,
    ) -> Self {
        document.state.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        UpstreamGuard {
            document: Arc::clone(document),
            began: context.began,
            context: Some(context),
            slots,
            pass,
            lease: None,
            status: StatusCode::OK,
            deferred: None,
            progress: None,
            stall: None,
        }
    }

    /// A flag that the server sets if the client stalls; `None` if no one waits for the gate.
    pub(super) fn watch_stall(&mut self) -> Option<StallFlag> {
        self.stall =
            self.pass.as_ref().filter(|pass| pass.holds_slot()).map(|_| StallFlag::default());
        self.stall.clone()
    }

    /// How a request ends whose response the client did not take.
    fn dropped(&self) -> Completion {
        match &self.stall {
            Some(stall) if stall.is_set() => Completion::Stalled,
            _ => Completion::Abandoned,
        }
    }

    /// Charges the deferred costs of this description later.
    pub(super) fn defer(
        &mut self,
        description: Option<Box<Description>>,
        progress: Option<Arc<BodyProgress>>,
    ) {
        self.deferred = description.filter(|description| !description.deferred.is_empty());
        self.progress = progress;
    }

    /// The upstream has answered.
    pub(super) fn answered(&mut self, status: StatusCode, lease: ConnectionLease) {
        self.status = status;
        if let Some(context) = &mut self.context {
            if let Some(record) = &mut context.record {
                record.upstream = Some(lease.host().origin().authority().clone());
            }
            self.document.count_admission(&mut context.count);
        }
        self.lease = Some(lease);
    }

    /// Attaches the details of the request to the upstream's response, if they are wanted.
    pub(super) fn attach_details<B>(&self, answer: &mut Response<B>) {
        if let Some(context) = &self.context {
            self.document.attach_details(context, Outcome::Served, answer);
        }
    }

    /// Charges the costs that the response reports, and removes their fields.
    pub(super) fn charge_reported(&self, headers: &mut HeaderMap) {
        let Some(description) = &self.deferred else { return };
        for deferred in &description.deferred {
            let rest = deferred.due_by_response(headers);
            self.charge(&description.described, deferred.descriptor, rest);
        }
        for deferred in &description.deferred {
            if let Some(field) = deferred.field() {
                headers.remove(field);
            }
        }
    }

    pub(super) fn count_tunnel(&self) {
        self.document.state.counters.tunnels.fetch_add(1, Ordering::Relaxed);
    }

    /// The caller's slots, which are held until the client has taken the response.
    pub(super) fn take_slots(&mut self) -> Option<HeldSlots> {
        let slots = self.slots.take()?;
        let (document, began) = (Arc::clone(&self.document), self.began);
        Some(HeldSlots::new(TimedSlots { slots: Some(slots), document, began }))
    }

    /// Whether the client failed to send its body, which is no failure of the upstream.
    fn has_failed_body(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.state().is_failure())
    }

    /// Ends the request without a response of the upstream.
    pub(super) fn fault(mut self, fault: Fault) -> Answer {
        let failed = fault.status().is_server_error();
        self.release(if failed { Completion::Failed } else { Completion::Abandoned });
        let context = self.context.take().expect("a request is answered once");
        self.document.fault(context, fault)
    }

    /// Releases the pass and the slots, and charges for the body.
    fn release(&mut self, ending: Completion) {
        if let Some(pass) = self.pass.take() {
            let state = &self.document.state;
            let now = state.protection.as_ref().map(|protection| protection.clock().now());
            pass.finish(now.unwrap_or(self.began), ending);
        }
        drop(self.take_slots());
        if let (Some(description), Some(progress)) = (self.deferred.take(), &self.progress) {
            let bytes = progress.bytes();
            for deferred in &description.deferred {
                self.charge(
                    &description.described,
                    deferred.descriptor,
                    deferred.due_for_body(bytes),
                );
            }
        }
    }

    /// Charges more of one descriptor, on a task that no request waits for. Units over the limit are not charged: the
    /// request cannot be refused any more.
    fn charge(&self, description: &RequestDescription, descriptor: usize, rest: u64) {
        // No charges are made while the runtime shuts down.
        let (Ok(runtime), true) = (Handle::try_current(), rest > 0) else { return };
        let document = Arc::clone(&self.document);
        let only = description.only(descriptor, rest);
        runtime.spawn(async move { document.limits().apply(Verb::Take, &only).await });
    }
}

/// Slots that count for how long they are held.
struct TimedSlots<S: CounterStore, C: Clock> {
    slots: Option<HeldSlots>,
    document: Arc<ActiveDocument<S, C>>,
    began: Timestamp,
}

impl<S: CounterStore, C: Clock> Drop for TimedSlots<S, C> {
    fn drop(&mut self) {
        self.slots = None;
        let state = &self.document.state;
        state.hold_time.add(state.engine.clock().now().since(self.began));
    }
}

impl<S: CounterStore, C: Clock> OnBodyEnd for UpstreamGuard<S, C> {
    fn ended(mut self: Box<Self>, end: BodyEnd, bytes: u64) {
        let end = match end {
            BodyEnd::Broken if self.has_failed_body() => BodyEnd::Dropped,
            end => end,
        };
        self.release(match end {
            BodyEnd::Complete if self.status.is_server_error() => Completion::Failed,
            BodyEnd::Complete => Completion::Succeeded,
            BodyEnd::Broken => Completion::Failed,
            BodyEnd::Dropped => self.dropped(),
        });
        let lease = self.lease.take();
        match end {
            BodyEnd::Complete => lease.into_iter().for_each(ConnectionLease::return_to_pool),
            BodyEnd::Broken => {
                self.document.state.counters.broken.fetch_add(1, Ordering::Relaxed);
                lease.iter().for_each(ConnectionLease::record_broken);
            }
            BodyEnd::Dropped => {}
        }
        if let Some(context) = self.context.take() {
            let outcome = Outcome::Served;
            self.document.record(context, RequestEnd { status: self.status, bytes, outcome });
        }
    }
}

impl<S: CounterStore, C: Clock> Drop for UpstreamGuard<S, C> {
    fn drop(&mut self) {
        self.release(self.dropped());
        if let Some(mut context) = self.context.take() {
            self.document.count_admission(&mut context.count);
            self.document.disconnected(context);
        }
        // Last: a reader that sees no request in flight also sees how they ended.
        self.document.state.counters.in_flight.fetch_sub(1, Ordering::Release);
    }
}
