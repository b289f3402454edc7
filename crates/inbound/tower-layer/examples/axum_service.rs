//! An axum service behind limits: five requests an hour for each user, of
//! which a report counts as three, and two in flight at once.
//!
//! `cargo run -p tidegate-tower-layer --example axum_service` serves until it is
//! stopped, on a free port or on the address given. With `--demo` it makes a few
//! requests against itself, prints the answers and ends.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::request::Parts;
use tidegate_admission::RequestDescription;
use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
use tidegate_tower_layer::RateLimitLayer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {name: hourly, algorithm: token_bucket, unit: hour, requests_per_unit: 5}
  - key: in_flight_of
    rate_limit: {name: in-flight, algorithm: concurrency, requests_per_unit: 2}
";

/// What a report costs, in requests.
const REPORT_COST: u64 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--demo") {
        for answer in demo().await? {
            println!("{answer}\n");
        }
        return Ok(());
    }
    let address = arguments.first().map_or("127.0.0.1:0", String::as_str);
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("Try, more than once:");
    println!("  curl -i -H 'x-user: ada' http://{address}/items");
    println!("  curl -i -H 'x-user: ada' http://{address}/report");
    println!("  curl -i http://{address}/health");
    axum::serve(listener, service()?).await?;
    Ok(())
}

/// Two limited routes, and one that is not.
fn service() -> Result<Router, Box<dyn Error>> {
    let rules = compile(&[Source::new("rules", RULES)], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
    Ok(Router::new()
        .route("/items", get(|| async { "rope, lantern, map\n" }))
        .route("/report", get(|| async { "all is well\n" }))
        .route("/health", get(|| async { "ok\n" }))
        .layer(RateLimitLayer::new(engine, "shop", describe)))
}

fn describe(request: &Parts) -> Option<RequestDescription> {
    let cost = match request.uri.path() {
        "/health" => return None,
        "/report" => REPORT_COST,
        _ => 1,
    };
    let user = request.headers.get("x-user").and_then(|user| user.to_str().ok());
    let user = user.unwrap_or("anonymous");
    // A report counts as several requests, but takes one slot like any other.
    let described = RequestDescription::new()
        .descriptor_costing(cost, [("user", user)])
        .descriptor([("in_flight_of", user)]);
    Some(described)
}

/// Serves on a free port and asks a few times: each question with its answer.
pub(crate) async fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = service()?;
    let server = tokio::spawn(async { axum::serve(listener, service).await });
    let mut answers = Vec::new();
    for (method, path, user) in [
        ("GET", "/items", "ada"),
        ("GET", "/report", "ada"),
        ("GET", "/report", "ada"),
        ("HEAD", "/report", "ada"),
        ("GET", "/items", "bob"),
        ("GET", "/health", "ada"),
    ] {
        let answer = ask(address, method, path, user).await?;
        answers.push(format!("> {method} {path} as {user}\n{answer}"));
    }
    server.abort();
    Ok(answers)
}

/// One request, as plain as it goes over the wire.
async fn ask(address: SocketAddr, method: &str, path: &str, user: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let question = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-user: {user}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.replace('\r', ""))
}
