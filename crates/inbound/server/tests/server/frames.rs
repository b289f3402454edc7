//! HTTP/2 frames written by hand: many streams that are reset before they are accepted.

use tidegate_server::{BoundEndpoint, ConnectionLimits, Protocol, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{limited, open, service, tcp, within, workers};

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
    let mut stream = tcp(listening).await;
    stream.write_all(&bytes).await.expect("sent");
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
