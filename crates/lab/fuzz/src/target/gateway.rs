//! The gateway on real sockets: any bytes of a client are answered or the connection ends, and the upstream receives only
//! requests that the gateway wrote.
//!
//! An input is everything that a client sends on one connection, as HTTP/1.1 or, after the preface, as HTTP/2. The gateway
//! adds a mark to every request. A request without the mark at the upstream was smuggled.

mod upstream;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate_engine::MemoryStore;
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, Gateway, GatewayParts, GatewaySettings, HeaderEdit,
    RouteSettings, UpstreamSettings, ValueFrom,
};
use tidegate_server::{Address, Endpoint, Protocol, Server};

use super::doors::{self, Clock};
use super::{Target, Trail, shape};
use crate::mutation::PREFACE;
use upstream::{MARK, MARK_VALUE, StrictUpstream};

pub(super) const WORDS: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /orders HTTP/1.1\r\n",
    "HEAD",
    "OPTIONS * HTTP/1.1\r\n",
    "CONNECT",
    " HTTP/1.0",
    "Host: api.test\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding:\tchunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Connection: close\r\n",
    "Connection: Transfer-Encoding\r\n",
    "Connection: Content-Length\r\n",
    "Upgrade: websocket\r\nConnection: upgrade\r\n",
    "Expect: 100-continue\r\n",
    "Trailer: X-End\r\n",
    "TE: trailers\r\n",
    "Cookie: a=b; session=7\r\n",
    "X-User: 7\r\n",
    " folded\r\n",
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\0",
    ":",
    " ",
    "\t",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n",
    "ffffffffffffffff\r\n",
    "X-End: 1\r\n\r\n",
    "/../%2e%2e/;/%2f",
    "http://api.test/",
    "\u{e9}",
];

/// How long the gateway may be silent before the client ends its side.
const SILENCE: Duration = Duration::from_millis(5);

/// A connection that is still open after this, though its client ended its side, hangs.
const END_MAX: Duration = Duration::from_secs(20);

/// Panics of this process, on any thread: the server contains them, so the target has to count them.
static PANICS: AtomicU64 = AtomicU64::new(0);

pub(super) struct GatewayTarget {
    address: SocketAddr,
    upstream: StrictUpstream,
    panics: u64,
    _server: Server,
}

impl GatewayTarget {
    pub(super) fn new() -> Self {
        count_panics();
        let upstream = StrictUpstream::open().expect("a port is free");
        let (engine, _) = doors::engine();
        let gateway: Gateway<MemoryStore, Clock> =
            Gateway::new(engine, settings(upstream.address()), GatewayParts::default())
                .expect("the settings are right");
        let server = Server::start(NonZeroUsize::MIN).expect("a worker starts");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::new("gateway", Protocol::Auto, any);
        let listening = server.open_for_peers(endpoint, move |peer| gateway.for_peer(peer));
        let addresses = listening.expect("a port is free");
        let address = addresses.iter().find_map(|bound| match bound.address() {
            Address::Tcp(address) => Some(*address),
            Address::Unix { .. } => None,
        });
        let address = address.expect("it listens at a port");
        GatewayTarget { address, upstream, panics: PANICS.load(Ordering::Relaxed), _server: server }
    }

    /// Sends the input on a connection of its own, and returns everything that came back.
    fn exchange(&self, input: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |error: std::io::Error| format!("the gateway cannot be reached: {error}");
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_write_timeout(Some(END_MAX)).map_err(failed)?;
        // The gateway may close before it has read everything.
        let sent = stream.write_all(input).is_ok();
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
        let mut ended = !sent || read_until_end(&mut stream, &mut answer)?;
        if !ended {
            drop(stream.shutdown(Shutdown::Write));
            stream.set_read_timeout(Some(END_MAX)).map_err(failed)?;
            ended = read_until_end(&mut stream, &mut answer)?;
        }
        if ended { Ok(answer) } else { Err(format!("the connection is open after {END_MAX:?}")) }
    }
}

impl Target for GatewayTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let answer = self.exchange(input)?;
        let panics = PANICS.load(Ordering::Relaxed);
        if panics > self.panics {
            self.panics = panics;
            return Err("a thread of the gateway panicked".to_owned());
        }
        if let Some(problem) = self.upstream.problem() {
            return Err(problem);
        }
        let statuses = if input.starts_with(PREFACE) { frames(&answer) } else { statuses(&answer) };
        if statuses.contains(&500) {
            return Err("the gateway answered 500".to_owned());
        }
        Ok(Trail::of((statuses, detail(&answer))))
    }
}

/// One route for all requests, limited by user, with the mark.
fn settings(upstream: SocketAddr) -> GatewaySettings {
    let mut route = RouteSettings::new("all", "api");
    let user = EntrySettings::new("user", ValueFrom::Header(HeaderName::from_static("x-user")));
    let session = EntrySettings::new("user", ValueFrom::Cookie("session".to_owned()));
    route.descriptors = vec![DescriptorSettings::new([user]), DescriptorSettings::new([session])];
    route.request_headers =
        vec![HeaderEdit::Set(HeaderName::from_static(MARK), HeaderValue::from_static(MARK_VALUE))];
    GatewaySettings {
        routes: vec![route],
        upstreams: vec![UpstreamSettings::new("api", vec![format!("http://{upstream}")])],
        ..GatewaySettings::default()
    }
}

/// Reads until the peer closes. False if it was silent for the read timeout.
fn read_until_end(stream: &mut TcpStream, answer: &mut Vec<u8>) -> Result<bool, String> {
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(true),
            Ok(count) => answer.extend(part.iter().take(count)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(false),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(true),
                ErrorKind::Interrupted => {}
                _ => return Err(format!("the answer cannot be read: {error}")),
            },
        }
    }
}

/// The status codes of HTTP/1.1 answers, in order.
fn statuses(answer: &[u8]) -> Vec<u32> {
    let text = String::from_utf8_lossy(answer);
    let codes = text.split("HTTP/1.1 ").skip(1);
    codes.filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

/// The reason that the gateway gives for its last refusal.
fn detail(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let detail = text.rsplit_once("\"detail\":\"").map(|(_, rest)| rest);
    shape(detail.and_then(|rest| rest.split('"').next()).unwrap_or_default())
}

/// The kinds of the frames of an HTTP/2 answer, each once in a row, and the error codes that it ends with.
fn frames(answer: &[u8]) -> Vec<u32> {
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    let mut kinds = Vec::new();
    let mut rest = answer;
    while let Some(([high, middle, low, kind, _, _, _, _, _], after)) = rest.split_first_chunk() {
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        let payload = after.get(..length).unwrap_or_default();
        kinds.push(u32::from(*kind));
        if matches!(*kind, RST_STREAM | GOAWAY) {
            let code = payload.chunks(4).nth(if *kind == GOAWAY { 1 } else { 0 });
            kinds.extend(code.and_then(<[u8]>::last).map(|code| 0x100 + u32::from(*code)));
        }
        rest = after.get(length..).unwrap_or_default();
    }
    kinds.dedup();
    kinds
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            previous(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_summed_up_by_status_or_by_frame() {
        assert_eq!(statuses(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad\r\n\r\n"), [200, 400]);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
        let answer = [&settings[..], &settings, &reset].concat();
        assert_eq!(frames(&answer), [4, 3, 0x108]);
    }
}
