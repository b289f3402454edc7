//! Envoy's rate limit messages: the fields that a request has here, and the answer's code.

/// A request with several descriptors.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// An answer without statuses, the shortest that a proxy understands.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
}

impl RateLimitResponse {
    /// The code of an admitted request.
    pub(crate) const OK: i32 = 1;
    /// The code of a refused request.
    pub(crate) const OVER_LIMIT: i32 = 2;
}

/// Throttlecrab's request.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ThrottleRequest {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(int32, tag = "2")]
    pub(crate) max_burst: i32,
    #[prost(int32, tag = "3")]
    pub(crate) count_per_period: i32,
    #[prost(int32, tag = "4")]
    pub(crate) period: i32,
    #[prost(int32, tag = "5")]
    pub(crate) quantity: i32,
}

impl ThrottleRequest {
    /// A key under a limit that no run uses up: ten a second, with a long burst.
    pub(crate) const fn endless(key: String) -> Self {
        ThrottleRequest {
            key,
            max_burst: 100_000_000,
            count_per_period: 600,
            period: 60,
            quantity: 1,
        }
    }
}

/// Throttlecrab's answer: the fields that are read here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ThrottleResponse {
    #[prost(bool, tag = "1")]
    pub(crate) allowed: bool,
}
