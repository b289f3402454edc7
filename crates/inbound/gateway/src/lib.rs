//! A reverse proxy with every limiter in front of an API that has none.
//!
//! [`Gateway`] takes a request, decides before a byte of its body is read, and passes it on,
//! streaming both ways. The rooms follow the way of a request:
//!
//! | Room | Does |
//! |---|---|
//! | `document`, `settings` | what an operator says: as written, as plain values |
//! | `head` | is this a request that one can safely pass on? |
//! | `client_address` | for whom is it, whatever it claims? |
//! | `route` | where does it go? |
//! | `category` | who is shed first when we are short? |
//! | `describe` | who asks for what: descriptors and cost |
//! | `decode` | from the head to the route, without waiting |
//! | `decide` | shed, then limit: pass, wait, queue or refuse |
//! | `queue` | requests that are processed later |
//! | `forward` | what is changed on the way; tunnels |
//! | `body` | bodies while they stream |
//! | `upstream` | which server, over which connection, for how long |
//! | `request` | a request in flight: waits, enters the gate, is forwarded |
//! | `encode` | responses of the gateway itself |
//! | `outcome` | how a request ends, wherever it ends |
//! | `access_log`, `samples`, `tally` | what is remembered |
//! | `door`, `shared` | the service itself, and what its requests share |
//!
//! It owns no socket towards clients: [`server`](crate::server) does. What runs beside requests
//! (health checks, forgetting idle connections) is [`Gateway::tend`]; other settings are put in
//! place by [`Gateway::reload`], and files of keys alone by [`Gateway::refresh`]. The program that
//! has the gateway runs them.
//!
//! Not here: caching, compression, WebSockets over HTTP/2, HTTP/3.

mod document;
mod settings;
mod watched_file;

mod category;
mod client_address;
mod head;
mod route;

mod describe;

mod decide;
mod decode;
mod encode;
mod outcome;
mod queue;
mod request;

mod body;
mod forward;
mod upstream;

mod access_log;
mod samples;
mod tally;

mod door;
mod shared;

pub use body::{GatewayBody, GatewayBodyError};
pub use describe::api_key_plans;
pub use document::{DOCUMENT_BYTES_MAX, GatewayDocument, gateway_reference, gateway_schema};
pub use door::{Gateway, GatewayFuture, GatewayParts};
pub use queue::{MemoryQueue, QueueFull, QueueId, QueuedRequest, QueuedState, RequestQueue};
pub use samples::RefusedRequest;
pub use settings::{
    AccessLogFormat, AccessLogSettings, AddressFrom, AnswerSettings, ApiKeySettings, CategoryRule,
    CategorySettings, CostSettings, DelaySettings, DescriptorSettings, Ejection, EntrySettings,
    GatewayError, GatewaySettings, HeadSettings, HeaderEdit, HealthCheck, HostHeader, JwtKey,
    JwtSettings, Missing, PathMatch, PathRewrite, PoolSettings, PresentedIn, ProvenanceSettings,
    QueueSettings, RouteSettings, SettingProblem, Timeouts, UpstreamProtocol, UpstreamSettings,
    UpstreamTls, ValueFrom,
};
pub use tally::GatewayReading;
pub use upstream::HostState;
