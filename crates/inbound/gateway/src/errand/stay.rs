//! A request while it is with its upstream.
//!
//! Whatever it holds is given back at its end, however that comes about: the last byte of the
//! answer, a fault, a client that is gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, StatusCode};
use tidegate_engine::{Clock, CounterStore, Request, Timestamp, Verb};
use tidegate_overload::{Completion, Pass, SteadyClock};
use tokio::runtime::Handle;

use super::CLIENT_GONE;
use crate::active_document::ActiveDocument;
use crate::answers::{Answer, Fault};
use crate::body::{End, OnEnd, Progress};
use crate::describe::Description;
use crate::tally::Outcome;
use crate::upstream::ConnectionLease;
use crate::visit::Passport;
use tidegate_admission::Described;
use tidegate_admission::HeldSlots;

/// A request while it is with its upstream.
pub(super) struct Stay<S: CounterStore, C: Clock> {
    shared: Arc<ActiveDocument<S, C>>,
    /// Taken when its end is noted.
    passport: Option<Passport>,
    began: Timestamp,
    slots: Option<HeldSlots>,
    pass: Option<Pass<SteadyClock>>,
    lease: Option<ConnectionLease>,
    status: StatusCode,
    /// What is charged when more is known.
    owed: Option<Box<Description>>,
    progress: Option<Arc<Progress>>,
}

impl<S: CounterStore, C: Clock> Stay<S, C> {
    pub(super) fn begin(
        shared: &Arc<ActiveDocument<S, C>>,
        passport: Passport,
        slots: Option<HeldSlots>,
        pass: Option<Pass<SteadyClock>>,
    ) -> Self {
        shared.state.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        Stay {
            shared: Arc::clone(shared),
            began: passport.began,
            passport: Some(passport),
            slots,
            pass,
            lease: None,
            status: StatusCode::OK,
            owed: None,
            progress: None,
        }
    }

    /// Something is charged afterwards.
    pub(super) fn owe(&mut self, owed: Option<Box<Description>>, progress: Option<Arc<Progress>>) {
        self.owed = owed.filter(|owed| !owed.deferred.is_empty());
        self.progress = progress;
    }

    /// The upstream answers.
    pub(super) fn answers(&mut self, status: StatusCode, lease: ConnectionLease) {
        self.status = status;
        self.lease = Some(lease);
    }

    /// Charges what the answer says, and keeps that from the client.
    pub(super) fn charge_as_told(&self, headers: &mut HeaderMap) {
        let Some(owed) = &self.owed else { return };
        for deferred in &owed.deferred {
            let rest = deferred.due_by_response(headers);
            self.charge(&owed.described, deferred.descriptor, rest);
        }
        for deferred in &owed.deferred {
            if let Some(field) = deferred.field() {
                headers.remove(field);
            }
        }
    }

    pub(super) fn begins_tunnel(&self) {
        self.shared.state.counters.tunnels.fetch_add(1, Ordering::Relaxed);
    }

    /// There is no answer of the upstream to pass on.
    pub(super) fn fault(mut self, fault: Fault) -> Answer {
        self.end(if fault.status().is_server_error() {
            Completion::Failed
        } else {
            Completion::Abandoned
        });
        let passport = self.passport.take().expect("a request is answered once");
        self.shared.fault(passport, fault)
    }

    /// Gives back what is held.
    fn end(&mut self, ending: Completion) {
        if let Some(pass) = self.pass.take() {
            let now =
                self.shared.state.protection.as_ref().map(|protection| protection.clock().now());
            pass.finish(now.unwrap_or(self.began), ending);
        }
        if self.slots.take().is_some() {
            let held = self.shared.state.engine.clock().now().since(self.began);
            self.shared.slots_were_held_for(held);
        }
        if let (Some(owed), Some(progress)) = (self.owed.take(), &self.progress) {
            let bytes = progress.bytes();
            for deferred in &owed.deferred {
                self.charge(&owed.described, deferred.descriptor, deferred.due_for_body(bytes));
            }
        }
    }

    /// Charges more of one descriptor, on a task of its own: nobody waits for it. What is
    /// over the limit is not charged: it cannot be refused any more.
    fn charge(&self, described: &Described, descriptor: usize, rest: u64) {
        // A runtime that ends has nobody left to charge.
        let (Ok(runtime), true) = (Handle::try_current(), rest > 0) else { return };
        let shared = Arc::clone(&self.shared);
        let only = described.only(descriptor, rest);
        runtime.spawn(async move {
            let entries = only.entries();
            let descriptors = only.descriptors(&entries);
            let request = Request::new(&shared.settings.domain, &descriptors);
            shared.state.engine.apply(Verb::Take, &request).await;
        });
    }
}

impl<S: CounterStore, C: Clock> OnEnd for Stay<S, C> {
    fn ended(mut self: Box<Self>, end: End, bytes: u64) {
        self.end(match end {
            End::Whole if self.status.is_server_error() => Completion::Failed,
            End::Whole => Completion::Succeeded,
            End::Broken => Completion::Failed,
            End::Left => Completion::Abandoned,
        });
        let lease = self.lease.take();
        match end {
            End::Whole => lease.into_iter().for_each(ConnectionLease::return_to_pool),
            End::Broken => {
                self.shared.state.counters.broken.fetch_add(1, Ordering::Relaxed);
                lease.iter().for_each(ConnectionLease::record_broken);
            }
            End::Left => {}
        }
        if let Some(passport) = self.passport.take() {
            self.shared.note(passport.noted(), self.status, bytes, Outcome::Served);
        }
    }
}

impl<S: CounterStore, C: Clock> Drop for Stay<S, C> {
    fn drop(&mut self) {
        self.end(Completion::Abandoned);
        // Nobody was there any more to be answered.
        if let Some(passport) = self.passport.take() {
            let status = StatusCode::from_u16(CLIENT_GONE).unwrap_or_default();
            self.shared.note(passport.noted(), status, 0, Outcome::Gone);
        }
        // Last, so that whoever sees none in flight sees how they ended.
        self.shared.state.counters.in_flight.fetch_sub(1, Ordering::Release);
    }
}
