//! Traces, sent over OTLP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::global::{self, BoxedTracer};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

use crate::config::{self, TraceProtocol};
use crate::exit::{Complaint, Failure};

/// How long the last spans may take to be sent when the service stops.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// The exporter of spans.
#[derive(Debug)]
pub(super) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Starts to export spans, if the configuration says so. The current tokio runtime sends spans over gRPC, so it
    /// must continue to run.
    pub(super) fn start(traces: &config::Traces) -> Result<Option<Self>, Failure> {
        if !traces.enabled {
            return Ok(None);
        }
        let (builder, endpoint) = (SpanExporter::builder(), traces.endpoint.as_str());
        let exporter = match traces.protocol {
            TraceProtocol::Grpc => builder.with_tonic().with_endpoint(endpoint).build(),
            TraceProtocol::Http => {
                let http = builder.with_http().with_protocol(Protocol::HttpBinary);
                http.with_endpoint(traces_url(endpoint)).build()
            }
        };
        let exporter = exporter.map_err(|error| {
            let message = format!("traces cannot be sent to `{endpoint}`: {error}");
            Complaint::new(message, "check `traces.endpoint`")
        })?;
        let ratio = f64::from(traces.sampling_percent.millionths()) / 1e6;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource(traces))
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        global::set_tracer_provider(provider.clone());
        Ok(Some(Traces { provider }))
    }

    /// The tracer that doors open their spans with.
    #[expect(clippy::unused_self, reason = "there is no tracer before the export has started")]
    pub(super) fn tracer(&self) -> Arc<BoxedTracer> {
        Arc::new(global::tracer("tidegate"))
    }

    /// Sends the remaining spans, and stops.
    pub(super) fn stop(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_MAX) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// The URL for spans. An endpoint without a path is the base of all signals, as OpenTelemetry has it.
fn traces_url(endpoint: &str) -> String {
    let (_, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    match rest.split_once('/') {
        None | Some((_, "")) => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        Some(_) => endpoint.to_owned(),
    }
}

fn resource(traces: &config::Traces) -> Resource {
    let optional = [
        ("service.namespace", &traces.service_namespace),
        ("service.instance.id", &traces.service_instance_id),
    ];
    let set = optional
        .into_iter()
        .filter_map(|(key, value)| Some(KeyValue::new(key, value.as_ref()?.clone())));
    Resource::builder()
        .with_service_name(traces.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(set)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_gets_the_path_of_traces() {
        for base in ["http://c:4318", "http://c:4318/"] {
            assert_eq!(traces_url(base), "http://c:4318/v1/traces");
        }
        assert_eq!(traces_url("http://c/otlp/v1/traces"), "http://c/otlp/v1/traces");
    }
}
