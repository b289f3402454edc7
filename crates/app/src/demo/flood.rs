//! `tidegate demo flood`: traffic of several callers against the gateway of `make run`, with a live table of the answers.
//!
//! Critical requests and two users send at a steady pace the whole time. In the middle, tests flood the API with far
//! more than it can carry. The table shows that critical requests keep passing, that a user beyond its limit gets 429,
//! and that the flood gets 503. Every caller has a maximum of connections and of requests a second, and all of it ends
//! by itself.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use clap::Args;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Painted, Table, style};

/// How often the table is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// The most latencies that are kept of a caller: a thousand a second for a minute.
const LATENCIES_MAX: usize = 60_000;

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
    /// Connections, each with one request at a time.
    connections: u32,
    /// The pause after each answer.
    pause: Duration,
    /// Whether it sends only in the middle.
    floods: bool,
}

const CALLERS: [Caller; 4] = [
    Caller {
        name: "checkout (critical)",
        path: "/checkout/1",
        user: "shop",
        connections: 1,
        pause: Duration::from_millis(100),
        floods: false,
    },
    Caller {
        name: "ada, within her limit",
        path: "/orders/1",
        user: "ada",
        connections: 1,
        pause: Duration::from_secs(6),
        floods: false,
    },
    Caller {
        name: "bob, beyond his limit",
        path: "/orders/2",
        user: "bob",
        connections: 1,
        pause: Duration::from_millis(200),
        floods: false,
    },
    Caller {
        name: "tests, a flood",
        path: "/sandbox/1",
        user: "ci",
        connections: 60,
        pause: Duration::from_millis(10),
        floods: true,
    },
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
    fn count(&mut self, answer: &Result<StatusCode, hyper::Error>, took: Duration) {
        self.sent += 1;
        match answer {
            Ok(status) if status.is_success() => {
                self.served += 1;
                if self.latencies.len() < LATENCIES_MAX {
                    self.latencies.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                }
            }
            Ok(StatusCode::TOO_MANY_REQUESTS) => self.over_limit += 1,
            Ok(StatusCode::SERVICE_UNAVAILABLE) => self.shed += 1,
            Ok(_) | Err(_) => self.failed += 1,
        }
    }

    /// The latency that a share of the served requests stayed below, in milliseconds.
    fn quantile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let index = sorted.len().saturating_sub(1) * percent / 100;
        sorted.get(index).map(|micros| micros.div_ceil(1_000))
    }
}

type Tallies = Arc<[Mutex<Tally>; CALLERS.len()]>;

pub(crate) fn run(args: &FloodArgs, out: &mut Output) -> Result<Exit, Failure> {
    let gateway = resolve(&args.gateway)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable(&args.gateway, &error))?;
    runtime.block_on(async {
        TcpStream::connect(gateway).await.map_err(|error| unreachable(&args.gateway, &error))?;
        flood(gateway, Duration::from_secs(args.seconds), out).await?;
        Ok(Exit::Fine)
    })
}

fn resolve(gateway: &str) -> Result<SocketAddr, Failure> {
    let mut addresses = gateway.to_socket_addrs().map_err(|error| unreachable(gateway, &error))?;
    let is_v4 = |address: &SocketAddr| address.is_ipv4();
    let all: Vec<SocketAddr> = addresses.by_ref().collect();
    let none =
        || Complaint::new(format!("`{gateway}` has no address"), "give a host and a port").into();
    all.iter().copied().find(is_v4).or(all.first().copied()).ok_or_else(none)
}

fn unreachable(gateway: &str, error: &io::Error) -> Failure {
    let message = format!("no gateway answers at `{gateway}`: {error}");
    Complaint::new(message, "start `make run` in another terminal, or give `--gateway`").into()
}

async fn flood(gateway: SocketAddr, length: Duration, out: &mut Output) -> io::Result<()> {
    let start = Instant::now();
    let (from, to, end) = (start + length / 5, start + length * 4 / 5, start + length);
    let tallies: Tallies = Arc::new(std::array::from_fn(|_| Mutex::default()));
    let mut senders = JoinSet::new();
    for (index, caller) in CALLERS.iter().enumerate() {
        let (from, to) = if caller.floods { (from, to) } else { (start, end) };
        for _ in 0..caller.connections {
            senders.spawn(send(gateway, *caller, (from, to), Arc::clone(&tallies), index));
        }
    }
    let live = io::stdout().is_terminal();
    let mut ticks = interval(DRAW_EVERY);
    let mut drawn = false;
    while Instant::now() < end && !out.is_closed() {
        ticks.tick().await;
        let now = Instant::now();
        let phase = if now < from {
            "calm"
        } else if now < to {
            "flood"
        } else {
            "calm again"
        };
        if live {
            if drawn {
                // Back to the first line of the table before.
                write!(out, "\x1b[{}A\x1b[J", CALLERS.len() + 2)?;
            }
            let second = now.duration_since(start).as_secs();
            writeln!(
                out,
                "{} second {second} of {}",
                Painted(style::STRONG, phase),
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

/// Sends requests one after the other until `to`, from one connection at a time.
async fn send(
    gateway: SocketAddr,
    caller: Caller,
    (from, to): (Instant, Instant),
    tallies: Tallies,
    index: usize,
) {
    sleep_until(from).await;
    while Instant::now() < to {
        let Ok(stream) = TcpStream::connect(gateway).await else {
            if let Some(tally) = tallies.get(index) {
                let mut tally = tally.lock();
                tally.sent += 1;
                tally.failed += 1;
            }
            sleep(caller.pause.max(Duration::from_millis(100))).await;
            continue;
        };
        let Ok((mut sender, connection)) = http1::handshake(TokioIo::new(stream)).await else {
            continue;
        };
        let connection = tokio::spawn(connection);
        while Instant::now() < to && sender.ready().await.is_ok() {
            let request = Request::get(caller.path)
                .header("host", gateway.to_string())
                .header("x-user", caller.user)
                .body(Body::empty())
                .expect("the parts of a demo request are valid");
            let sent = Instant::now();
            let answer = sender.send_request(request).await;
            let status = match answer {
                Ok(answer) => {
                    let status = answer.status();
                    // The connection is free again once the body was read.
                    let _ = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await;
                    Ok(status)
                }
                Err(error) => Err(error),
            };
            if let Some(tally) = tallies.get(index) {
                tally.lock().count(&status, sent.elapsed());
            }
            sleep(caller.pause).await;
        }
        connection.abort();
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
