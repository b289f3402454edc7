//! Over real connections.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_http_api::HttpApiSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{Bench, asking, settings};

/// Serves the bench's door on a free port, until the test ends.
async fn serve(bench: &Bench) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = bench.api.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), api.clone()));
        }
    });
    address
}

/// Sends these bytes, and reads one whole answer: its head and its body.
async fn exchange(stream: &mut TcpStream, question: &[u8]) -> (String, String) {
    stream.write_all(question).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return (head, body.to_owned());
            }
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "the answer breaks off: {text}");
        answer.extend_from_slice(&piece[..read]);
    }
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test]
async fn one_connection_carries_many_questions() {
    let bench = Bench::new();
    let mut stream = TcpStream::connect(serve(&bench).await).await.unwrap();
    let question = post("/v1/check", &asking("user", "ada").to_string());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (head, body) = exchange(&mut stream, &question).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        statuses.push((head.lines().next().unwrap().to_owned(), body["admitted"].clone()));
    }
    let ok = ("http/1.1 200 ok".to_owned(), json!(true));
    let refused = ("http/1.1 429 too many requests".to_owned(), json!(false));
    assert_eq!(statuses, [ok.clone(), ok, refused]);
    let (head, body) = exchange(&mut stream, b"GET /healthcheck HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 200 ok"), "{head}");
    assert_eq!(body, "OK");
}

#[tokio::test]
async fn a_body_in_chunks_is_read_and_one_without_end_is_not() {
    let settings = HttpApiSettings { body_bytes_max: 4_096, ..settings() };
    let bench = Bench::with(settings);
    let address = serve(&bench).await;
    let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = asking("user", "ada").to_string();
    let (one, other) = body.split_at(20);
    let chunked =
        format!("{head}{:x}\r\n{one}\r\n{:x}\r\n{other}\r\n0\r\n\r\n", one.len(), other.len());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (answer, _) = exchange(&mut stream, chunked.as_bytes()).await;
    assert!(answer.starts_with("http/1.1 200 ok"), "{answer}");

    // The last chunk never comes, and the answer does not wait for it.
    let chunk = format!("{:x}\r\n{}\r\n", 4_000, " ".repeat(4_000));
    let endless = format!("{head}{chunk}{chunk}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (answer, body) = exchange(&mut stream, endless.as_bytes()).await;
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    assert!(body.contains("larger than 4096 bytes"), "{body}");
}

#[tokio::test]
async fn an_oversized_body_is_refused_before_it_is_sent() {
    let bench = Bench::new();
    let mut stream = TcpStream::connect(serve(&bench).await).await.unwrap();
    let question = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n";
    let (answer, _) = exchange(&mut stream, question).await;
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn connections_share_one_budget() {
    let bench = Arc::new(Bench::new());
    let address = serve(&bench).await;
    let mut admitted = 0;
    for _ in 0..4 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let question = post("/v1/check?status=200", &asking("user", "ada").to_string());
        let (_, body) = exchange(&mut stream, &question).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        admitted += u32::from(body["admitted"] == true);
    }
    assert_eq!(admitted, 2);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let body_timeout = std::time::Duration::from_millis(20);
    let bench = Bench::with(HttpApiSettings { body_timeout, ..HttpApiSettings::default() });
    let address = serve(&bench).await;
    for path in ["/v1/check", "/v1/release", "/v1/explain"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let half = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{{");
        let (answer, body) = exchange(&mut stream, half.as_bytes()).await;
        assert!(answer.starts_with("http/1.1 408 "), "{answer}");
        assert!(body.contains("did not arrive in time"), "{body}");
    }
}
