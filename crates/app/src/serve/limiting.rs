//! The engine and what watches it.

use std::sync::Arc;

use tidegate_admin::{Observations, ObservationsConfig};
use tidegate_engine::{NearLimit, Observer, Request, Verb, Verdict};
use tidegate_http_api::Health;
use tidegate_metrics::Meter;
use tidegate_spans::SpanNotes;

use super::SharedEngine;
use super::counters::Counters;
use crate::config::{Config, FailureMode};

/// The engine, and everything about it that doors show.
#[derive(Debug)]
pub(super) struct Limiting<S> {
    pub(super) engine: SharedEngine<S>,
    pub(super) observations: Arc<Observations>,
    pub(super) health: Health,
    /// The requests of each door.
    pub(super) rls: Arc<Meter>,
    pub(super) http: Arc<Meter>,
}

impl<S: Counters> Limiting<S> {
    pub(super) fn new(config: &Config, store: S, traced: bool) -> Self {
        let failure_mode = match config.limiter.failure_mode {
            FailureMode::Admit => tidegate_engine::FailureMode::Admit,
            FailureMode::Refuse => tidegate_engine::FailureMode::Refuse,
        };
        let observations = Arc::new(Observations::new(ObservationsConfig {
            top: usize::try_from(config.debug.top).unwrap_or(usize::MAX),
            detailed_series_max: usize::try_from(config.debug.metrics.detailed_series_max)
                .unwrap_or(usize::MAX),
            near_millionths: config.limiter.near_limit_ratio.millionths(),
        }));
        let near = NearLimit::from_millionths(config.limiter.near_limit_ratio.millionths());
        let watching = Watching { observations: Arc::clone(&observations), traced };
        let engine = store
            .engine()
            .with_failure_mode(failure_mode)
            .with_tallies(near)
            .with_observer(Arc::new(watching));
        Limiting {
            engine: Arc::new(engine),
            observations,
            health: Health::new(),
            rls: Arc::new(Meter::new("grpc")),
            http: Arc::new(Meter::new("http")),
        }
    }
}

/// Everyone who is told of verdicts.
struct Watching {
    observations: Arc<Observations>,
    traced: bool,
}

impl Observer for Watching {
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        self.observations.observe(verb, request, verdict);
        if self.traced {
            SpanNotes.observe(verb, request, verdict);
        }
    }

    fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        self.observations.observe_turned_away(request, verdict);
        if self.traced {
            SpanNotes.observe_turned_away(request, verdict);
        }
    }
}
