//! Stopping: no new connections, requests in flight finish, the rest is cut.

use std::time::Duration;

use tidegate_server::{Protocol, Server};
use tokio::net::TcpStream;

use crate::client::{
    Client, PATIENCE, endpoint, open, port_of, read, service, tcp, within, workers,
};

#[tokio::test]
async fn requests_in_flight_are_finished_before_the_server_stops() {
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let server = Server::start(workers(2)).unwrap();
        let (service, mut control) = service();
        let listening = open(&server, endpoint(protocol), service);
        let mut client = match protocol {
            Protocol::Auto => Client::one(tcp(&listening).await).await,
            Protocol::Http2 => Client::two(tcp(&listening).await).await,
        };
        let slow = tokio::spawn(client.send("/slow"));
        control.slow_request().await;

        let address = port_of(&listening);
        let stopping = tokio::spawn(server.stop(PATIENCE));
        let closed = async { while TcpStream::connect(address).await.is_ok() {} };
        within("the end of listening", closed).await;
        assert!(!stopping.is_finished(), "a request is in flight");

        control.let_go();
        let response = slow.await.unwrap().unwrap();
        assert_eq!(read(response).await.unwrap().1, "/slow");
        assert_eq!(within("the stop", stopping).await.unwrap(), 0);
        client.closed().await;
    }
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_stop() {
    let server = Server::start(workers(2)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let mut one = Client::one(tcp(&listening).await).await;
    let mut two = Client::two(tcp(&listening).await).await;
    assert_eq!((one.text("/1").await, two.text("/2").await), ("/1".into(), "/2".into()));
    let silent = tcp(&listening).await;
    assert_eq!(within("the stop", server.stop(Duration::from_secs(3_600))).await, 0);
    one.closed().await;
    two.closed().await;
    drop(silent);
    assert_eq!(listening.counts().open, 0);
}

#[tokio::test]
async fn requests_that_exceed_the_grace_are_cut_and_counted() {
    let server = Server::start(workers(2)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::two(tcp(&listening).await).await;
        let slow = tokio::spawn(client.send("/slow"));
        control.slow_request().await;
        clients.push((client, slow));
    }
    assert_eq!(within("the stop", server.stop(Duration::from_millis(10))).await, 3);
    for (client, slow) in clients {
        assert!(slow.await.unwrap().is_err());
        client.closed().await;
    }
    assert_eq!(listening.counts().open, 0);
}

#[tokio::test]
async fn a_dropped_server_closes_everything() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let mut client = Client::two(tcp(&listening).await).await;
    client.text("/").await;
    drop(server);
    client.closed().await;
    let address = port_of(&listening);
    let closed = async { while TcpStream::connect(address).await.is_ok() {} };
    within("the end of listening", closed).await;
}

/// Sends requests on one HTTP/1.1 connection until the server asks to close it. Returns the number of answers, or
/// `None` if a request was lost.
async fn requests_until_close(mut client: Client) -> Option<usize> {
    for answers in 1.. {
        let (response, _) = client.get("/busy").await.ok()?;
        if response.headers().get("connection").is_some_and(|option| option == "close") {
            return Some(answers);
        }
    }
    None
}

#[tokio::test]
async fn busy_http1_clients_that_honour_close_lose_no_request() {
    for announces in [false, true] {
        let server = Server::start(workers(2)).unwrap();
        let (service, _control) = service();
        let listening = open(&server, endpoint(Protocol::Auto), service);
        let mut busy = Vec::new();
        for _ in 0..30 {
            let mut client = Client::one(tcp(&listening).await).await;
            client.text("/first").await;
            busy.push(tokio::spawn(requests_until_close(client)));
        }
        if announces {
            server.announce_stop();
            for busy in busy.drain(..) {
                assert!(within("the close", busy).await.unwrap().is_some(), "a request is lost");
            }
            let mut late = Client::one(tcp(&listening).await).await;
            assert_eq!(late.text("/late").await, "/late", "requests are still served");
            let mut two = Client::two(tcp(&listening).await).await;
            assert_eq!((two.text("/1").await, two.text("/2").await), ("/1".into(), "/2".into()));
        }
        assert_eq!(within("the stop", server.stop(PATIENCE)).await, 0);
        for busy in busy {
            assert!(within("the close", busy).await.unwrap().is_some(), "a request is lost");
        }
    }
}
