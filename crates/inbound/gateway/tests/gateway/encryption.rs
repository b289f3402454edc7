//! Upstreams with TLS.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tidegate_gateway::{JwtKey, JwtSettings, KeySetUrl, UpstreamProtocol};
use tidegate_server::{Address, Endpoint, Protocol, RequestBody, Server, Tls, TlsFiles};

use crate::harness::{Harness, to, until};

/// A TLS server for `api.test` that responds with the version of the request.
fn encrypted(directory: &TempDir) -> (Server, u16, PathBuf) {
    encrypted_for(directory, "api.test", |request| format!("{:?}", request.version()))
}

/// A TLS server for this name.
fn encrypted_for(
    directory: &TempDir,
    name: &str,
    respond: fn(&Request<RequestBody>) -> String,
) -> (Server, u16, PathBuf) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::write(&certificate, cert.pem()).unwrap();
    fs::write(&key, signing_key.serialize_pem()).unwrap();
    let tls = Tls::load(TlsFiles::new(&certificate, key)).unwrap();
    let server = Server::start(NonZeroUsize::MIN).unwrap();
    let service = service_fn(move |request: Request<RequestBody>| async move {
        let body = Full::new(Bytes::from(respond(&request)));
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let endpoint = Endpoint::new("upstream", Protocol::Auto, any).tls(tls);
    let listening = server.open(endpoint, service).unwrap();
    let Address::Tcp(address) = listening[0].address() else { panic!("it has a port") };
    (server, address.port(), certificate)
}

#[tokio::test]
async fn an_encrypted_upstream_is_used_with_the_negotiated_version() {
    let directory = TempDir::new().unwrap();
    let (_server, port, authority) = encrypted(&directory);
    for (protocol, version) in [
        (UpstreamProtocol::Auto, "HTTP/2.0"),
        (UpstreamProtocol::Http2, "HTTP/2.0"),
        (UpstreamProtocol::Http1, "HTTP/1.1"),
    ] {
        let mut settings = to(&[format!("https://127.0.0.1:{port}")]);
        settings.upstreams[0].protocol = protocol;
        settings.upstreams[0].tls.authority = Some(authority.clone());
        settings.upstreams[0].server_name = Some("api.test".into());
        let harness = Harness::open(settings);
        for _ in 0..3 {
            assert_eq!(harness.get("/").await.body, version);
        }
        let state = harness.gateway.read().upstreams[0].1[0].1;
        assert_eq!((state.opened, state.reused), (1, 2));
    }
}

#[tokio::test]
async fn a_key_set_is_fetched_with_tls_from_a_trusted_server_only() {
    let directory = TempDir::new().unwrap();
    let keys = |_: &Request<RequestBody>| r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#.to_owned();
    let (_server, port, authority) = encrypted_for(&directory, "127.0.0.1", keys);
    let other = TempDir::new().unwrap();
    let (_other, _, stranger) = encrypted_for(&other, "127.0.0.1", keys);
    for (authority, trusted) in [(authority, true), (stranger, false)] {
        let set = KeySetUrl {
            authority: Some(authority),
            ..KeySetUrl::new(format!("https://127.0.0.1:{port}/keys"))
        };
        let mut settings = to(&["http://127.0.0.1:1".to_owned()]);
        settings.jwt = Some(JwtSettings::new(JwtKey::KeySetUrl(set)));
        let harness = Harness::open(settings);
        let gateway = harness.gateway.clone();
        tokio::spawn(async move { gateway.maintain().await });
        until("a fetch", || harness.gateway.read().key_set_fetches != (0, 0)).await;
        assert_eq!(harness.gateway.read().key_set_fetches.0 > 0, trusted);
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_an_unknown_authority_is_rejected() {
    let directory = TempDir::new().unwrap();
    let (_server, port, authority) = encrypted(&directory);
    let mut settings = to(&[format!("https://127.0.0.1:{port}")]);
    settings.upstreams[0].tls.authority = Some(authority);
    let reply = Harness::open(settings.clone()).get("/").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["code"].as_str()),
        (502, Some("upstream_unreachable"))
    );

    let other = TempDir::new().unwrap();
    let (_other, _, stranger) = encrypted(&other);
    settings.upstreams[0].tls.authority = Some(stranger);
    settings.upstreams[0].server_name = Some("api.test".into());
    assert_eq!(Harness::open(settings).get("/").await.status, 502);
}

#[tokio::test]
async fn a_changed_authority_file_applies_to_the_next_request() {
    let directory = TempDir::new().unwrap();
    let (_server, port, ours) = encrypted(&directory);
    let other = TempDir::new().unwrap();
    let (_other, _, theirs) = encrypted(&other);
    let authority = directory.path().join("authority.pem");
    // A link, so that the file is replaced atomically.
    let trust = |target: &PathBuf| {
        let aside = directory.path().join("aside");
        std::os::unix::fs::symlink(target, &aside).unwrap();
        fs::rename(&aside, &authority).unwrap();
    };
    trust(&ours);
    let mut settings = to(&[format!("https://127.0.0.1:{port}")]);
    settings.upstreams[0].tls.authority = Some(authority.clone());
    settings.upstreams[0].server_name = Some("api.test".into());
    assert_eq!(settings.files(), std::slice::from_ref(&authority));
    let harness = Harness::open(settings.clone());
    assert_eq!(harness.get("/").await.status, 200);

    trust(&theirs);
    harness.gateway.reload(settings.clone()).unwrap();
    assert_eq!(harness.get("/").await.status, 502, "no connection of before is used");
    fs::remove_file(&authority).unwrap();
    let error = harness.gateway.reload(settings.clone()).unwrap_err();
    assert_eq!(error.problems[0].setting, "upstreams[0].tls");
    trust(&ours);
    harness.gateway.reload(settings).unwrap();
    assert_eq!(harness.get("/").await.status, 200);
}
