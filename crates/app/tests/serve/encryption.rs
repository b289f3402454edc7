//! The gateway over TLS and HTTP/2, with the real binary.

use http::{Method, Version};
use serde_json::Value;

use crate::certificates::{Authority, write};
use crate::client::{Client, Spoken, Told};
use crate::gateway::{folder, start};
use crate::process::{Folder, Start};
use crate::upstream::Upstream;

const OFFERED: [&str; 2] = ["h2", "http/1.1"];

/// A folder whose gateway has a certificate of this authority.
fn certified(upstream: &Upstream, authority: &Authority) -> Folder {
    let folder = folder(upstream);
    write(&folder, &authority.sign("localhost"));
    folder.write("ca.crt", &authority.pem);
    folder
}

fn encrypted(folder: &Folder) -> Start<'_> {
    let files = ["--set", "gateway.tls.cert=tls.crt", "--set", "gateway.tls.key=tls.key"];
    // A busy machine closes nothing.
    let patient = ["--set", "gateway.idle_timeout=1h", "--set", "gateway.header_timeout=1h"];
    start(folder).args(files).args(patient)
}

fn json(told: &Told) -> Value {
    serde_json::from_str(&told.body).unwrap_or_else(|error| panic!("{error}: {told:?}"))
}

#[test]
fn a_client_speaks_what_it_and_the_gateway_agree_on() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let mut serving = encrypted(&folder).serving();
    let address = serving.address("gateway");
    for (offered, spoken, version) in [
        (&OFFERED[..], Spoken::Two, Version::HTTP_2),
        (&["http/1.1"], Spoken::One, Version::HTTP_11),
        (&[], Spoken::One, Version::HTTP_11),
    ] {
        let client = Client::encrypted(&address, &authority, None, offered);
        let (mut client, agreed) = client.expect("it is trusted");
        assert_eq!(agreed, spoken, "{offered:?}");
        // Twice, so that the connection is seen to live on.
        for _ in 0..2 {
            let told = client.get("/x", &[]);
            assert_eq!((told.status, told.version, told.body.as_str()), (200, version, "/x"));
            assert!(upstream.next().contains("x-forwarded-proto: https"));
        }
    }
    let stranger = Authority::new();
    assert!(Client::encrypted(&address, &stranger, None, &OFFERED).is_none());
}

#[test]
fn http2_needs_no_encryption_where_the_client_knows_that_it_is_spoken() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).serving();
    let mut client = Client::plain(&serving.address("gateway"), Spoken::Two);
    let told = client.get("/x", &[]);
    assert_eq!((told.status, told.version), (200, Version::HTTP_2));
    let seen = upstream.next();
    assert!(
        seen.contains("via: 2.0 tidegate") && seen.contains("x-forwarded-proto: http\n"),
        "{seen}"
    );
    let mut client = Client::plain(&serving.address("gateway"), Spoken::One);
    assert_eq!(client.get("/x", &[]).version, Version::HTTP_11);
}

#[test]
fn a_refusal_has_its_fields_in_both_versions() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let mut serving = encrypted(&folder).serving();
    let address = serving.address("gateway");
    for (user, offered) in [("ada", &OFFERED[..]), ("bob", &["http/1.1"])] {
        let client = Client::encrypted(&address, &authority, None, offered);
        let (mut client, _) = client.expect("it is trusted");
        for left in ["1", "0"] {
            let told = client.get("/x", &[("x-user", user)]);
            assert_eq!((told.status, told.header("x-ratelimit-remaining")), (200, left));
        }
        let told = client.get("/x", &[("x-user", user)]);
        assert_eq!((told.status, &json(&told)["code"]), (429, &Value::from("rate_limited")));
        assert_eq!(told.header("content-type"), "application/problem+json");
        assert!(told.header("retry-after").parse::<u64>().expect("seconds") > 0);
        assert_eq!(told.header("x-ratelimit-limit"), "2");
        assert_eq!(told.header("ratelimit-policy"), "\"calls\";q=2;w=31536000");
        // The connection goes on after a refusal.
        assert_eq!(client.get("/x", &[]).status, 200);
    }
}

