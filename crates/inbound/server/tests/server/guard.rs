//! Limits on connections by network, before TLS.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidegate_algorithms::Mode;
use tidegate_metrics::{Collector as _, Exposition, Format};
use tidegate_server::{
    BoundEndpoint, ConnectionGuard, ConnectionLimits, Endpoint, GuardSettings, Protocol, Server,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Client, endpoint, open, port_of, service, tcp, until, within, workers};

/// No limit but those that a test sets.
fn unlimited() -> GuardSettings {
    GuardSettings {
        open_max: None,
        rate: None,
        handshakes_max: None,
        door_handshakes_max: None,
        ..GuardSettings::default()
    }
}

fn guarded(settings: GuardSettings, mode: Mode) -> (Endpoint, Arc<ConnectionGuard>) {
    let guard = Arc::new(ConnectionGuard::new(settings, mode));
    (endpoint(Protocol::Auto).guard(Arc::clone(&guard)), guard)
}

/// Connects from an address of the loopback network.
async fn from(listening: &BoundEndpoint, last: u8) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    socket.connect(port_of(listening)).await
}

/// Whether the server resets a connection, which the client may notice while it connects.
async fn is_reset(connected: io::Result<TcpStream>) -> bool {
    let read = async { connected?.read(&mut [0]).await };
    match within("an answer", read).await {
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        Ok(_) => false,
    }
}

/// The value of a sample on the page of metrics.
fn metric(guard: &ConnectionGuard, sample: &str) -> u64 {
    let mut page = Exposition::new(Format::Prometheus);
    guard.collect(&mut page);
    let page = page.finish();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} is not in\n{page}"))
        .parse()
        .expect("a sample is a number")
}

#[tokio::test]
async fn a_network_with_too_many_connections_is_reset_and_others_are_served() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let settings = GuardSettings { open_max: Some(2), ..unlimited() };
    let (endpoint, guard) = guarded(settings, Mode::ENFORCE);
    let listening = open(&server, endpoint, service);
    let first = from(&listening, 2).await.unwrap();
    let mut second = Client::one(from(&listening, 2).await.unwrap()).await;
    assert_eq!(second.text("/2").await, "/2");
    assert!(is_reset(from(&listening, 2).await).await);
    let mut other = Client::one(from(&listening, 3).await.unwrap()).await;
    assert_eq!(other.text("/3").await, "/3");
    let refused =
        "tidegate_connections_refused_total{door=\"test\",cause=\"open\",mode=\"enforce\"}";
    assert_eq!(metric(&guard, refused), 1);

    drop(first);
    until("the end of the first connection", || listening.counts().open == 2).await;
    let mut third = Client::one(from(&listening, 2).await.unwrap()).await;
    assert_eq!(third.text("/4").await, "/4");
}

#[tokio::test]
async fn in_shadow_nothing_is_refused_and_everything_is_counted() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let settings = GuardSettings { open_max: Some(0), ..unlimited() };
    let (endpoint, guard) = guarded(settings, Mode::Shadow);
    let listening = open(&server, endpoint, service);
    assert_eq!(Client::one(tcp(&listening).await).await.text("/").await, "/");
    let counted =
        "tidegate_connections_refused_total{door=\"test\",cause=\"open\",mode=\"shadow\"}";
    assert_eq!(metric(&guard, counted), 1);
    guard.set_mode(Mode::ENFORCE);
    assert!(is_reset(from(&listening, 2).await).await);
}

