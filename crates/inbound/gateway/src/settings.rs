//! What an operator says of the gateway, as plain values with defaults.
//!
//! Nothing here is checked: texts are texts, as a document has them.
//! [`Gateway::new`](super::Gateway::new) turns them into what is used, and names every problem
//! at once.

mod answer;
mod category;
mod client;
mod describe;
mod route;
mod upstream;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

pub use answer::{AccessLogFormat, AccessLogSettings, AnswerSettings};
pub use category::{CategoryRule, CategorySettings};
pub use client::{AddressFrom, EscapedSlashes, HeadSettings, ProvenanceSettings, QueueSettings};
pub use describe::{
    ApiKeySettings, CostSettings, DescriptorSettings, EntrySettings, InvalidCredential, JwtKey,
    JwtSettings, PresentedIn, ValueFrom, WhenMissing,
};
pub use route::{HeaderEdit, HostHeader, PathMatch, PathRewrite, RouteSettings};
pub use upstream::{
    Ejection, HealthCheck, PoolSettings, Timeouts, UpstreamProtocol, UpstreamSettings, UpstreamTls,
};

pub use tidegate_admission::DelaySettings;
use tidegate_answers::{HeaderSet, HeadersOn};

/// Everything the gateway is told.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The domain whose rules limit requests. Default: `gateway`.
    pub domain: String,
    /// Where requests go. The first that matches is taken.
    pub routes: Vec<RouteSettings>,
    /// The servers behind the gateway, in named groups.
    pub upstreams: Vec<UpstreamSettings>,
    /// Whose word on the client's address is taken. Default: nobody's.
    pub trusted_hops: Vec<IpNet>,
    /// Which field a trusted hop names the client in.
    pub address_from: AddressFrom,
    /// What upstreams are told of where a request came from.
    pub provenance: ProvenanceSettings,
    /// What heads and bodies of requests may be like.
    pub head: HeadSettings,
    /// How tokens of callers are verified. Without it no claim is read.
    pub jwt: Option<JwtSettings>,
    /// Which keys callers have. Without it no plan is known.
    pub api_keys: Option<ApiKeySettings>,
    /// The rate limit fields of answers.
    pub headers: HeaderSet,
    /// Which answers have them.
    pub headers_on: HeadersOn,
    /// How requests wait: for limits that say `when_over: delay`, and for their turn in leaky
    /// buckets.
    pub delay: DelaySettings,
    /// How requests are kept for limits that say `when_over: queue`.
    pub queue: QueueSettings,
    /// Who is shed first when we are short. Heard only when there is protection.
    pub categories: CategorySettings,
    /// What is written of each request. Default: nothing.
    pub access_log: Option<AccessLogSettings>,
    /// At most one refusal in this time is kept as an example, to be taken by
    /// [`Gateway::take_refusals`](super::Gateway::take_refusals). Default: none is.
    pub sample_refusals: Option<Duration>,
}

impl GatewaySettings {
    /// The files that these settings name: keys of callers, certificates for upstreams. A change
    /// of one takes effect with [`Gateway::reload`](super::Gateway::reload).
    pub fn files(&self) -> Vec<PathBuf> {
        let tokens = self.jwt.as_ref().and_then(|jwt| match &jwt.key {
            JwtKey::Secret(_) => None,
            JwtKey::SecretFile(path) | JwtKey::KeySet(path) => Some(path.clone()),
        });
        let keys = self.api_keys.as_ref().and_then(|keys| keys.file.clone());
        let certificates = self.upstreams.iter().flat_map(|group| group.tls.files());
        tokens.into_iter().chain(keys).chain(certificates.map(Path::to_owned)).collect()
    }
}

impl Default for GatewaySettings {
    fn default() -> Self {
        GatewaySettings {
            domain: "gateway".to_owned(),
            routes: Vec::new(),
            upstreams: Vec::new(),
            trusted_hops: Vec::new(),
            address_from: AddressFrom::default(),
            provenance: ProvenanceSettings::default(),
            head: HeadSettings::default(),
            jwt: None,
            api_keys: None,
            headers: HeaderSet::default(),
            headers_on: HeadersOn::default(),
            delay: DelaySettings::default(),
            queue: QueueSettings::default(),
            categories: CategorySettings::default(),
            access_log: None,
            sample_refusals: None,
        }
    }
}

/// One setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblem {
    /// Its path in the settings, such as `routes[2].path`.
    pub setting: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

/// Why there is no gateway: every problem of its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct GatewayError {
    /// The problems, in the order of the settings.
    pub problems: Vec<SettingProblem>,
}

/// Gathers problems while settings are turned into what is used.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<SettingProblem>);

impl Problems {
    pub(super) fn add(&mut self, setting: impl Into<String>, problem: impl fmt::Display) {
        self.0.push(SettingProblem { setting: setting.into(), problem: problem.to_string() });
    }

    /// What a step made, or its problem.
    pub(super) fn take<T, E: fmt::Display>(
        &mut self,
        setting: impl Into<String>,
        made: Result<T, E>,
    ) -> Option<T> {
        made.map_err(|error| self.add(setting, error)).ok()
    }

    pub(super) fn finish(self) -> Result<(), GatewayError> {
        if self.0.is_empty() { Ok(()) } else { Err(GatewayError { problems: self.0 }) }
    }
}
