//! Requests of a log, described as the gateway would describe them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use tidegate_engine::MemoryStore;
use tidegate_gateway::Gateway;
use tidegate_simulation::replay::{DescriptorWriter, LoggedRequest, RequestDescriber};

use crate::config;
use crate::exit::Failure;

/// The most kinds of trouble that are counted apart.
const TROUBLES_MAX: usize = 100;

/// Describes requests by a document of the gateway.
#[derive(Debug)]
pub(super) struct GatewayDescriber {
    gateway: Gateway<MemoryStore>,
    domain: String,
    /// Why requests have no descriptors, with how often.
    troubles: BTreeMap<String, u64>,
}

impl GatewayDescriber {
    /// Reads the document.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let (document, gateway) = config::gateway::build(path)?;
        let domain = document.settings().domain.clone();
        Ok(GatewayDescriber { gateway, domain, troubles: BTreeMap::new() })
    }

    fn count(&mut self, trouble: &str) {
        if let Some(count) = self.troubles.get_mut(trouble) {
            *count += 1;
        } else if self.troubles.len() < TROUBLES_MAX {
            self.troubles.insert(trouble.to_owned(), 1);
        }
    }
}

impl RequestDescriber for GatewayDescriber {
    fn describe(&mut self, request: &LoggedRequest<'_>, out: &mut DescriptorWriter<'_>) {
        let method = request.method.as_deref().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes());
        let uri = request.target.as_deref().unwrap_or("/").parse::<Uri>();
        let (Ok(method), Ok(uri)) = (method, uri) else {
            return self.count("a method and a target");
        };
        let client = request.client.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        let trial = self.gateway.try_request(method, uri, header_fields(request), client);
        if let Some((_, code, _)) = trial.fault {
            self.count(code);
        }
        if !trial.exempt {
            for (entries, cost) in &trial.descriptors {
                for (key, value) in entries {
                    out.entry(key, value);
                }
                out.end(*cost);
            }
        }
    }

    fn domain(&self) -> &str {
        &self.domain
    }

    fn missing(&self) -> Vec<(String, u64)> {
        self.troubles.iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// The header fields that the log has: `http_x_user` is `x-user`.
fn header_fields(request: &LoggedRequest<'_>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            fields.insert(name, value);
        }
    };
    for (name, value) in &request.fields {
        if let Some(name) = name.strip_prefix("http_") {
            add(&name.replace('_', "-"), value);
        }
    }
    // Fields about the connection and the body are not those of the request as a whole.
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
        fields.remove(name);
    }
    if let Some(host) = request.host.as_deref().and_then(|host| HeaderValue::from_str(host).ok()) {
        fields.insert(header::HOST, host);
    }
    fields
}
