//! HTTP/2 frames written by hand: invalid requests are not forwarded.

use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Harness, to, within};
use crate::upstream::Upstream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

/// Fields as literals without indexing or Huffman coding.
fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Whether the stream was rejected, and the number of requests forwarded.
async fn sent(fields: &[(&str, &str)], body: &[u8]) -> (bool, usize) {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let mut stream = harness.connect().await;
    let pseudo =
        [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "a.test")];
    let own = |name: &str| fields.iter().any(|(other, _)| *other == name);
    let mut all: Vec<_> = pseudo.into_iter().filter(|(name, _)| !own(name)).collect();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for field in fields {
        if field.0.starts_with(':') { front.push(*field) } else { back.push(*field) }
    }
    all.splice(0..0, front);
    all.extend(back);
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &literals(&all)));
    bytes.extend(frame(DATA, END_STREAM, 1, body));
    stream.write_all(&bytes).await.unwrap();
    let refused = within("an answer", async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return true;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut payload).await.unwrap();
            match head[3] {
                RESET | GO_AWAY => return true,
                // The first byte of a response's fields is its status: 200 or another.
                HEADERS => return payload[0] != 0x88,
                _ => {}
            }
        }
    })
    .await;
    (refused, upstream.seen().len())
}

#[tokio::test]
async fn a_request_written_by_hand_passes() {
    assert_eq!(sent(&[], b"body").await, (false, 1));
    assert_eq!(sent(&[("content-length", "4")], b"body").await, (false, 1));
}

#[tokio::test]
async fn a_length_that_is_repeated_in_http_2_is_forwarded_once() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let twice = Request::post("/echo").header("content-length", "4").header("content-length", "4");
    assert_eq!(harness.two().await.send(twice, "body").await.body, "body");
    let lengths = upstream.last().headers.get_all("content-length").iter().count();
    assert_eq!(lengths, 1);
}

#[tokio::test]
async fn http_1_fields_and_wrong_lengths_are_rejected_in_http_2() {
    for fields in [
        &[("transfer-encoding", "chunked")][..],
        &[("connection", "keep-alive")],
        &[("te", "gzip")],
        &[("content-length", "3")],
        &[("content-length", "5")],
        &[("content-length", "4"), ("content-length", "5")],
        &[("Upper", "case")],
        &[("x-a", "b\r\nx-evil: 1")],
        &[("x-a\r\nx-evil", "1")],
        &[("host", "other.test")],
        &[(":path", "/ HTTP/1.1\r\nhost: evil\r\n")],
        &[(":path", "/a b")],
        &[(":path", "")],
        &[(":method", "GET / HTTP/1.1")],
        &[(":authority", "u@a.test")],
        &[(":authority", "x,y")],
        &[(":authority", "x:abc")],
        &[(":scheme", "ftp")],
    ] {
        assert_eq!(sent(fields, b"body").await, (true, 0), "{fields:?}");
    }
}
