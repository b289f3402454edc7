//! Bad input: invalid bodies, messages and protocols, and connections that stop halfway.
//!
//! The service must answer each with a client error or close the connection.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_fuzz::Chance;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Channel;

use crate::grpc;
use crate::http1::Client;
use crate::load;
use crate::process::Doors;
use crate::tally::{Tally, add};

/// The pause between two bad inputs of one kind: most of the load should be valid.
const PAUSE: Duration = Duration::from_millis(10);

/// Connections that are held half open at once.
const HALF_OPEN_MAX: usize = 64;

/// The longest wait for an answer to bad input.
const NONSENSE_PATIENCE: Duration = Duration::from_millis(200);

/// Requests and connections that are cut off.
const HALVES: &[&[u8]] = &[
    b"",
    b"POST /v1/check HTTP/1.1\r\nhost: x\r\n",
    b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"domain\":",
    b"POST /json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"d",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x20\x01\x05\0\0\0\x01\x82",
];

/// Bad input after which the service must close the connection.
const NONSENSE: &[&[u8]] = &[
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\0\0\0\0\0\xff\xff\xff\xff",
];

pub(crate) fn start(doors: &Doors, tally: &Rc<Tally>) -> Vec<JoinHandle<()>> {
    let mut tasks = vec![
        spawn_local(bad_bodies(doors.http.clone(), Rc::clone(tally))),
        spawn_local(half_open(doors.clone(), Rc::clone(tally))),
        spawn_local(nonsense(doors.clone(), Rc::clone(tally))),
    ];
    match load::channel(doors) {
        Ok(channel) => tasks.push(spawn_local(bad_messages(channel, Rc::clone(tally)))),
        Err(error) => tally.fault(format_args!("gRPC: {error}")),
    }
    tasks
}

/// Connections to every door that send half a request and then nothing.
pub(crate) async fn half_requests(doors: &Doors) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for address in [&doors.http, &doors.grpc, &doors.debug] {
        for half in HALVES {
            open.extend(half_request(address, half).await);
        }
    }
    open
}

async fn half_request(address: &str, half: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(half).await?;
    Ok(stream)
}

fn random_bytes(chance: &mut Chance, most: usize) -> Vec<u8> {
    (0..chance.below(most)).map(|_| chance.byte()).collect()
}

/// An invalid body.
fn bad_body(chance: &mut Chance) -> Vec<u8> {
    match chance.below(5) {
        0 => random_bytes(chance, 2_000),
        1 => b"[".repeat(chance.below(20_000)),
        2 => b"{\"domain\":\"soak\",\"descriptors\":[{\"entries\":[{\"key\":1}]}]}".to_vec(),
        3 => {
            b"{\"domain\":\"soak\",\"descriptors\":[{\"entries\":[{\"key\":\"user\",\"val".to_vec()
        }
        // Longer than the door reads.
        _ => vec![b'x'; (1 << 20) + 1],
    }
}

async fn bad_bodies(address: String, tally: Rc<Tally>) {
    let mut chance = Chance::new(1);
    let paths = ["/v1/check", "/v1/peek", "/v1/explain", "/v1/release", "/json", "/v1/nowhere"];
    loop {
        let path = chance.pick(&paths).copied().unwrap_or("/");
        let body = bad_body(&mut chance);
        // The door may close the connection after an error, so each body has its own. It may also
        // close before all is sent, which loses the answer.
        let sent = async { Client::connect(&address).await?.post(path, &body).await };
        add(&tally.bad_requests, 1);
        match sent.await {
            Ok(answer) if (400..500).contains(&answer.status) => {}
            Ok(answer) => {
                let said = String::from_utf8_lossy(&answer.body).into_owned();
                tally.fault(format_args!("{path} answers {} to nonsense: {said}", answer.status));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                tally.fault(format_args!("{path}: {error}"));
                return;
            }
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

async fn bad_messages(channel: Channel, tally: Rc<Tally>) {
    let mut chance = Chance::new(2);
    loop {
        let message = match chance.below(3) {
            0 => vec![0x4B; chance.below(10_000)],
            1 => vec![0x0A; (1 << 20) + 1],
            // The first byte makes it unreadable whatever follows.
            _ => [vec![0x07], random_bytes(&mut chance, 500)].concat(),
        };
        add(&tally.bad_calls, 1);
        let ended = grpc::call_with(channel.clone(), Bytes::from(message)).await;
        let code = ended.err().map_or(Code::Ok, |status| status.code());
        // An empty message is one without a domain.
        if !matches!(code, Code::Internal | Code::ResourceExhausted | Code::InvalidArgument) {
            tally.fault(format_args!("a call with nonsense ends with {code:?}"));
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Keeps so many connections half open, and drops the oldest for each new one.
async fn half_open(doors: Doors, tally: Rc<Tally>) {
    let mut chance = Chance::new(3);
    let mut open = VecDeque::new();
    loop {
        let addresses = [&doors.http, &doors.grpc];
        let address = chance.pick(&addresses).copied().unwrap_or(&doors.http);
        let half = chance.pick(HALVES).copied().unwrap_or_default();
        match half_request(address, half).await {
            Ok(stream) => open.push_back(stream),
            Err(error) => tally.fault(format_args!("a connection: {error}")),
        }
        add(&tally.half_open, 1);
        if open.len() > HALF_OPEN_MAX {
            drop(open.pop_front());
        }
        sleep(PAUSE).await;
    }
}

async fn nonsense(doors: Doors, tally: Rc<Tally>) {
    let mut chance = Chance::new(4);
    loop {
        for address in [&doors.http, &doors.grpc] {
            let known = chance.pick(NONSENSE).copied().unwrap_or_default();
            let bytes = [known, &random_bytes(&mut chance, 200)].concat();
            add(&tally.bad_requests, 1);
            let Ok(mut stream) = half_request(address, &bytes).await else { continue };
            let mut answer = [0; 512];
            // The door may answer, close or wait for more.
            let _ = timeout(NONSENSE_PATIENCE, stream.read(&mut answer)).await;
            if answer.starts_with(b"HTTP/1.1 5") && !answer.starts_with(b"HTTP/1.1 505") {
                let said = String::from_utf8_lossy(&answer).into_owned();
                tally.fault(format_args!("nonsense is answered so: {said}"));
            }
        }
        sleep(PAUSE).await;
    }
}
