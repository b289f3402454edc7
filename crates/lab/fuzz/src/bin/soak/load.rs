//! Valid requests: single checks, batches of new keys, gRPC calls.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_rls::proto::rate_limit_descriptor::Entry;
use tidegate_rls::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};

use crate::http1::Client;
use crate::process::Doors;
use crate::tally::{Tally, add};

const CHECKERS: usize = 4;
const BATCHERS: usize = 1;
const CALLERS: usize = 8;
const CHANNELS: usize = 2;

/// Requests in a batch, each with a new key.
const BATCH: u64 = 100;

/// The pause between two batches, which leaves room for other requests.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

/// Keys that repeat, so that some requests are refused.
const HOT_KEYS: u64 = 10;

pub(crate) fn start(doors: &Doors, tally: &Rc<Tally>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for _ in 0..CHECKERS {
        tasks.push(spawn_local(check(doors.http.clone(), Rc::clone(tally))));
    }
    for _ in 0..BATCHERS {
        tasks.push(spawn_local(check_batches(doors.http.clone(), Rc::clone(tally))));
    }
    for _ in 0..CHANNELS {
        match channel(doors) {
            Ok(channel) => tasks.extend((0..CALLERS / CHANNELS).map(|_| {
                let client = RateLimitServiceClient::new(channel.clone());
                spawn_local(call(client, Rc::clone(tally)))
            })),
            Err(error) => tally.fault(format_args!("gRPC: {error}")),
        }
    }
    tasks
}

/// A channel that connects when it is first used.
pub(crate) fn channel(doors: &Doors) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{}", doors.grpc))?.connect_lazy())
}

fn entries(key: &str, value: u64) -> Value {
    json!([{"key": key, "value": value.to_string()}])
}

async fn check(address: String, tally: Rc<Tally>) {
    if let Err(error) = check_on(&address, &tally).await {
        tally.fault(format_args!("/v1/check: {error}"));
    }
}

async fn check_on(address: &str, tally: &Tally) -> io::Result<()> {
    let mut client = Client::connect(address).await?;
    loop {
        let turn = tally.checks.get();
        add(&tally.checks, 1);
        add(&tally.keys, 1);
        let descriptors = json!([
            {"entries": entries("user", turn)},
            {"entries": entries(["hot", "log", "job"][usize::from(turn.to_le_bytes()[0]) % 3], turn % HOT_KEYS)},
        ]);
        let body = json!({"domain": "soak", "descriptors": descriptors}).to_string();
        match client.post("/v1/check", body.as_bytes()).await?.status {
            200 => {}
            429 => add(&tally.refused, 1),
            status => tally.fault(format_args!("/v1/check answers {status}")),
        }
    }
}

async fn check_batches(address: String, tally: Rc<Tally>) {
    if let Err(error) = check_batches_on(&address, &tally).await {
        tally.fault(format_args!("a batch: {error}"));
    }
}

async fn check_batches_on(address: &str, tally: &Tally) -> io::Result<()> {
    let mut client = Client::connect(address).await?;
    loop {
        let first = u64::MAX / 2 + tally.keys.get();
        add(&tally.keys, BATCH);
        add(&tally.checks, BATCH);
        let requests = (first..first + BATCH).map(
            |key| json!({"domain": "soak", "descriptors": [{"entries": entries("user", key)}]}),
        );
        let body = json!({"requests": requests.collect::<Vec<_>>()}).to_string();
        let status = client.post("/v1/check", body.as_bytes()).await?.status;
        if status != 200 {
            tally.fault(format_args!("a batch is answered with {status}"));
        }
        sleep(BATCH_PAUSE).await;
    }
}

async fn call(mut client: RateLimitServiceClient<Channel>, tally: Rc<Tally>) {
    loop {
        let turn = tally.calls.get();
        add(&tally.calls, 1);
        add(&tally.keys, 1);
        let part = |key: &str, value: String| RateLimitDescriptor {
            entries: vec![Entry { key: key.to_owned(), value }],
            ..RateLimitDescriptor::default()
        };
        let request = RateLimitRequest {
            domain: "soak".to_owned(),
            descriptors: vec![
                part("user", format!("call-{turn}")),
                part("hot", (turn % HOT_KEYS).to_string()),
            ],
            hits_addend: 0,
        };
        if let Err(status) = client.should_rate_limit(request).await {
            tally.fault(format_args!("a call ends with {status}"));
            return;
        }
    }
}
