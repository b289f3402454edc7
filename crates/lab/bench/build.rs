//! Generates the service that the peers on tonic implement.
//!
//! From a description in Rust, because the messages are few: no compiler for
//! `.proto` files is needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = Method::builder()
        .name("should_rate_limit")
        .route_name("ShouldRateLimit")
        .input_type("crate::peer::messages::RateLimitRequest")
        .output_type("crate::peer::messages::RateLimitResponse")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder()
        .name("RateLimitService")
        .package("envoy.service.ratelimit.v3")
        .method(method)
        .build();
    Builder::new().build_client(false).compile(&[service]);
}
