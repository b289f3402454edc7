//! Deciding a request: at once, or in a future that waits for the store, in line, or for a turn.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_admission::{Admission, DomainEngine, Patience, Pipeline, RequestDescription, Waiter};
use tidegate_engine::{Clock, CounterStore, LimiterStage, contain, contain_future};
use tokio::time::Instant;

use super::future::{AdmittedRequest, Decision};
use super::settings::Settings;

impl<T: CounterStore, C: Clock> Settings<T, C> {
    /// Decides without waiting; [`None`] if the store has to be awaited.
    pub(super) fn decide_now(&self, description: &RequestDescription) -> Option<Admission> {
        self.pipeline().decide_now(description, self.patience(None))
    }

    /// Waits until it is decided whether the request passes, and for its turn.
    pub(super) async fn decide(
        self: &Arc<Self>,
        decided: Option<Admission>,
        request: &Parts,
        description: RequestDescription,
    ) -> Decision {
        let pipeline = self.pipeline();
        let patience = self.patience(Some(Instant::now()));
        let admission = contain_future(LimiterStage::Decide, async {
            match pipeline.decide(decided, &description, patience).await {
                Admission::Pass(mut grant) => {
                    grant.wait_for_turn().await;
                    Ok(grant)
                }
                Admission::Refused(refusal) => Err(refusal),
                // The layer has no queue.
                Admission::WaitInLine(wait) => Err(pipeline.give_up(*wait, &description).await),
            }
        });
        match admission.await {
            None => Ok(AdmittedRequest::default()),
            Some(Ok(grant)) => Ok(AdmittedRequest::new(grant, self, description)),
            Some(Err(refusal)) => {
                match contain(LimiterStage::Render, || self.refuse(request, refusal)) {
                    Some(answer) => Err(answer),
                    None => Ok(AdmittedRequest::default()),
                }
            }
        }
    }

    fn pipeline(&self) -> Pipeline<'_, T, C> {
        Pipeline {
            limits: self.limits(),
            room: &self.room,
            delay: &self.delay,
            headers: &self.headers,
            headers_on: self.headers_on,
            hold_time: None,
            refunds: true,
        }
    }

    pub(super) fn limits(&self) -> DomainEngine<'_, T, C> {
        DomainEngine { engine: &self.engine, domain: &self.domain }
    }

    fn patience(&self, since: Option<Instant>) -> Patience<impl Fn() -> Duration + Copy + '_> {
        let waiter = if self.wait_for_turn { Waiter::Client } else { Waiter::Nobody };
        Patience { waiter, wait_max: || self.delay.wait_max, since }
    }
}
