//! What doors share on the way in.
//!
//! [`BodyReader`] collects the body of a request, up to a maximum:
//!
//! ```
//! use http_body_util::Full;
//! use tidegate_requests::{BodyError, read_body};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let body = || Full::<bytes::Bytes>::from("{\"off\":true}");
//! assert_eq!(read_body(body(), 64).await.unwrap(), "{\"off\":true}");
//! assert_eq!(read_body(body(), 4).await, Err(BodyError::TooLarge));
//! # }
//! ```

mod body;

pub use body::{BodyError, BodyReader, read_body};
