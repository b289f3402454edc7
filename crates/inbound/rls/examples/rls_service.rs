//! Envoy's rate limit service for one rule: three calls an hour for each user.
//!
//! `cargo run -p tidegate-rls --features proto --example rls_service`
//! serves until it is stopped, on a free port or on the address given. With
//! `--demo` it calls itself a few times, prints the answers and ends.

use std::error::Error;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
use tidegate_metrics::Meter;
use tidegate_rls::proto::rate_limit_descriptor::Entry;
use tidegate_rls::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use tidegate_rls::{HealthHandle, Rls, RlsSettings};
use tokio::net::TcpListener;
use tonic::transport::Channel;

const RULES: &str = "
domain: api
descriptors:
  - {key: user, limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 3}]}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--demo") {
        for answer in demo().await? {
            println!("{answer}");
        }
        return Ok(());
    }
    let address = arguments.first().map_or("127.0.0.1:0", String::as_str);
    let listener = TcpListener::bind(address).await?;
    println!(
        "Point Envoy's rate limit filter with the domain `api` at {}.",
        listener.local_addr()?
    );
    serve(listener, door()?).await;
    Ok(())
}

fn door() -> Result<Rls, Box<dyn Error>> {
    let rules = compile(&[Source::new("rules.yaml", RULES)], &Options::default())
        .map_err(|report| report.to_string())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
    let health = HealthHandle::new();
    health.set_serving(true);
    Ok(Rls::new(engine, RlsSettings::default(), &health, Arc::new(Meter::new("rls"))))
}

/// Serves every connection until the listener fails.
async fn serve(listener: TcpListener, door: Rls) {
    while let Ok((stream, _)) = listener.accept().await {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(stream), door.clone()));
    }
}

/// Serves on a free port and calls a few times: what each call was told.
pub(crate) async fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, door()?));
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = RateLimitServiceClient::new(channel);
    let mut answers = Vec::new();
    for user in ["ada", "ada", "ada", "ada", "bob"] {
        let entry = Entry { key: "user".to_owned(), value: user.to_owned() };
        let descriptor =
            RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let request = RateLimitRequest {
            domain: "api".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let answer = client.should_rate_limit(request).await?.into_inner();
        let left = answer.statuses.first().map_or(0, |status| status.limit_remaining);
        answers.push(format!("{user}: {}, {left} left", answer.overall_code().as_str_name()));
    }
    Ok(answers)
}
