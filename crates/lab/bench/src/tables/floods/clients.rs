//! The clients of a flood: attackers and honest ones, in a process of their own.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::syn_packets::SynFlood;
use crate::stopwatch::Stopwatch;

/// How long an honest client waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an attacker waits for the server's answer, so that the server has done its work.
const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Threads of attackers: enough that one waits for the server's answer while another connects.
const ATTACKER_THREADS: u32 = 16;
const ATTACKER_ADDRESSES: u32 = 10;

/// Honest connections a second, and their threads and addresses.
const HONEST_RATE: u32 = 40;
const HONEST_THREADS: u32 = 8;
const HONEST_ADDRESSES: u32 = 50;

/// What the clients do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FloodPlan {
    /// The server.
    pub(crate) server: SocketAddr,
    /// For how long.
    pub(crate) seconds: u32,
    /// TLS connections that attackers attempt in a second.
    pub(crate) rate: u32,
    /// SYN packets in a second.
    pub(crate) syn_rate: u32,
    /// The first address of the attackers.
    pub(crate) attackers: Ipv4Addr,
    /// The first address of the honest clients.
    pub(crate) honest: Ipv4Addr,
    /// The certificate of the server's authority.
    pub(crate) roots: PathBuf,
}

impl FloodPlan {
    /// The plan as arguments of this program.
    pub(super) fn arguments(&self) -> [String; 7] {
        [
            self.server.to_string(),
            self.seconds.to_string(),
            self.rate.to_string(),
            self.syn_rate.to_string(),
            self.attackers.to_string(),
            self.honest.to_string(),
            self.roots.display().to_string(),
        ]
    }
}

/// What the clients saw.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct ClientFigures {
    pub(super) seconds: f64,
    pub(super) attempts: u64,
    pub(super) reset: u64,
    pub(super) served: u64,
    pub(super) p99_ms: f64,
}

/// Runs the clients, and prints what they saw as JSON.
///
/// # Errors
/// When the certificate cannot be read or a raw socket not be opened.
pub(crate) fn run_clients(plan: &FloodPlan) -> anyhow::Result<()> {
    let tls = tls_client(plan)?;
    let hello = client_hello(&tls)?;
    let (attempts, reset) = (AtomicU64::new(0), AtomicU64::new(0));
    let time = Duration::from_secs(plan.seconds.into());
    let stopwatch = Stopwatch::start();
    let mut latencies = Histogram::<u64>::new(3)?;
    thread::scope(|scope| -> anyhow::Result<()> {
        if plan.rate > 0 {
            for index in 0..ATTACKER_THREADS {
                let (hello, attempts, reset) = (&hello, &attempts, &reset);
                scope.spawn(move || {
                    let pace = Pace::new(plan.rate, ATTACKER_THREADS, index);
                    pace.run(stopwatch, time, |number| {
                        let from = nth(plan.attackers, number % ATTACKER_ADDRESSES);
                        attempts.fetch_add(1, Relaxed);
                        reset.fetch_add(u64::from(attack(plan.server, from, hello)), Relaxed);
                    });
                });
            }
        }
        if plan.syn_rate > 0 {
            let mut flood = SynFlood::open(plan.server, plan.attackers)?;
            let attempts = &attempts;
            scope.spawn(move || {
                Pace::new(plan.syn_rate, 1, 0).run(stopwatch, time, |_| {
                    attempts.fetch_add(u64::from(flood.send()), Relaxed);
                });
            });
        }
        let honest: Vec<_> = (0..HONEST_THREADS)
            .map(|index| {
                let tls = Arc::clone(&tls);
                scope.spawn(move || {
                    let mut served = Vec::new();
                    Pace::new(HONEST_RATE, HONEST_THREADS, index).run(stopwatch, time, |number| {
                        let from = nth(plan.honest, number % HONEST_ADDRESSES);
                        let began = Stopwatch::start();
                        if request(plan.server, from, &tls).is_some() {
                            served.push(began.elapsed());
                        }
                    });
                    served
                })
            })
            .collect();
        for thread in honest {
            for took in thread.join().unwrap_or_default() {
                latencies.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))?;
            }
        }
        Ok(())
    })?;
    let figures = ClientFigures {
        seconds: time.as_secs_f64(),
        attempts: attempts.load(Relaxed),
        reset: reset.load(Relaxed),
        served: latencies.len(),
        p99_ms: latencies.value_at_quantile(0.99) as f64 / 1e3,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// A share of an even rate. What is late is not made up for: a client that waits does not come twice.
struct Pace {
    interval: Duration,
    first: Duration,
    step: u32,
    index: u32,
}

impl Pace {
    fn new(per_second: u32, threads: u32, index: u32) -> Self {
        let interval = Duration::from_secs(1) * threads / per_second.max(1);
        Pace { interval, first: interval * index / threads, step: threads, index }
    }

    fn run(&self, stopwatch: Stopwatch, time: Duration, mut act: impl FnMut(u32)) {
        let (mut due, mut number) = (self.first, self.index);
        while due < time {
            let now = stopwatch.elapsed();
            if now >= time {
                return;
            }
            if now < due {
                thread::park_timeout(due - now);
                continue;
            }
            act(number);
            number = number.wrapping_add(self.step);
            due = (due + self.interval).max(now.saturating_sub(self.interval));
        }
    }
}

fn nth(first: Ipv4Addr, number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().wrapping_add(number)))
}

fn connect(server: SocketAddr, from: IpAddr, patience: Duration) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&server.into(), patience)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Begins a handshake and gives it up. Returns whether the server reset the connection.
fn attack(server: SocketAddr, from: IpAddr, hello: &[u8]) -> bool {
    let attempt = || -> std::io::Result<()> {
        let mut stream = connect(server, from, ANSWER_MAX)?;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        stream.write_all(hello)?;
        if stream.read(&mut [0; 4096])? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    };
    let kinds = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
    attempt().is_err_and(|error| kinds.contains(&error.kind()))
}

/// One request over a connection of its own, if it is served in time.
fn request(server: SocketAddr, from: IpAddr, tls: &Arc<ClientConfig>) -> Option<()> {
    let stream = connect(server, from, PATIENCE).ok()?;
    let name = ServerName::try_from("localhost").ok()?;
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(tls), name).ok()?, stream);
    stream.write_all(b"GET /healthcheck HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}

fn tls_client(plan: &FloodPlan) -> anyhow::Result<Arc<ClientConfig>> {
    let pem = fs::read(&plan.roots).context("cannot read the certificate of the authority")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Each connection is a full handshake.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The first message of a handshake, to be repeated.
fn client_hello(tls: &Arc<ClientConfig>) -> anyhow::Result<Vec<u8>> {
    let mut connection =
        ClientConnection::new(Arc::clone(tls), ServerName::try_from("localhost")?)?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello)?;
    Ok(hello)
}