#[test]
fn a_call_of_grpc_is_refused_with_a_status_that_its_library_reads() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let mut serving = encrypted(&folder).serving();
    let client = Client::encrypted(&serving.address("gateway"), &authority, None, &["h2"]);
    let (mut client, _) = client.expect("it is trusted");
    let call = [("x-user", "ada"), ("content-type", "application/grpc"), ("te", "trailers")];
    for _ in 0..2 {
        assert_eq!(client.post("/shop.Carts/Add", &call, "").status, 200);
        let seen = upstream.next();
        assert!(seen.contains("te: trailers"), "{seen}");
    }
    let told = client.post("/shop.Carts/Add", &call, "");
    assert_eq!((told.status, told.header("grpc-status")), (200, "8"));
    assert_eq!(told.header("content-type"), "application/grpc");
    assert!(told.header("grpc-retry-pushback-ms").parse::<u64>().expect("a time") > 0);
    assert!(!told.header("grpc-status-details-bin").is_empty());
    assert_eq!((told.body.as_str(), told.trailers), ("", None), "trailers only");
}

#[test]
fn trailers_of_an_upstream_reach_a_client_of_http2() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let mut serving = encrypted(&folder).serving();
    let client = Client::encrypted(&serving.address("gateway"), &authority, None, &["h2"]);
    let (mut client, _) = client.expect("it is trusted");
    let told = client.get("/trailers", &[("te", "trailers")]);
    assert_eq!((told.status, told.body.as_str()), (200, "/trailers"));
    let trailers = told.trailers.expect("trailers");
    assert_eq!(trailers.get("x-sum").map(|sum| sum.as_bytes()), Some(&b"42"[..]));
}

#[test]
fn only_clients_with_a_certificate_are_served_where_one_is_asked_for() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let asks =
        ["--set", "gateway.tls.client_ca=ca.crt", "--set", "gateway.tls.client_san=shop.test"];
    let mut serving = encrypted(&folder).args(asks).serving();
    let address = serving.address("gateway");
    let (known, other) = (authority.sign("shop.test"), authority.sign("other.test"));
    let stranger = Authority::new().sign("shop.test");
    for (shown, served) in
        [(Some(&known), true), (Some(&other), false), (Some(&stranger), false), (None, false)]
    {
        for offered in [["h2"], ["http/1.1"]] {
            // A client may learn only with its first request that it is refused.
            let client = Client::encrypted(&address, &authority, shown, &offered);
            let told =
                client.and_then(|(mut client, _)| client.try_send(Method::GET, "/x", &[], ""));
            assert_eq!(told.map(|told| told.status), served.then_some(200), "{offered:?}");
        }
    }
}

#[test]
fn new_connections_see_a_new_certificate_while_old_ones_live_on() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = certified(&upstream, &authority);
    let mut serving = encrypted(&folder).serving();
    let address = serving.address("gateway");
    let (mut two, _) = Client::encrypted(&address, &authority, None, &OFFERED).expect("trusted");
    let (mut one, _) =
        Client::encrypted(&address, &authority, None, &["http/1.1"]).expect("trusted");
    assert_eq!((two.get("/x", &[]).status, one.get("/x", &[]).status), (200, 200));

    folder.write("tls.crt", "no certificate");
    serving.wait_for(|line| {
        line["message"] == "certificates cannot be used; the old stay" && line["door"] == "gateway"
    });
    assert!(Client::encrypted(&address, &authority, None, &OFFERED).is_some());

    let successor = Authority::new();
    write(&folder, &successor.sign("localhost"));
    serving.wait_for(|line| {
        line["message"] == "new certificates are in use" && line["door"] == "gateway"
    });
    assert!(Client::encrypted(&address, &authority, None, &OFFERED).is_none());
    let (mut new, _) = Client::encrypted(&address, &successor, None, &OFFERED).expect("trusted");
    for client in [&mut new, &mut two, &mut one] {
        assert_eq!(client.get("/x", &[]).status, 200);
    }
}
