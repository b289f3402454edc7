//! An axum service that works on four requests at once, and what keeps it alive when more come:
//! payments first, health checks always, everybody else as far as there is room.
//!
//! `cargo run -p tidegate-tower-layer --features protection --example protected_service` serves
//! until it is stopped, on a free port or on the address given. With `--demo` it makes a few
//! requests against itself, prints the answers and ends.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::request::Parts;
use tidegate_engine::{Clock, SystemClock};
use tidegate_overload::{Category, Mode, Protection, ProtectionSettings, SteadyClock, run};
use tidegate_tower_layer::{ArrivingRequest, ProtectionLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// How many requests the service works on at once.
const WORKERS: usize = 4;
const WORK: Duration = Duration::from_millis(200);

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
    let path = "[1-40]";
    println!("Try:");
    println!(
        "  curl -Z --parallel-max 40 -s -w '%{{http_code}}\\n' -o /dev/null 'http://{address}/items?{path}'"
    );
    println!("  curl -i -X POST http://{address}/pay");
    println!("  curl -i http://{address}/health");
    let (service, _) = service(Work::Lasts(WORK));
    axum::serve(listener, service).await?;
    Ok(())
}

/// What it takes to answer.
#[derive(Clone)]
enum Work {
    /// So much time.
    Lasts(Duration),
    /// As long as somebody wants.
    Until(Arc<Semaphore>),
}

impl Work {
    async fn done(self) -> &'static str {
        match self {
            Work::Lasts(time) => sleep(time).await,
            // A closed semaphore lets everybody go.
            Work::Until(end) => drop(end.acquire().await),
        }
        "done\n"
    }
}

/// Two routes that take work and one that takes none, behind the layer.
fn service(work: Work) -> (Router, Arc<Protection<SteadyClock>>) {
    let settings = ProtectionSettings {
        // There is one node only: nothing to share, nothing to keep for others.
        fleet_mode: Mode::Off,
        ..ProtectionSettings::new(WORKERS as u64)
    };
    let clock = SteadyClock::starting_at(SystemClock::new().now());
    let protection = Arc::new(Protection::new(settings, clock));
    tokio::spawn(run(Arc::clone(&protection)));
    let (items, payments) = (work.clone(), work);
    let router = Router::new()
        .route("/items", get(|| items.done()))
        .route("/pay", post(|| payments.done()))
        .route("/health", get(|| async { "ok\n" }))
        .layer(ProtectionLayer::new(Arc::clone(&protection), arriving));
    (router, protection)
}

fn arriving(request: &Parts) -> Option<ArrivingRequest> {
    let caller = request.headers.get("x-user").map_or(&b""[..], |user| user.as_bytes());
    let arriving = ArrivingRequest::of(request).from_caller(caller);
    match request.uri.path() {
        "/health" => None,
        "/pay" => Some(arriving.in_category(Category::Critical)),
        _ => Some(arriving),
    }
}

/// Serves on a free port, fills it with payments and asks a few times: each question with
/// its answer.
pub(crate) async fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let end = Arc::new(Semaphore::new(0));
    let (service, protection) = service(Work::Until(Arc::clone(&end)));
    let server = tokio::spawn(async { axum::serve(listener, service).await });
    let payments: Vec<_> =
        (0..WORKERS).map(|_| tokio::spawn(ask(address, "POST", "/pay"))).collect();
    while protection.gauges().gate.in_flight < WORKERS as u64 {
        tokio::task::yield_now().await;
    }
    let mut answers = Vec::new();
    for (method, path) in [("GET", "/items"), ("HEAD", "/items"), ("GET", "/health")] {
        answers.push(ask(address, method, path).await?);
    }
    end.close();
    for payment in payments {
        answers.push(payment.await??);
    }
    answers.push(ask(address, "GET", "/items").await?);
    server.abort();
    Ok(answers)
}

/// One request, as plain as it goes over the wire, and its answer.
async fn ask(address: SocketAddr, method: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let question =
        format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(format!("> {method} {path}\n{}", answer.replace('\r', "")))
}
