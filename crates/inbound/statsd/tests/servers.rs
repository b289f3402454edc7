//! The sender and real sockets: streams, datagrams, a Unix socket, a server that comes late.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tidegate_metrics::{Collector as _, Exposition, Format};
use tidegate_statsd::{
    LineFormat, Sender, SenderFigures, StatsReading, StatsdAddress, StatsdSettings,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, UdpSocket, UnixDatagram};

fn settings(address: StatsdAddress) -> StatsdSettings {
    StatsdSettings {
        address,
        format: LineFormat::Statsd,
        tags: Vec::new(),
        mogrifiers: Vec::new(),
        flush_interval: Duration::from_millis(10),
    }
}

fn sender(settings: StatsdSettings) -> Sender {
    Sender::new(settings, Arc::default())
}

fn counters(counts: impl IntoIterator<Item = (String, u64)>) -> StatsReading {
    StatsReading { counters: counts.into_iter().collect(), ..StatsReading::default() }
}

fn one(count: u64) -> StatsReading {
    counters([("a".to_owned(), count)])
}

#[tokio::test]
async fn a_stream_receives_growth() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let mut sender = sender(settings(StatsdAddress::Tcp(address)));
    sender.flush(&one(3)).await.unwrap();
    sender.flush(&one(5)).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut received = [0; 12];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"a:3|c\na:2|c\n");
}

#[tokio::test]
async fn datagrams_hold_whole_lines_and_fit_a_frame() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let mut sender = sender(settings(StatsdAddress::Udp(address)));
    let names: BTreeMap<String, u64> =
        (0..500).map(|number| (format!("ratelimit.service.limit_{number:04}"), 1)).collect();
    sender.flush(&counters(names.clone())).await.unwrap();
    let mut lines = Vec::new();
    let mut buffer = vec![0; 65_536];
    while lines.len() < names.len() {
        let length = server.recv(&mut buffer).await.unwrap();
        assert!(length <= 1_432, "{length}");
        let packet = std::str::from_utf8(&buffer[..length]).unwrap();
        lines.extend(packet.lines().map(str::to_owned));
    }
    let expected: Vec<_> = names.keys().map(|name| format!("{name}:1|c")).collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_unix_socket_receives_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dsd.socket");
    let server = UnixDatagram::bind(&path).unwrap();
    let mut sender = sender(settings(StatsdAddress::Unix(path)));
    sender.flush(&one(7)).await.unwrap();
    let mut buffer = [0; 64];
    let length = server.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"a:7|c\n");
}

#[tokio::test]
async fn counts_wait_for_a_server_that_is_not_there_yet() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut sender = sender(settings(StatsdAddress::Tcp(address.to_string())));
    sender.flush(&one(3)).await.unwrap_err();
    let server = TcpListener::bind(address).await.unwrap();
    sender.flush(&one(4)).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut received = [0; 6];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"a:4|c\n");
}

#[tokio::test]
async fn the_beat_sends_what_has_grown_since() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let sender = sender(settings(StatsdAddress::Udp(address)));
    let count = std::sync::atomic::AtomicU64::new(0);
    let read = || one(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let receive = async {
        let mut buffer = [0; 64];
        for _ in 0..3 {
            let length = server.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], b"a:1|c\n");
        }
    };
    tokio::select! {
        () = sender.run(read, pending()) => unreachable!("it runs until it is dropped"),
        () = receive => {}
    }
}

#[tokio::test]
async fn a_server_that_restarts_loses_no_count_and_gets_none_twice() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let figures: Arc<SenderFigures> = Arc::default();
    let settings = settings(StatsdAddress::Tcp(address.to_string()));
    let mut sender = Sender::new(settings, Arc::clone(&figures));
    sender.flush(&one(3)).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut received = [0; 6];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"a:3|c\n");
    drop((stream, server));
    // The runtime reads events of sockets after a bounded number of turns.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    sender.flush(&one(4)).await.unwrap_err();
    let server = TcpListener::bind(address).await.unwrap();
    sender.flush(&one(9)).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"a:6|c\n");
    let mut page = Exposition::new(Format::Prometheus);
    figures.collect(&mut page);
    let page = page.finish();
    assert!(page.contains("tidegate_statsd_lines_total{result=\"sent\"} 2"), "{page}");
    assert!(page.contains("tidegate_statsd_lines_total{result=\"failed\"} 1"), "{page}");
}

#[tokio::test]
async fn the_last_counts_are_sent_when_it_stops() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    let hour = Duration::from_secs(3_600);
    let settings = StatsdSettings { flush_interval: hour, ..settings(StatsdAddress::Udp(address)) };
    let count = std::sync::atomic::AtomicU64::new(5);
    let read = || one(count.load(std::sync::atomic::Ordering::Relaxed));
    let mut buffer = [0; 64];
    let stop = async {
        let length = server.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"a:5|c\n");
        count.store(7, std::sync::atomic::Ordering::Relaxed);
    };
    sender(settings).run(read, stop).await;
    let length = server.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"a:2|c\n");
}
