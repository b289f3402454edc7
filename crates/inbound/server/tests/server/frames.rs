//! HTTP/2 frames written by hand: many streams that are reset before they are accepted, and authorities that `h2`
//! does not take.

use tidegate_server::{Address, BoundEndpoint, ConnectionLimits, Endpoint, Protocol, Server};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::client::{limited, open, service, tcp, unix, within, workers};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const END_STREAM_AND_HEADERS: u8 = 5;
const CANCEL: &[u8] = &[0, 0, 0, 8];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A request for `/`.
fn request(stream: u32) -> Vec<u8> {
    // `:method: GET`, `:scheme: http`, `:path: /` of the static table, and an authority.
    let mut fields = vec![0x82, 0x86, 0x84, 0x41, 4];
    fields.extend_from_slice(b"test");
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &fields)
}

/// Opens and resets this many streams with one write, then sends a request. Returns whether that is answered; if not,
/// the server has closed the connection.
async fn is_answered_after_resets(listening: &BoundEndpoint, resets: u32) -> bool {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    for stream in (0..resets).map(|number| 2 * number + 1) {
        bytes.extend(request(stream));
        bytes.extend(frame(RESET, 0, stream, CANCEL));
    }
    let last = 2 * resets + 1;
    bytes.extend(request(last));
    is_answered(tcp(listening).await, &bytes, last).await
}

/// Whether the stream of this number is answered; if not, the server has reset it or closed the connection.
async fn is_answered(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
    last: u32,
) -> bool {
    stream.write_all(bytes).await.expect("sent");
    within("an answer or the end", async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return false;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("a short frame")];
            stream.read_exact(&mut payload).await.expect("a whole frame");
            let of_last = head[5..] == last.to_be_bytes();
            match head[3] {
                GO_AWAY => return false,
                RESET if of_last => return false,
                HEADERS if of_last => return true,
                _ => {}
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_client_may_reset_all_its_streams_at_once() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, _control) = service();
        let limits = ConnectionLimits { streams_max: 200, ..ConnectionLimits::default() };
        let listening = open(&server, limited(protocol, limits), service);
        assert!(is_answered_after_resets(&listening, 150).await, "{protocol:?}");
    }
}

#[tokio::test]
async fn a_client_that_resets_more_streams_than_it_may_open_is_closed() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, _control) = service();
        let limits = ConnectionLimits { streams_max: 50, ..ConnectionLimits::default() };
        let listening = open(&server, limited(protocol, limits), service);
        assert!(!is_answered_after_resets(&listening, 500).await, "{protocol:?}");
    }
}

/// A request as Python's grpcio sends it: names and values as literals, and the path of the socket as authority.
fn request_of_grpcio(stream: u32, authority: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in [(":path", "/"), (":authority", authority), ("te", "trailers")] {
        fields.push(0x40);
        for text in [name, value] {
            fields.push(u8::try_from(text.len()).expect("a short text"));
            fields.extend_from_slice(text.as_bytes());
        }
        if name == ":authority" {
            // `:method: POST`, `:scheme: http` of the static table.
            fields.extend_from_slice(&[0x83, 0x86]);
        }
    }
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &fields)
}

#[tokio::test]
async fn calls_on_a_unix_socket_may_have_its_path_as_authority() {
    let server = Server::start(workers(1)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.sock");
    let (service, _control) = service();
    let address = Address::Unix { path: path.clone(), mode: None };
    let _listening = open(&server, Endpoint::new("test", Protocol::Http2, address), service);
    for authority in ["localhost", "run%2Fratelimit.sock", "/run/ratelimit.sock"] {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        bytes.extend(request_of_grpcio(1, authority));
        bytes.extend(request_of_grpcio(3, authority));
        assert!(is_answered(unix(&path).await, &bytes, 3).await, "{authority}");
    }
}
