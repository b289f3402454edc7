//! A reverse proxy with every limiter, in front of an API that has none.
//!
//! [`Gateway`] decides about a request before it reads a byte of the body, then forwards it, streaming both ways. Its
//! modules, in the order in which a request passes them:
//!
//! - **Decode**: `decode` (from the head to the route, without waiting), `head` (can it be forwarded safely?),
//!   `client_address`, `route`, `category` (priority under overload), `describe` (descriptors, cost, identity of the
//!   caller).
//! - **Decide**: `decide` (shed, then limit: pass, wait, queue or refuse), `queue` (requests that are processed later).
//! - **Forward**: `request` (in flight: waits, enters the gate, is forwarded), `forward` (header fields, paths,
//!   tunnels), `upstream` (hosts, connections, timeouts), `body`.
//! - **Encode**: `encode` (responses of the gateway itself), `outcome` (how a request ends, wherever it ends).
//! - **Observe**: `access_log`, `log_queue`, `refusal_samples`, `tally`.
//! - **Service**: `service` (the hyper service), `state` (what outlives a reload), `active_document` (what a reload
//!   replaces), `trial` (what would happen to a request).
//! - **Settings**: `document` (as written), `settings` (as values), `watched_file`.
//!
//! The gateway listens at no socket: [`Server`](tidegate_server::Server) does. The program that embeds it also runs
//! [`Gateway::maintain`] (health checks, idle connections), and calls [`Gateway::reload`] for new settings and
//! [`Gateway::refresh`] for changed files of keys.
//!
//! It does no caching and no compression, and supports neither WebSockets over HTTP/2 nor HTTP/3.
//!
//! A gateway that allows each address ten requests per second:
//!
//! ```
//! use std::num::NonZeroUsize;
//! use std::sync::Arc;
//!
//! use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
//! use tidegate_gateway::{
//!     DescriptorSettings, EntrySettings, Gateway, GatewayParts, GatewaySettings, RouteSettings,
//!     UpstreamSettings, ValueFrom,
//! };
//! use tidegate_server::{Address, Endpoint, Protocol, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = "
//! domain: gateway
//! descriptors:
//! - key: address
//!   limits:
//!   - {algorithm: token_bucket, unit: second, requests_per_unit: 10}
//! ";
//! let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
//!
//! let address = ValueFrom::Address { v4_bits: 32, v6_bits: 64 };
//! let mut route = RouteSettings::new("all", "api");
//! route.descriptors = vec![DescriptorSettings::new([EntrySettings::new("address", address)])];
//! let settings = GatewaySettings {
//!     routes: vec![route],
//!     upstreams: vec![UpstreamSettings::new("api", ["http://127.0.0.1:8080"])],
//!     ..GatewaySettings::default()
//! };
//! let gateway = Gateway::new(engine, settings, GatewayParts::default())?;
//!
//! let server = Server::start(NonZeroUsize::MIN)?;
//! let endpoint = Endpoint::new("gateway", Protocol::Auto, Address::Tcp("127.0.0.1:0".parse()?));
//! let service = gateway.clone();
//! let bound = server.open_for_peers(endpoint, move |peer| service.for_peer(peer))?;
//! println!("http://{} forwards to http://127.0.0.1:8080", bound[0].address());
//! # Ok(())
//! # }
//! ```

// Decode.
mod category;
mod client_address;
mod decode;
mod describe;
mod head;
mod route;

// Decide.
mod decide;
mod queue;

// Forward.
mod body;
mod forward;
mod request;
mod upstream;

// Encode.
mod encode;
mod outcome;

// Observe.
mod access_log;
mod log_queue;
mod metrics;
mod refusal_samples;
mod request_ids;
mod tally;

// Service.
mod active_document;
mod service;
mod state;
mod trial;

// Settings.
mod document;
mod settings;
mod watched_file;

pub use access_log::{DetailsWanted, RequestDetails, show_caller};
pub use body::{GatewayBody, GatewayBodyError};
pub use describe::{NewApiKey, api_key_plans};
pub use document::{DOCUMENT_BYTES_MAX, GatewayDocument, gateway_reference, gateway_schema};
pub use log_queue::LogQueue;
pub use metrics::{GATEWAY_METRICS, GatewayPage};
pub use queue::{
    DurableQueue, MemoryQueue, QueueFull, QueueFuture, QueueId, QueuedRequest, QueuedResponse,
    QueuedState, RequestQueue,
};
pub use refusal_samples::RefusedRequest;
pub use service::{ConnectionObserver, Gateway, GatewayFuture, GatewayParts};
pub use settings::{
    AccessLogFormat, AccessLogSettings, AddressFrom, AnswerSettings, ApiKeySettings, CallerFormat,
    CategoryRule, CategorySettings, ClientTls, CostSettings, DelaySettings, DescriptorSettings,
    Ejection, EntrySettings, EscapedSlashes, GatewayError, GatewaySettings, HeadSettings,
    HeaderEdit, HealthCheck, HostHeader, InvalidCredential, JwtKey, JwtSettings, KeySetUrl,
    PathMatch, PathRewrite, PoolSettings, PresentedIn, ProvenanceSettings, QueueSettings,
    RouteSettings, SettingProblem, Timeouts, UpstreamProtocol, UpstreamSettings, ValueFrom,
    WhenMissing,
};
pub use tally::GatewayReading;
pub use trial::{RequestTrial, TrialDescriptor};
pub use upstream::HostState;

pub use tidegate_document::Size;
