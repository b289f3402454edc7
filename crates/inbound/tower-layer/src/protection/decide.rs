//! Deciding a request: screening before it holds anything, then the gate.

use std::sync::Arc;

use http::request::Parts;
use tidegate_admission::{BodyEnd, EndGuard, OnBodyEnd};
use tidegate_engine::{Clock, LimiterStage, contain};
use tidegate_overload::{Arrival, Completion, Pass, Refusal, ScreenedRequest};

use super::settings::Settings;
use crate::future::{AdmittedRequest, Decision};

impl<C: Clock> Settings<C> {
    /// Decides before the request holds anything.
    pub(super) fn screen(&self, request: &Parts) -> Result<ScreenedRequest, Refusal> {
        let describe = || {
            let arriving = (self.describe)(request)?;
            Some(arriving.at(self.protection.clock().now()))
        };
        // A request whose description panics passes without being counted.
        let arrival =
            contain(LimiterStage::Describe, describe).flatten().unwrap_or(Arrival::Exempt);
        self.protection.screen(arrival)
    }

    /// Waits at the gate.
    pub(super) async fn enter(
        self: Arc<Self>,
        screened: ScreenedRequest,
        request: &Parts,
    ) -> Decision {
        match self.protection.enter(screened).await {
            Ok(pass) => {
                let guard = PassGuard { settings: self, pass, failed: false };
                Ok(AdmittedRequest::guarded(EndGuard::new(Box::new(guard))))
            }
            Err(refusal) => {
                match contain(LimiterStage::Render, || self.refuse(request, &refusal)) {
                    Some(answer) => Err(answer),
                    None => Ok(AdmittedRequest::default()),
                }
            }
        }
    }
}

/// The pass of an admitted request; reports to the gate how the request ended.
struct PassGuard<C: Clock> {
    settings: Arc<Settings<C>>,
    pass: Pass<C>,
    /// Whether the service returned a server error.
    failed: bool,
}

impl<C: Clock> OnBodyEnd for PassGuard<C> {
    fn server_error(&mut self) {
        self.failed = true;
    }

    fn ended(self: Box<Self>, end: BodyEnd, _bytes: u64) {
        let completion = match end {
            BodyEnd::Complete if self.failed => Completion::Failed,
            BodyEnd::Complete => Completion::Succeeded,
            BodyEnd::Broken => Completion::Failed,
            BodyEnd::Dropped => Completion::Abandoned,
        };
        self.pass.finish(self.settings.protection.clock().now(), completion);
    }
}
