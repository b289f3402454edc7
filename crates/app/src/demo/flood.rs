//! `tidegate demo flood`: traffic of several callers against the gateway of `make run`, with a live table of the answers.
//!
//! Critical requests and two users send at a steady pace the whole time. In the middle, tests flood the API with far
//! more than it can serve. The table shows that critical requests keep passing, that a user beyond its limit gets 429,
//! and that the flood gets 503. Every caller has a maximum of requests at once and per second, and the command ends by
//! itself.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use clap::Args;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, StyledText, Table, style};

/// How often the table is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// The maximum of latencies kept per caller: a thousand a second for a minute.
const LATENCIES_MAX: usize = 60_000;
/// The pause after a request that failed.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// The arguments of `tidegate demo flood`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FloodArgs {
    /// The gateway: host and port.
    #[arg(long, value_name = "ADDR", default_value = "localhost:8000")]
    pub(crate) gateway: String,
    /// How long all of it takes, in seconds; the flood fills the middle.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=60))]
    pub(crate) seconds: u64,
}

/// A caller of the demo, and how it sends.
#[derive(Clone, Copy, Debug)]
struct Caller {
    name: &'static str,
    path: &'static str,
    user: &'static str,
    /// The number of tasks that send, each one request at a time.
    connections: u32,
    /// The pause after each answer.
    pause: Duration,
    /// Whether it sends only in the middle.
    floods: bool,
}

const fn steady(name: &'static str, path: &'static str, user: &'static str, ms: u64) -> Caller {
    Caller { name, path, user, connections: 1, pause: Duration::from_millis(ms), floods: false }
}

const CALLERS: [Caller; 4] = [
    steady("checkout (critical)", "/checkout/1", "shop", 100),
    steady("ada, within her limit", "/orders/1", "ada", 6_000),
    steady("bob, beyond his limit", "/orders/2", "bob", 200),
    Caller { connections: 60, floods: true, ..steady("tests, a flood", "/sandbox/1", "ci", 10) },
];

/// The answers that a caller got.
#[derive(Clone, Debug, Default)]
struct Tally {
    sent: u64,
    served: u64,
    over_limit: u64,
    shed: u64,
    failed: u64,
    /// Of served requests, in microseconds.
    latencies: Vec<u64>,
}

impl Tally {
    fn count(&mut self, status: Option<StatusCode>, took: Duration) {
        self.sent += 1;
        match status {
            Some(status) if status.is_success() => {
                self.served += 1;
                if self.latencies.len() < LATENCIES_MAX {
                    self.latencies.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                }
            }
            Some(StatusCode::TOO_MANY_REQUESTS) => self.over_limit += 1,
            Some(StatusCode::SERVICE_UNAVAILABLE) => self.shed += 1,
            Some(_) | None => self.failed += 1,
        }
    }

    /// A quantile of the latencies of served requests, in milliseconds.
    fn quantile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = sorted.len().saturating_sub(1) * percent / 100;
        sorted.get(index).map(|micros| micros.div_ceil(1_000))
    }
}

type Tallies = [Arc<Mutex<Tally>>; CALLERS.len()];
type FloodClient = Client<HttpConnector, Body>;

pub(crate) fn run(args: &FloodArgs, out: &mut Output) -> Result<Exit, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable(&args.gateway, &error))?;
    runtime.block_on(async {
        let connected = TcpStream::connect(&args.gateway).await;
        let gateway = connected.and_then(|stream| stream.peer_addr());
        let gateway = gateway.map_err(|error| unreachable(&args.gateway, &error))?;
        flood(gateway, Duration::from_secs(args.seconds), out).await?;
        Ok(Exit::Fine)
    })
}

fn unreachable(gateway: &str, error: &io::Error) -> Failure {
    let message = format!("no gateway answers at `{gateway}`: {error}");
    Complaint::new(message, "start `make run` in another terminal, or give `--gateway`").into()
}

