//! Decisions over HTTP: two requests a minute for each user, one job at once.
//!
//! `cargo run -p tidegate-http-api --example http_api` serves
//! until it is stopped, on a free port or on the address given. With `--demo` it
//! asks itself a few times, prints the answers and ends.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_engine::{
    Clock, Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile,
};
use tidegate_http_api::{Health, HttpApi, HttpApiParts, HttpApiSettings, RulesStatus};
use tidegate_metrics::Meter;
use tidegate_requests::AccessPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: token_bucket, unit: minute, requests_per_unit: 2}
  - key: job
    rate_limit: {name: jobs, algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}
";

const USER: &str =
    r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;

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
    println!("  curl -i --json '{USER}' http://{address}/v1/check");
    println!("  curl http://{address}/v1/rules");
    println!("  curl http://{address}/v1/openapi.json");
    serve(listener, api()?).await?;
    Ok(())
}

/// A door to an engine with the rules above.
fn api() -> Result<HttpApi, Box<dyn Error>> {
    let source = Source::new("shop.yaml", RULES);
    let rules = compile(std::slice::from_ref(&source), &Options::default())?;
    let clock = SystemClock::new();
    let status =
        RulesStatus { loaded_at: Some(clock.now()), sources: Arc::new([source]), failure: None };
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, clock).with_rules(rules));
    let parts = HttpApiParts {
        // Only this machine reaches the port, so refunds and resets need no token.
        settings: HttpApiSettings { access: AccessPolicy::local(), ..HttpApiSettings::default() },
        meter: Arc::new(Meter::new("http")),
        health: Health::new(),
        rules: Arc::new(move || status.clone()),
        json: None,
    };
    Ok(HttpApi::new(engine, parts))
}

/// Serves until the listener fails. A service has limits and drains; this has neither.
async fn serve(listener: TcpListener, api: HttpApi) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), api.clone());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}

/// Serves on a free port and asks a few times: each question with its answer.
pub(crate) async fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener, api()?));
    let mut answers = Vec::new();
    for (path, body) in [
        ("/v1/check", USER),
        ("/v1/check", USER),
        ("/v1/check", USER),
        ("/v1/reset", USER),
        ("/v1/check", USER),
        ("/v1/check", r#"{"domian":"shop"}"#),
    ] {
        answers.push(format!("> POST {path} {body}\n{}", ask(address, path, body).await?));
    }
    server.abort();
    Ok(answers)
}

/// One request, as plain as it goes over the wire.
async fn ask(address: SocketAddr, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let question = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.replace('\r', ""))
}
