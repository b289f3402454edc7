//! The gateway's settings, as plain values with defaults.
//!
//! Nothing is checked here: texts are as a document has them. [`Gateway::new`](super::Gateway::new) compiles them and
//! reports every problem at once.

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

pub use answer::{AccessLogFormat, AccessLogSettings, AnswerSettings, CallerFormat};
pub use category::{CategoryRule, CategorySettings};
pub use client::{AddressFrom, EscapedSlashes, HeadSettings, ProvenanceSettings, QueueSettings};
pub use describe::{
    ApiKeySettings, CostSettings, DescriptorSettings, EntrySettings, InvalidCredential, JwtKey,
    JwtSettings, KeySetUrl, PresentedIn, ValueFrom, WhenMissing,
};
pub use route::{HeaderEdit, HostHeader, PathMatch, PathRewrite, RouteSettings};
pub use upstream::{
    Ejection, HealthCheck, PoolSettings, Timeouts, UpstreamProtocol, UpstreamSettings,
};

pub use tidegate_admission::DelaySettings;
use tidegate_answers::{HeaderSet, HeadersOn};
pub use tidegate_client_tls::ClientTls;
use tidegate_macros::defaults;

/// Larger counts are mistakes.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000_000;

defaults! {
    /// All settings of a gateway.
    #[derive(Clone, Debug)]
    pub struct GatewaySettings {
        /// The domain whose rules limit requests. Default: `gateway`.
        pub domain: String = "gateway".to_owned(),
        /// Where requests go. The first route that matches is used.
        pub routes: Vec<RouteSettings>,
        /// The servers behind the gateway, in named groups.
        pub upstreams: Vec<UpstreamSettings>,
        /// The networks of proxies whose forwarding headers are trusted. Default: none.
        pub trusted_hops: Vec<IpNet>,
        /// The field in which a trusted proxy names the client.
        pub address_from: AddressFrom,
        /// The fields that tell upstreams where a request came from.
        pub provenance: ProvenanceSettings,
        /// Limits for heads and bodies of requests.
        pub head: HeadSettings,
        /// How tokens are verified. Without it, claims are not read.
        pub jwt: Option<JwtSettings>,
        /// The API keys. Without it, no caller has a plan.
        pub api_keys: Option<ApiKeySettings>,
        /// The rate limit fields of answers.
        pub headers: HeaderSet,
        /// Which answers have them.
        pub headers_on: HeadersOn,
        /// How requests wait under limits with `when_over: delay`, and for their turn in leaky buckets.
        pub delay: DelaySettings,
        /// How requests are stored under limits with `when_over: queue`.
        pub queue: QueueSettings,
        /// Which requests are shed first under overload. Without protection it has no effect.
        pub categories: CategorySettings,
        /// The access log. Default: none.
        pub access_log: Option<AccessLogSettings>,
        /// The interval in which at most one refusal is sampled for
        /// [`Gateway::take_refusals`](super::Gateway::take_refusals). Default: no samples.
        pub sample_refusals: Option<Duration>,
        /// How [`RequestDetails`](super::RequestDetails) name the caller. Default: hashed.
        pub caller_format: CallerFormat = CallerFormat::Hashed,
        /// Whether a request without `x-request-id` gets one. Default: yes.
        pub request_ids: bool = true,
    }
}

impl GatewaySettings {
    /// The files that these settings name: keys of callers, certificates for upstreams. A changed file takes effect
    /// with [`Gateway::reload`](super::Gateway::reload).
    pub fn files(&self) -> Vec<PathBuf> {
        let tokens = self.jwt.as_ref().and_then(|jwt| match &jwt.key {
            JwtKey::Secret(_) => None,
            JwtKey::SecretFile(path) | JwtKey::KeySet(path) => Some(path.clone()),
            JwtKey::KeySetUrl(set) => set.authority.clone(),
        });
        let keys = self.api_keys.as_ref().and_then(|keys| keys.file.clone());
        let certificates = self.upstreams.iter().flat_map(|group| group.tls.files());
        tokens.into_iter().chain(keys).chain(certificates.map(Path::to_owned)).collect()
    }
}

/// A setting that cannot be used.
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

/// All problems of a gateway's settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct GatewayError {
    /// The problems, in the order of the settings.
    pub problems: Vec<SettingProblem>,
}

/// Collects problems while settings are compiled.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<SettingProblem>);

impl Problems {
    pub(super) fn add(&mut self, setting: impl Into<String>, problem: impl fmt::Display) {
        self.0.push(SettingProblem { setting: setting.into(), problem: problem.to_string() });
    }

    /// The value of a result; collects its error.
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
