//! The engine, and the observers and meters around it.

use std::sync::Arc;

use tidegate_admin::{Observations, ObservationsConfig};
use tidegate_engine::{Engine, NearLimit, Observer, Request, Verb, Verdict};
use tidegate_http_api::Health;
use tidegate_metrics::Meter;
use tidegate_spans::SpanNotes;

use super::decision_log::DecisionLog;
use super::decision_samples::DecisionSamples;
use super::store::ServiceStore;
use crate::config::{Compat, Config, count};
use crate::exit::Failure;

/// The engine, and everything about it that doors show.
#[derive(Debug)]
pub(super) struct EngineParts<S> {
    pub(super) engine: Arc<Engine<S>>,
    pub(super) observations: Arc<Observations>,
    /// Refused requests of the decision service, for the log.
    pub(super) samples: Arc<DecisionSamples>,
    /// The decision log, if there is one.
    pub(super) decisions: Option<Arc<DecisionLog>>,
    pub(super) health: Health,
    /// Counts the requests over gRPC.
    pub(super) rls_meter: Arc<Meter>,
    /// Counts the requests over HTTP.
    pub(super) http_meter: Arc<Meter>,
}

impl<S: ServiceStore> EngineParts<S> {
    pub(super) fn new(config: &Config, store: S, has_traces: bool) -> Result<Self, Failure> {
        let near_millionths = config.limiter.near_limit_ratio.millionths();
        let observations = Arc::new(Observations::new(ObservationsConfig {
            top: count(config.debug.top),
            detailed_series_max: count(config.debug.metrics.detailed_series_max),
            near_millionths,
            tail: config.debug.tail.0,
            overrides: config.compat == Compat::EnvoyRatelimit,
        }));
        let samples = Arc::new(DecisionSamples::new(&config.log));
        let decisions = DecisionLog::start(&config.decisions)?.map(Arc::new);
        let observer = VerdictObserver {
            observations: Arc::clone(&observations),
            samples: Arc::clone(&samples),
            decisions: decisions.clone(),
            has_traces,
        };
        let engine = store
            .engine()
            .with_failure_mode(config.limiter.failure_mode.0)
            .with_on_store_error(config.store.redis.on_error.policy())
            .with_descriptors_max(count(config.limiter.descriptors_max))
            .with_tallies(NearLimit::from_millionths(near_millionths))
            .with_observer(Arc::new(observer));
        Ok(EngineParts {
            engine: Arc::new(engine),
            observations,
            samples,
            decisions,
            health: Health::new(),
            rls_meter: Arc::new(Meter::new("grpc")),
            http_meter: Arc::new(Meter::new("http")),
        })
    }
}

/// Passes verdicts to the debug port, to the sampled refusals, to the decision log and, with traces, to the current
/// span.
struct VerdictObserver {
    observations: Arc<Observations>,
    samples: Arc<DecisionSamples>,
    decisions: Option<Arc<DecisionLog>>,
    has_traces: bool,
}

impl Observer for VerdictObserver {
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        self.observations.observe(verb, request, verdict);
        if !verdict.is_admitted() {
            self.samples.offer(request, verdict);
        }
        if let Some(decisions) = &self.decisions {
            decisions.observe(verb, request, verdict);
        }
        if self.has_traces {
            SpanNotes.observe(request, verdict, || self.samples.note(request, verdict));
        }
    }

    fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        self.observations.observe_turned_away(request, verdict);
        self.samples.offer(request, verdict);
        if self.has_traces {
            SpanNotes.observe_turned_away(verdict, || self.samples.note(request, verdict));
        }
    }
}