async fn flood(gateway: SocketAddr, length: Duration, out: &mut Output) -> io::Result<()> {
    let start = Instant::now();
    let (from, to, end) = (start + length / 5, start + length * 4 / 5, start + length);
    let tallies: Tallies = std::array::from_fn(|_| Arc::default());
    let client: FloodClient = Client::builder(TokioExecutor::new()).build_http();
    let mut senders = JoinSet::new();
    for (caller, tally) in CALLERS.into_iter().zip(&tallies) {
        let (from, to) = if caller.floods { (from, to) } else { (start, end) };
        for _ in 0..caller.connections {
            senders.spawn(send(client.clone(), gateway, caller, (from, to), Arc::clone(tally)));
        }
    }
    let live = io::stdout().is_terminal();
    let mut ticks = interval(DRAW_EVERY);
    let mut drawn = false;
    while Instant::now() < end && !out.is_closed() {
        ticks.tick().await;
        let now = Instant::now();
        let phase = match (now < from, now < to) {
            (true, _) => "calm",
            (false, true) => "flood",
            (false, false) => "calm again",
        };
        if live {
            if drawn {
                // Moves to the first line of the previous table.
                write!(out, "\x1b[{}A\x1b[J", CALLERS.len() + 2)?;
            }
            let second = now.duration_since(start).as_secs();
            writeln!(
                out,
                "{} second {second} of {}",
                StyledText(style::STRONG, phase),
                length.as_secs()
            )?;
            draw(&tallies, out)?;
            drawn = true;
        }
    }
    senders.shutdown().await;
    if !live {
        draw(&tallies, out)?;
    }
    summarize(&tallies, out)
}

/// Sends one request at a time until `to`.
async fn send(
    client: FloodClient,
    gateway: SocketAddr,
    caller: Caller,
    (from, to): (Instant, Instant),
    tally: Arc<Mutex<Tally>>,
) {
    sleep_until(from).await;
    while Instant::now() < to {
        let request = Request::get(format!("http://{gateway}{}", caller.path))
            .header("x-user", caller.user)
            .body(Body::empty())
            .expect("the parts of a demo request are valid");
        let sent = Instant::now();
        let status = match client.request(request).await {
            Ok(answer) => {
                let status = answer.status();
                // The connection can be used again once the body is read.
                let _ = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await;
                Some(status)
            }
            Err(_) => None,
        };
        tally.lock().count(status, sent.elapsed());
        let pause = if status.is_some() { caller.pause } else { caller.pause.max(FAILURE_PAUSE) };
        sleep(pause).await;
    }
}

fn draw(tallies: &Tallies, out: &mut Output) -> io::Result<()> {
    let heads = ["who", "sent", "served", "429", "503", "failed", "p50 ms", "p99 ms"];
    let mut table = Table::titled(&heads);
    for (caller, tally) in CALLERS.iter().zip(tallies.iter()) {
        let tally = tally.lock().clone();
        let number = |number: u64| Cell::new(number).right();
        let latency = |percent| tally.quantile(percent).map_or(Cell::new("-"), Cell::new).right();
        let served = if tally.served == tally.sent { style::GOOD } else { style::PLAIN };
        table.row([
            Cell::new(caller.name),
            number(tally.sent),
            number(tally.served).styled(served),
            number(tally.over_limit),
            number(tally.shed),
            number(tally.failed),
            latency(50),
            latency(99),
        ]);
    }
    table.write(out, "")?;
    out.flush()
}

fn summarize(tallies: &Tallies, out: &mut Output) -> io::Result<()> {
    let [critical, _, _, tests] = tallies.each_ref().map(|tally| tally.lock().clone());
    let Tally { served, sent, .. } = critical;
    writeln!(
        out,
        "\n{served} of {sent} critical requests were served; {} of {} tests were refused.",
        tests.over_limit + tests.shed,
        tests.sent
    )?;
    out.flush()
}
