//! For whom a request is, and what upstreams are told of it.

use http::Request;
use tidegate_engine::ManualClock;
use tidegate_gateway::{
    AddressFrom, DescriptorSettings, EntrySettings, GatewaySettings, ValueFrom,
};
use tidegate_server::{Endpoint, Peer};
use tokio::io::AsyncWriteExt as _;

use crate::bench::{Bench, START, engine, to};
use crate::upstream::Upstream;

/// One request for each address.
const ONE_EACH: &str = "- key: address\n  limits: [{algorithm: token_bucket, unit: hour, \
                        requests_per_unit: 1}]";

fn by_address(mut settings: GatewaySettings) -> GatewaySettings {
    let address = ValueFrom::Address { v4_bits: 32, v6_bits: 64 };
    settings.routes[0].descriptors =
        vec![DescriptorSettings::new([EntrySettings::new("address", address)])];
    settings
}

fn trusting(mut settings: GatewaySettings) -> GatewaySettings {
    settings.trusted_hops = vec!["127.0.0.0/8".parse().unwrap()];
    settings
}

#[tokio::test]
async fn a_stranger_cannot_claim_another_address() {
    let upstream = Upstream::start().await;
    let bench = Bench::limited(by_address(to(&[upstream.url()])), ONE_EACH);
    let claiming = |address: &str| {
        let request = Request::get("/").header("x-forwarded-for", address);
        let request = request.header("forwarded", format!("for={address}"));
        request.header("x-real-ip", address).header("x-forwarded-proto", "https")
    };
    assert_eq!(bench.send(claiming("192.0.2.1")).await.status, 200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-forwarded-for"), "127.0.0.1");
    assert_eq!(seen.header("x-forwarded-proto"), "http");
    assert_eq!(seen.header("forwarded"), "for=127.0.0.1;proto=http;host=\"api.test\"");
    assert!(!seen.headers.contains_key("x-real-ip"));
    assert_eq!(bench.send(claiming("192.0.2.2")).await.status, 429);
}

#[tokio::test]
async fn a_trusted_hop_names_the_client_in_the_field_that_is_read() {
    let upstream = Upstream::start().await;
    let bench = Bench::limited(trusting(by_address(to(&[upstream.url()]))), ONE_EACH);
    let of = |address: &str| Request::get("/").header("x-forwarded-for", address);
    assert_eq!(bench.send(of("1.1.1.1, 192.0.2.1")).await.status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), "1.1.1.1, 192.0.2.1, 127.0.0.1");
    assert_eq!(bench.send(of("2.2.2.2, 192.0.2.1")).await.status, 429);
    assert_eq!(bench.send(of("192.0.2.2")).await.status, 200);
    // The other field is not the one that is read.
    let other = Request::get("/").header("forwarded", "for=192.0.2.3");
    assert_eq!(bench.send(other).await.status, 200);
    let other = Request::get("/").header("forwarded", "for=192.0.2.4");
    assert_eq!(bench.send(other).await.status, 429);
}

#[tokio::test]
async fn forwarded_is_read_where_it_is_chosen() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(by_address(to(&[upstream.url()])));
    settings.address_from = AddressFrom::Forwarded;
    let bench = Bench::limited(settings, ONE_EACH);
    let of = |node: &str| Request::get("/").header("forwarded", format!("for={node}"));
    assert_eq!(bench.send(of("\"[2001:db8::1]:5\"")).await.status, 200);
    let told = upstream.last().header("forwarded").to_owned();
    assert!(told.starts_with("for=\"[2001:db8::1]:5\", for=127.0.0.1;"), "{told}");
    // A client chooses the last 64 bits of its address itself.
    assert_eq!(bench.send(of("\"[2001:db8::ffff]\"")).await.status, 429);
    assert_eq!(bench.send(of("\"[2001:db8:0:1::1]\"")).await.status, 200);
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client_when_a_trusted_hop_speaks_it() {
    let upstream = Upstream::start().await;
    let proxied =
        |endpoint: Endpoint| endpoint.proxy_protocol_from(vec!["127.0.0.0/8".parse().unwrap()]);
    let settings = by_address(to(&[upstream.url()]));
    let engine = engine(ONE_EACH, ManualClock::at(START));
    let bench = Bench::with(engine, settings, Default::default(), proxied);
    let get = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let one = format!("PROXY TCP4 192.0.2.9 127.0.0.1 4711 80\r\n{get}");
    assert!(bench.raw(&one).await.starts_with("HTTP/1.1 200"));
    assert_eq!(upstream.last().header("x-forwarded-for"), "192.0.2.9");
    assert!(bench.raw(&one).await.starts_with("HTTP/1.1 429"));
    // Without the header there is no connection.
    assert_eq!(bench.raw(get).await, "");
    assert_eq!(bench.raw("PROXY TCP4 nonsense\r\n").await, "");
}

#[tokio::test]
async fn the_proxy_protocol_of_a_stranger_is_no_request() {
    let upstream = Upstream::start().await;
    let elsewhere =
        |endpoint: Endpoint| endpoint.proxy_protocol_from(vec!["192.0.2.0/24".parse().unwrap()]);
    let engine = engine("- key: none", ManualClock::at(START));
    let bench = Bench::with(engine, to(&[upstream.url()]), Default::default(), elsewhere);
    let mut stream = bench.connect().await;
    stream.write_all(b"PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n").await.unwrap();
    drop(stream);
    assert_eq!(bench.get("/").await.status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), "127.0.0.1");
    let claimed = bench.raw("PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n\r\n").await;
    assert!(claimed.starts_with("HTTP/1.1 400"), "{claimed}");
}

#[tokio::test]
async fn what_is_told_of_provenance_can_be_chosen() {
    let upstream = Upstream::start().await;
    let bench = Bench::open(to(&[upstream.url()]));
    bench.send(Request::get("/").header("via", "1.0 fred")).await;
    assert_eq!(upstream.last().header("via"), "1.0 fred, 1.1 tidegate");

    let mut settings = to(&[upstream.url()]);
    settings.provenance.via = None;
    settings.provenance.x_forwarded = false;
    settings.provenance.forwarded = false;
    let bench = Bench::open(settings);
    bench.get("/").await;
    for name in ["via", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
        assert!(!upstream.last().headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn a_peer_without_an_address_is_told_as_unknown() {
    let upstream = Upstream::start().await;
    let bench = Bench::open(to(&[upstream.url()]));
    let service = bench.gateway.for_peer(&Peer { encrypted: true, ..Peer::default() });
    let request = Request::get("/").header("host", "a").body(http_body_util::Empty::new()).unwrap();
    let answer = hyper::service::Service::call(&service, request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let seen = upstream.last();
    assert_eq!(seen.header("forwarded"), "for=unknown;proto=https;host=\"a\"");
    assert_eq!(seen.header("x-forwarded-proto"), "https");
}
