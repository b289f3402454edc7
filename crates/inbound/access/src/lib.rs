//! Access to doors.
//!
//! [`AccessPolicy`] decides who may read, check and change; [`HostNames`] which host names a port answers to.
//! [`sha256`], [`bearer_token`] and [`RandomId`] are what every door needs of secrets.
//! [`BodyReader`] collects the body of a request, up to a maximum and within a time:
//!
//! ```
//! use std::time::Duration;
//!
//! use http_body_util::Full;
//! use tidegate_access::{BodyError, BodyLimits, read_body};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let body = || Full::<bytes::Bytes>::from("{\"off\":true}");
//! let limits = |bytes_max| BodyLimits { bytes_max, timeout: Duration::from_secs(10) };
//! assert_eq!(read_body(body(), limits(64)).await.unwrap(), "{\"off\":true}");
//! assert_eq!(read_body(body(), limits(4)).await, Err(BodyError::TooLarge));
//! # }
//! ```

mod body;
mod host;
mod secret;
mod token;

pub use body::{BodyError, BodyLimits, BodyReader, read_body};
pub use host::HostNames;
pub use secret::{RandomId, Sha256Hash, bearer_token, parse_sha256, sha256};
pub use token::{
    AccessError, AccessPolicy, AccessToken, AccessTokens, CHALLENGE, Role, TOKEN_BYTES_MAX,
    TOKEN_BYTES_MIN, TokenError,
};
