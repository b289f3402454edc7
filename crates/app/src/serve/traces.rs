//! Traces, sent over OTLP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::global::{self, BoxedTracer};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

/// How long the last spans may take to be sent when the server stops.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Where spans go, and which.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TraceSettings {
    pub(crate) endpoint: String,
    pub(crate) grpc: bool,
    pub(crate) service_name: String,
    pub(crate) service_namespace: Option<String>,
    pub(crate) service_instance_id: Option<String>,
    /// Of traces that no caller began.
    pub(crate) sampled_millionths: u32,
}

/// Spans on their way out.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Begins to send spans. Call within a tokio runtime that goes on running:
    /// spans over gRPC are sent on it.
    pub(crate) fn begin(settings: &TraceSettings) -> Result<Self, String> {
        let exporter = if settings.grpc {
            SpanExporter::builder().with_tonic().with_endpoint(&settings.endpoint).build()
        } else {
            let http = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
            http.with_endpoint(&settings.endpoint).build()
        };
        let exporter = exporter.map_err(|error| {
            format!("traces cannot be sent to `{}`: {error}", settings.endpoint)
        })?;
        let ratio = f64::from(settings.sampled_millionths.min(1_000_000)) / 1e6;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource(settings))
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        global::set_tracer_provider(provider.clone());
        Ok(Traces { provider })
    }

    /// What doors open their spans with.
    #[expect(clippy::unused_self, reason = "there is no tracer before traces have begun")]
    pub(crate) fn tracer(&self) -> Arc<BoxedTracer> {
        Arc::new(global::tracer("tidegate"))
    }

    /// Sends what is left, and no more after that.
    pub(crate) fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_MAX) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

fn resource(settings: &TraceSettings) -> Resource {
    let namespace = settings.service_namespace.as_ref();
    let instance = settings.service_instance_id.as_ref();
    let known = [("service.namespace", namespace), ("service.instance.id", instance)];
    let known =
        known.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?.clone())));
    Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(known)
        .build()
}
