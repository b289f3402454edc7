//! The settings of the HTTP API.

use std::time::Duration;

use tidegate_access::AccessPolicy;
use tidegate_answers::HeaderSet;
use tidegate_macros::defaults;

defaults! {
    /// The settings of the HTTP API.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HttpApiSettings {
        /// The largest body. Default: 256 KiB, which is 2.5 KiB for each request of a full batch.
        pub body_bytes_max: usize = 256 * 1024,
        /// How long a client may take to send its body. Default: 10 s.
        pub body_timeout: Duration = Duration::from_secs(10),
        /// The most requests in one batch. Default: 100.
        pub batch_max: usize = 100,
        /// The most permits that are held at once; each takes about 200 bytes. Default: 100,000.
        pub permits_max: usize = 100_000,
        /// The most slices that are held at once; each takes about 200 bytes. Default: 100,000.
        pub slices_max: usize = 100_000,
        /// Whether every request is admitted whatever its limits decide; the answer still shows their decisions.
        /// Default: no.
        pub shadow: bool,
        /// Who has access. Default: everyone may check and read; refunds and resets are off.
        pub access: AccessPolicy,
        /// The rate limit fields of answers to single checks.
        pub headers: HeaderSet,
    }
}
