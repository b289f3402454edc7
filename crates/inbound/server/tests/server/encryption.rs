//! TLS: which clients are accepted, and new certificates.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tidegate_algorithms::Mode;
use tidegate_server::{
    BoundEndpoint, ConnectionGuard, ConnectionLimits, Endpoint, GuardSettings, Protocol, Server,
    Tls, TlsFiles,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Client, endpoint, open, port_of, service, tcp, until, within, workers};

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as text.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("tests can make what they need");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("tests can make what they need");
        let pem = params.self_signed(&key).expect("tests can make what they need").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> Identity {
        let params =
            CertificateParams::new(vec![name.to_owned()]).expect("tests can make what they need");
        let key = KeyPair::generate().expect("tests can make what they need");
        let certificate =
            params.signed_by(&key, &self.issuer).expect("tests can make what they need").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

fn write(directory: &Path, identity: &Identity) -> TlsFiles {
    let files = TlsFiles::new(directory.join("tls.crt"), directory.join("tls.key"));
    fs::write(&files.certificate, &identity.certificate).expect("tests can make what they need");
    fs::write(&files.key, &identity.key).expect("tests can make what they need");
    files
}

/// Connects; `None` when the handshake fails.
async fn connect(
    listening: &BoundEndpoint,
    trusted: &Authority,
    identity: Option<&Identity>,
    alpn: &str,
) -> Option<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(
            CertificateDer::from_pem_slice(trusted.pem.as_bytes())
                .expect("tests can make what they need"),
        )
        .expect("tests can make what they need");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("tests can make what they need")
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(Identity { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
                .expect("tests can make what they need");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .expect("tests can make what they need");
            builder
                .with_client_auth_cert(vec![certificate], key)
                .expect("tests can make what they need")
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("tests can make what they need");
    let stream = tcp(listening).await;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
}

/// Whether a request succeeds. With TLS 1.3 the client learns only then that its certificate was rejected.
async fn is_served(stream: Option<TlsStream<TcpStream>>) -> bool {
    let Some(stream) = stream else { return false };
    Client::one(stream).await.get("/").await.is_ok()
}

struct TlsServer {
    authority: Authority,
    directory: TempDir,
    tls: Tls,
    server: Server,
    listening: BoundEndpoint,
}

/// A server with TLS files as changed by `configure`.
fn serve(protocol: Protocol, configure: impl FnOnce(&mut TlsFiles, &Path)) -> TlsServer {
    serve_at(endpoint(protocol), configure)
}

fn serve_at(endpoint: Endpoint, configure: impl FnOnce(&mut TlsFiles, &Path)) -> TlsServer {
    let directory = TempDir::new().expect("tests can make what they need");
    let authority = Authority::new();
    let mut files = write(directory.path(), &authority.sign("localhost"));
    fs::write(directory.path().join("ca.crt"), &authority.pem)
        .expect("tests can make what they need");
    configure(&mut files, directory.path());
    let tls = Tls::load(files).expect("tests can make what they need");
    let server = Server::start(workers(1)).expect("tests can make what they need");
    let listening = open(&server, endpoint.tls(tls.clone()), service().0);
    TlsServer { authority, directory, tls, server, listening }
}

#[tokio::test]
async fn the_client_chooses_among_the_protocols_of_the_endpoint() {
    let auto = serve(Protocol::Auto, |_, _| {});
    let stream = connect(&auto.listening, &auto.authority, None, "http/1.1").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(Client::one(stream).await.text("/one").await, "/one");
    let stream = connect(&auto.listening, &auto.authority, None, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(Client::two(stream).await.text("/two").await, "/two");

    let http2 = serve(Protocol::Http2, |_, _| {});
    assert!(connect(&http2.listening, &http2.authority, None, "http/1.1").await.is_none());
    until("the count", || http2.listening.counts().handshake_failures == 1).await;
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authority_are_served() {
    let server = serve(Protocol::Auto, |files, directory| {
        files.client_authority = Some(directory.join("ca.crt"));
    });
    let TlsServer { authority, listening, .. } = &server;
    let known = authority.sign("envoy.example");
    assert!(is_served(connect(listening, authority, Some(&known), "http/1.1").await).await);
    let stranger = Authority::new().sign("envoy.example");
    assert!(!is_served(connect(listening, authority, Some(&stranger), "http/1.1").await).await);
    assert!(!is_served(connect(listening, authority, None, "http/1.1").await).await);
    until("the count", || listening.counts().handshake_failures == 2).await;
}

#[tokio::test]
async fn only_clients_with_the_configured_name_are_served() {
    let server = serve(Protocol::Auto, |files, directory| {
        files.client_authority = Some(directory.join("ca.crt"));
        files.client_name = Some("envoy.mesh.example".to_owned());
    });
    let TlsServer { authority, listening, .. } = &server;
    for (name, served) in
        [("envoy.mesh.example", true), ("*.mesh.example", true), ("other.mesh.example", false)]
    {
        let client = authority.sign(name);
        let stream = connect(listening, authority, Some(&client), "http/1.1").await;
        assert_eq!(is_served(stream).await, served, "{name}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_used_for_new_connections_and_open_ones_stay() {
    let server = serve(Protocol::Http2, |_, _| {});
    let TlsServer { authority, directory, tls, listening, .. } = &server;
    let mut old = Client::two(connect(listening, authority, None, "h2").await.unwrap()).await;
    assert_eq!(old.text("/before").await, "/before");

    let successor = Authority::new();
    write(directory.path(), &successor.sign("localhost"));
    assert!(tls.refresh().unwrap());
    assert!(connect(listening, authority, None, "h2").await.is_none(), "the old one is gone");
    let mut new = Client::two(connect(listening, &successor, None, "h2").await.unwrap()).await;
    assert_eq!(new.text("/new").await, "/new");
    assert_eq!(old.text("/after").await, "/after");
}

#[tokio::test]
async fn a_client_without_tls_is_rejected_and_counted() {
    let server = serve(Protocol::Auto, |_, _| {});
    let mut stream = tcp(&server.listening).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    drop(within("the refusal", stream.read_to_end(&mut rest)).await);
    until("the count", || server.listening.counts().handshake_failures == 1).await;
    assert_eq!(within("the stop", server.server.stop(Duration::from_secs(60))).await, 0);
}

#[tokio::test]
async fn a_client_that_does_not_finish_the_handshake_is_cut_off() {
    let server = serve(Protocol::Auto, |_, _| {});
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    let door = endpoint(Protocol::Auto).tls(server.tls.clone()).limits(limits);
    let listening = open(&server.server, door, service().0);
    let mut stream = tcp(&listening).await;
    // The header of a record that never follows.
    stream.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    let mut rest = Vec::new();
    drop(within("the cut", stream.read_to_end(&mut rest)).await);
    until("the count", || listening.counts().handshake_failures == 1).await;
}

#[tokio::test]
async fn handshakes_under_way_are_limited_and_a_client_that_stalls_in_one_keeps_its_place() {
    let settings = GuardSettings { handshakes_max: Some(2), ..GuardSettings::default() };
    let guard = Arc::new(ConnectionGuard::new(settings, Mode::ENFORCE));
    let auto = serve_at(endpoint(Protocol::Auto).guard(Arc::clone(&guard)), |_, _| {});
    // A TLS record of a ClientHello, byte by byte.
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut stream = tcp(&auto.listening).await;
        stream.write_all(&[22]).await.unwrap();
        stalled.push(stream);
    }
    until("both handshakes", || auto.listening.counts().open == 2).await;
    let refused =
        async { TcpStream::connect(port_of(&auto.listening)).await?.read(&mut [0]).await };
    assert!(within("the refusal", refused).await.is_err());
    until("the refusal", || auto.listening.counts().handshake_failures == 1).await;
    drop(stalled);
    until("the end of both", || auto.listening.counts().open == 0).await;
    for _ in 0..3 {
        let stream = connect(&auto.listening, &auto.authority, None, "h2").await.unwrap();
        assert_eq!(Client::two(stream).await.text("/").await, "/");
    }
    assert_eq!(guard.networks(1)[0].refused, 1);
}
