//! A tonic service behind limits: three calls an hour for each user.
//!
//! The service is gRPC's own health check. `cargo run -p tidegate-tower-layer
//! --example tonic_service` serves until it is stopped, on a free port or on the
//! address given. With `--demo` it calls itself a few times, prints the answers and
//! ends.

use std::error::Error;
use std::future::pending;

use http::request::Parts;
use tidegate_tower_layer::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;

const LIMIT: &str = "name: hourly, algorithm: token_bucket, unit: hour, requests_per_unit: 3";

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
    println!("Call grpc.health.v1.Health/Check at {} more than", listener.local_addr()?);
    println!("three times, with the metadata `x-user: ada`; or run this with --demo.");
    serve(listener, pending()).await
}

/// Serves the health check behind the layer until it is stopped.
async fn serve(
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let (_reporter, health) = health_reporter();
    Server::builder()
        .layer(RateLimitLayer::by_key(LIMIT, user)?)
        .add_service(health)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), stop)
        .await?;
    Ok(())
}

fn user(request: &Parts) -> Option<String> {
    let user = request.headers.get("x-user").and_then(|user| user.to_str().ok());
    Some(user.unwrap_or("anonymous").to_owned())
}

/// Serves on a free port and calls a few times; returns the answer of each call.
pub(crate) async fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let calls = async {
        let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
        let mut client = HealthClient::new(channel);
        let mut answers = Vec::new();
        for user in ["ada", "ada", "ada", "ada", "bob"] {
            let mut request = Request::new(HealthCheckRequest::default());
            request.metadata_mut().insert("x-user", MetadataValue::from_static(user));
            let answer = match client.check(request).await {
                Ok(answer) => {
                    let left = answer.metadata().get("x-ratelimit-remaining");
                    format!(
                        "serving, {} left",
                        left.map_or("?", |left| left.to_str().unwrap_or("?"))
                    )
                }
                Err(refusal) => shown(&refusal),
            };
            answers.push(format!("{user}: {answer}"));
        }
        Ok::<_, Box<dyn Error>>(answers)
    };
    // The server ends with the calls.
    tokio::select! {
        answers = calls => answers,
        served = serve(listener, pending()) => {
            served?;
            Err("the server stopped early".into())
        }
    }
}

fn shown(refusal: &Status) -> String {
    let pushback = refusal.metadata().get("grpc-retry-pushback-ms");
    let seconds = pushback.and_then(|wait| wait.to_str().ok()?.parse().ok());
    let seconds = seconds.map_or(0, |millis: u64| millis.div_ceil(60_000));
    format!("{:?}, pushed back for {seconds} minutes: {}", refusal.code(), refusal.message())
}
