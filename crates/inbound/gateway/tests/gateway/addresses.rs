//! The client's address, and the fields that forward it.

use http::Request;
use tidegate_engine::ManualClock;
use tidegate_gateway::{
    AddressFrom, DescriptorSettings, EntrySettings, GatewaySettings, PathMatch, RouteSettings,
    ValueFrom,
};
use tidegate_server::{Endpoint, Peer};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{Harness, START, engine, to};
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
async fn an_untrusted_client_cannot_claim_another_address() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_address(to(&[upstream.url()])), ONE_EACH);
    let claiming = |address: &str| {
        let request = Request::get("/").header("x-forwarded-for", address);
        let request = request.header("forwarded", format!("for={address}"));
        request.header("x-real-ip", address).header("x-forwarded-proto", "https")
    };
    assert_eq!(harness.send(claiming("192.0.2.1")).await.status, 200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-forwarded-for"), "127.0.0.1");
    assert_eq!(seen.header("x-forwarded-proto"), "http");
    assert_eq!(seen.header("forwarded"), "for=127.0.0.1;proto=http;host=\"api.test\"");
    assert!(!seen.headers.contains_key("x-real-ip"));
    assert_eq!(harness.send(claiming("192.0.2.2")).await.status, 429);
}

#[tokio::test]
async fn a_trusted_hop_names_the_client_in_the_configured_field() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(trusting(by_address(to(&[upstream.url()]))), ONE_EACH);
    let of = |address: &str| Request::get("/").header("x-forwarded-for", address);
    assert_eq!(harness.send(of("1.1.1.1, 192.0.2.1")).await.status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), "1.1.1.1, 192.0.2.1, 127.0.0.1");
    assert_eq!(harness.send(of("2.2.2.2, 192.0.2.1")).await.status, 429);
    assert_eq!(harness.send(of("192.0.2.2")).await.status, 200);
    // The other field is ignored.
    let other = Request::get("/").header("forwarded", "for=192.0.2.3");
    assert_eq!(harness.send(other).await.status, 200);
    let other = Request::get("/").header("forwarded", "for=192.0.2.4");
    assert_eq!(harness.send(other).await.status, 429);
}

#[tokio::test]
async fn forwarded_is_read_if_it_is_configured() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(by_address(to(&[upstream.url()])));
    settings.address_from = AddressFrom::Forwarded;
    let harness = Harness::limited(settings, ONE_EACH);
    let of = |node: &str| Request::get("/").header("forwarded", format!("for={node}"));
    assert_eq!(harness.send(of("\"[2001:db8::1]:5\"")).await.status, 200);
    let reply = upstream.last().header("forwarded").to_owned();
    assert!(reply.starts_with("for=\"[2001:db8::1]:5\", for=127.0.0.1;"), "{reply}");
    // A client chooses the last 64 bits of its address itself.
    assert_eq!(harness.send(of("\"[2001:db8::ffff]\"")).await.status, 429);
    assert_eq!(harness.send(of("\"[2001:db8:0:1::1]\"")).await.status, 200);
}

#[tokio::test]
async fn a_trusted_hop_names_the_client_with_the_proxy_protocol() {
    let upstream = Upstream::start().await;
    let proxied =
        |endpoint: Endpoint| endpoint.proxy_protocol_from(vec!["127.0.0.0/8".parse().unwrap()]);
    let settings = by_address(to(&[upstream.url()]));
    let engine = engine(ONE_EACH, ManualClock::at(START));
    let harness = Harness::with(engine, settings, Default::default(), proxied);
    let get = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let one = format!("PROXY TCP4 192.0.2.9 127.0.0.1 4711 80\r\n{get}");
    assert!(harness.raw(&one).await.starts_with("HTTP/1.1 200"));
    assert_eq!(upstream.last().header("x-forwarded-for"), "192.0.2.9");
    assert!(harness.raw(&one).await.starts_with("HTTP/1.1 429"));
    // Without the header the connection is closed.
    assert_eq!(harness.raw(get).await, "");
    assert_eq!(harness.raw("PROXY TCP4 nonsense\r\n").await, "");
}

#[tokio::test]
async fn a_proxy_header_of_an_untrusted_client_is_rejected() {
    let upstream = Upstream::start().await;
    let elsewhere =
        |endpoint: Endpoint| endpoint.proxy_protocol_from(vec!["192.0.2.0/24".parse().unwrap()]);
    let engine = engine("- key: none", ManualClock::at(START));
    let harness = Harness::with(engine, to(&[upstream.url()]), Default::default(), elsewhere);
    let mut stream = harness.connect().await;
    stream.write_all(b"PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n").await.unwrap();
    drop(stream);
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), "127.0.0.1");
    let claimed = harness.raw("PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n\r\n").await;
    assert!(claimed.starts_with("HTTP/1.1 400"), "{claimed}");
}

#[tokio::test]
async fn the_forwarding_fields_can_be_configured() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    harness.send(Request::get("/").header("via", "1.0 fred")).await;
    assert_eq!(upstream.last().header("via"), "1.0 fred, 1.1 tidegate");

    let mut settings = to(&[upstream.url()]);
    settings.provenance.via = None;
    settings.provenance.x_forwarded = false;
    settings.provenance.forwarded = false;
    let harness = Harness::open(settings);
    harness.get("/").await;
    for name in ["via", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
        assert!(!upstream.last().headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn a_peer_without_an_address_is_forwarded_as_unknown() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let service = harness.gateway.for_peer(&Peer { encrypted: true, ..Peer::default() });
    let request = Request::get("/").header("host", "a").body(http_body_util::Empty::new()).unwrap();
    let answer = hyper::service::Service::call(&service, request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let seen = upstream.last();
    assert_eq!(seen.header("forwarded"), "for=unknown;proto=https;host=\"a\"");
    assert_eq!(seen.header("x-forwarded-proto"), "https");
}

#[tokio::test]
async fn a_route_serves_only_the_networks_that_it_allows() {
    let upstream = Upstream::start().await;
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let mut settings = to(&[upstream.url()]);
    settings.trusted_hops = networks(&["127.0.0.1/32"]);
    settings.routes[0].allow = networks(&["10.0.0.0/8", "2001:db8::/32"]);
    settings.routes[0].deny = networks(&["10.1.0.0/16"]);
    let mut open = RouteSettings::new("open", "api");
    open.path = PathMatch::Prefix("/open".into());
    open.deny = networks(&["203.0.113.0/24"]);
    open.exempt = true;
    settings.routes.insert(0, open);
    let harness = Harness::open(settings);
    for (path, client, expected) in [
        ("/", "10.2.0.1", 200),
        ("/", "2001:db8::7", 200),
        ("/", "::ffff:10.2.0.1", 200),
        ("/", "10.1.0.1", 403),
        ("/", "198.51.100.7", 403),
        // The connection's own address.
        ("/", "unknown", 403),
        ("/open", "198.51.100.7", 200),
        ("/open", "203.0.113.9", 403),
    ] {
        let reply = harness.send(Request::get(path).header("x-forwarded-for", client)).await;
        assert_eq!(reply.status, expected, "{path} {client}");
        if expected == 403 {
            assert_eq!(reply.json()["code"], "network_denied");
        }
    }
    assert_eq!(upstream.seen().len(), 4);
    let call = Request::post("/").header("content-type", "application/grpc");
    assert_eq!(harness.two().await.send(call, "").await.header("grpc-status"), "7");
}