#[tokio::test]
async fn a_client_behind_a_trusted_proxy_is_limited_by_the_address_that_the_header_names() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let settings = GuardSettings { open_max: Some(1), ..unlimited() };
    let (endpoint, guard) = guarded(settings, Mode::ENFORCE);
    let listening =
        open(&server, endpoint.proxy_protocol_from(vec!["127.0.0.2/32".parse().unwrap()]), service);
    let named = async |client: &str| {
        let mut stream = from(&listening, 2).await.unwrap();
        let header = format!("PROXY TCP4 {client} 127.0.0.1 5000 80\r\n");
        stream.write_all(header.as_bytes()).await.unwrap();
        stream
    };
    let mut first = Client::one(named("192.0.2.1").await).await;
    assert_eq!(first.text("/1").await, "/1");
    assert!(is_reset(Ok(named("192.0.2.1").await)).await);
    let mut other = Client::one(named("192.0.2.2").await).await;
    assert_eq!(other.text("/2").await, "/2");
    // Health checks of the proxy name nobody, and are not limited.
    for _ in 0..2 {
        let mut stream = from(&listening, 2).await.unwrap();
        stream.write_all(b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        within("an answer", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    // Another client cannot claim an address: the header is not read from it.
    let mut spoofing = from(&listening, 3).await.unwrap();
    spoofing.write_all(b"PROXY TCP4 192.0.2.9 127.0.0.1 5000 80\r\n").await.unwrap();
    let mut answer = Vec::new();
    within("an answer", spoofing.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    let networks: Vec<_> =
        guard.networks(9).into_iter().map(|one| one.network.to_string()).collect();
    assert!(!networks.contains(&"192.0.2.9/32".to_owned()), "{networks:?}");
}

#[tokio::test]
async fn a_full_door_closes_the_newest_connection_of_the_greediest_network() {
    let server = Server::start(workers(2)).unwrap();
    let (service, _control) = service();
    let limits =
        ConnectionLimits { connections_max: 5, evict_after: None, ..ConnectionLimits::default() };
    let (endpoint, guard) = guarded(unlimited(), Mode::ENFORCE);
    let listening = open(&server, endpoint.limits(limits), service);
    let mut honest = Client::one(from(&listening, 2).await.unwrap()).await;
    assert_eq!(honest.text("/1").await, "/1");
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut client = Client::one(from(&listening, 3).await.unwrap()).await;
        assert_eq!(client.text("/").await, "/");
        greedy.push(client);
    }
    // One more of the greedy network is itself the newest.
    assert!(is_reset(from(&listening, 3).await).await);
    // Another network gets the place of its newest.
    let mut newcomer = Client::one(from(&listening, 4).await.unwrap()).await;
    assert_eq!(newcomer.text("/2").await, "/2");
    until("the end of the newest", || listening.counts().open == 5).await;
    assert!(greedy.pop().unwrap().get("/").await.is_err());
    assert_eq!(greedy.pop().unwrap().text("/3").await, "/3");
    assert_eq!(honest.text("/4").await, "/4");
    let refused =
        "tidegate_connections_refused_total{door=\"test\",cause=\"door_full\",mode=\"enforce\"}";
    assert_eq!(metric(&guard, refused), 2);
}

#[tokio::test]
async fn a_flood_from_one_network_leaves_others_their_places_and_gives_its_own_back() {
    let server = Server::start(workers(2)).unwrap();
    let (service, _control) = service();
    let settings = GuardSettings { open_max: Some(20), ..unlimited() };
    let (endpoint, guard) = guarded(settings, Mode::ENFORCE);
    let limits = ConnectionLimits { connections_max: 50, ..ConnectionLimits::default() };
    let listening = open(&server, endpoint.limits(limits), service);
    for _ in 0..2 {
        let mut held = Vec::new();
        for _ in 0..300 {
            held.extend(from(&listening, 2).await);
        }
        until("the last of those that it may have", || listening.counts().open == 20).await;
        for last in 3..30 {
            let mut other = Client::one(from(&listening, last).await.unwrap()).await;
            assert_eq!(other.text("/").await, "/", "127.0.0.{last}");
        }
        drop(held);
        until("the end of all", || listening.counts().open == 0).await;
    }
    let refused =
        "tidegate_connections_refused_total{door=\"test\",cause=\"open\",mode=\"enforce\"}";
    assert_eq!(metric(&guard, refused), 2 * 280);
}

#[tokio::test]
async fn the_server_stops_while_it_is_flooded() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let settings = GuardSettings { open_max: Some(5), ..unlimited() };
    let (endpoint, guard) = guarded(settings, Mode::ENFORCE);
    let listening = open(&server, endpoint, service);
    let flooded = listening.clone();
    let flood = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            match from(&flooded, 2).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
                Ok(connected) if held.len() < 5 => held.push(connected),
                Ok(_) | Err(_) => {}
            }
        }
    });
    until("a refusal", || guard.networks(1).first().is_some_and(|one| one.refused > 50)).await;
    within("the stop", server.stop(std::time::Duration::from_secs(5))).await;
    within("the end of the flood", flood).await.unwrap();
    assert_eq!(listening.counts().open, 0);
}
