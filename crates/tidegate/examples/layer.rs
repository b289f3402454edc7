//! Any tower service behind limits: two requests an hour for each user.
//!
//! Run it: `cargo run -p tidegate --example layer`.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tidegate::layer::{RateLimitLayer, RequestDescription};
use tidegate::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
use tower::{Layer, ServiceExt, service_fn};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for status in demo().await? {
        println!("{status}");
    }
    Ok(())
}

/// Sends three requests of one user: their statuses.
pub(crate) async fn demo() -> Result<Vec<u16>, Box<dyn Error>> {
    let rules = compile(&[Source::new("rules.yaml", RULES)], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
    let hello = service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    });
    let service = RateLimitLayer::new(engine, "api", describe).layer(hello);

    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = Request::get("/").header("x-user", "alice").body(Full::default())?;
        statuses.push(service.clone().oneshot(request).await?.status().as_u16());
    }
    Ok(statuses)
}

/// The descriptor of a request; `None` means that it is not limited.
fn describe(request: &Parts) -> Option<RequestDescription> {
    let user = request.headers.get("x-user")?.to_str().ok()?;
    Some(RequestDescription::new().descriptor([("user", user)]))
}
