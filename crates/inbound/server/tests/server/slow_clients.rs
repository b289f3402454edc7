//! Clients that read slowly or not at all, and services that are silent.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tidegate_server::{BoundEndpoint, ConnectionLimits, Protocol, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, limited, open, read, service, tcp, until, within, workers};

const SOON: Duration = Duration::from_millis(50);

/// A client must read a thousand bytes per second, on average over a moment. Idle connections stay.
const READING: ConnectionLimits = ConnectionLimits {
    connections_max: 100,
    streams_max: 100,
    header_bytes_max: 16 * 1024,
    header_timeout: Duration::from_secs(3_600),
    idle_timeout: None,
    send_rate_min: 1_000,
    send_rate_window: SOON,
    send_rate_window_pressed: SOON,
    held_bytes_max: 64 * 1024,
    held_bytes_total: 1 << 30,
    evict_after: None,
    keepalive: None,
    age_max: None,
    age_grace: Duration::ZERO,
};

/// Waits until the server has closed an idle connection, so that it has checked all others several times.
async fn idle_timeout_passes(listening: &BoundEndpoint) {
    let mut idle = Client::two(tcp(listening).await).await;
    idle.text("/idle").await;
    idle.closed().await;
}

#[tokio::test]
async fn a_response_may_be_silent_for_longer_than_the_idle_timeout() {
    let server = Server::start(workers(1)).unwrap();
    let (service, control) = service();
    let limits = ConnectionLimits { idle_timeout: Some(SOON), send_rate_min: u32::MAX, ..READING };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    let mut one = Client::one(tcp(&listening).await).await;
    let mut two = Client::two(tcp(&listening).await).await;
    let first = within("a response", one.send("/silent")).await.unwrap();
    let second = within("a response", two.send("/silent")).await.unwrap();
    idle_timeout_passes(&listening).await;
    idle_timeout_passes(&listening).await;
    assert_eq!(two.text("/more").await, "/more", "the connection accepts requests");
    control.let_go();
    for response in [first, second] {
        assert_eq!(read(response).await.unwrap().1, "first last");
    }
    assert_eq!(one.text("/after").await, "/after", "the connection is kept");
}

#[tokio::test]
async fn an_http1_client_that_does_not_read_is_cut_off() {
    let server = Server::start(workers(1)).unwrap();
    let (service, control) = service();
    let listening = open(&server, limited(Protocol::Auto, READING), service);
    let before = control.alive();
    let mut stream = tcp(&listening).await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    until("the response", || control.alive() > before).await;
    until("the end of the response", || control.alive() == before).await;
    until("the end of the connection", || listening.counts().open == 0).await;
}

#[tokio::test]
async fn an_http1_client_that_reads_fast_enough_is_not_cut_off() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let limits = ConnectionLimits { idle_timeout: Some(SOON), ..READING };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    let mut stream = tcp(&listening).await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let mut piece = vec![0; 64 * 1024];
    for _ in 0..3 {
        let reads = async {
            loop {
                let length = stream.read(&mut piece).await.unwrap();
                assert!(length > 0, "the server broke off");
            }
        };
        tokio::select! {
            () = idle_timeout_passes(&listening) => {}
            () = reads => {}
        }
    }
}

#[tokio::test]
async fn an_http2_stream_whose_client_does_not_read_is_reset_and_others_go_on() {
    let server = Server::start(workers(1)).unwrap();
    let (service, control) = service();
    let listening = open(&server, limited(Protocol::Auto, READING), service);
    for window in [0, 16] {
        let mut client = Client::two_with_window(tcp(&listening).await, window).await;
        within("a response", client.send("/first")).await.unwrap();
        let before = control.alive();
        let response = within("a response", client.send("/endless")).await.unwrap();
        until("the end of the response", || control.alive() == before).await;
        assert!(response.into_body().collect().await.is_err(), "the stream is reset");
        let after = within("a response", client.send("/after")).await;
        assert_eq!(after.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_response_ends_at_its_deadline_although_its_client_does_not_read() {
    let server = Server::start(workers(1)).unwrap();
    let (service, control) = service();
    let limits = ConnectionLimits { send_rate_min: 0, ..READING };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    for is_http2 in [false, true] {
        let mut client = match is_http2 {
            false => Client::one(tcp(&listening).await).await,
            true => Client::two_with_window(tcp(&listening).await, 16).await,
        };
        client.text("/first").await;
        let before = control.alive();
        let response = within("a response", client.send("/deadline")).await.unwrap();
        until("the end of the response", || control.alive() <= before).await;
        assert!(response.into_body().collect().await.is_err(), "it is incomplete");
    }
}

#[tokio::test]
async fn an_http2_connection_may_hold_only_so_many_bytes_of_heads() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, limited(Protocol::Auto, READING), service);
    let mut client = Client::two(tcp(&listening).await).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(tokio::spawn(client.send_with("/slow", 14_000)));
        control.slow_request().await;
    }
    let refused = within("a refusal", client.send_with("/slow", 14_000)).await.unwrap_err();
    assert_eq!(reason(&refused), Some(h2::Reason::REFUSED_STREAM), "{refused:?}");
    control.let_go();
    for slow in slow {
        assert_eq!(slow.await.unwrap().unwrap().status(), 200);
    }
    let after = within("a response", client.send_with("/after", 14_000)).await;
    assert_eq!(after.unwrap().status(), 200);
}

fn reason(error: &hyper::Error) -> Option<h2::Reason> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<h2::Error>()?.reason()
}
