//! A client that stays connected: HTTP/1.1 or HTTP/2, encrypted or not.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::certificates::{Authority, Identity};
use crate::process::PATIENCE;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    One,
    Two,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// A connection to a gateway.
pub(crate) struct Client {
    runtime: Runtime,
    sender: Sender,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

impl Client {
    /// Without encryption; HTTP/2 by prior knowledge.
    pub(crate) fn plain(address: &str, spoken: Spoken) -> Self {
        let runtime = runtime();
        let stream = runtime.block_on(TcpStream::connect(address)).expect("it accepts");
        let sender = runtime.block_on(shake_hands(stream, spoken)).expect("it speaks HTTP");
        Client { runtime, sender }
    }

    /// Encrypted: offers these protocols, and speaks what is agreed on. `None` when the server
    /// does not want to, or is not trusted.
    pub(crate) fn encrypted(
        address: &str,
        trusted: &Authority,
        shown: Option<&Identity>,
        offered: &[&str],
    ) -> Option<(Self, Spoken)> {
        let runtime = runtime();
        let mut config = config(trusted, shown);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connecting = async {
            let stream = TcpStream::connect(address).await.expect("it accepts");
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
            let spoken = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Spoken::Two,
                _ => Spoken::One,
            };
            Some((shake_hands(stream, spoken).await?, spoken))
        };
        let (sender, spoken) = runtime.block_on(connecting)?;
        Some((Client { runtime, sender }, spoken))
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Told {
        self.try_send(Method::GET, path, headers, "").expect("answered")
    }

    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        self.try_send(Method::POST, path, headers, body).expect("answered")
    }

    /// An answer, unless the connection is gone.
    pub(crate) fn try_send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Told> {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request = match self.sender {
            Sender::One(_) => request.uri(path).header("host", "localhost"),
            Sender::Two(_) => request.uri(format!("http://localhost{path}")),
        };
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        let request = request.expect("a request");
        let Client { runtime, sender } = self;
        let asked = async {
            let answer = match sender {
                Sender::One(sender) => {
                    sender.ready().await.ok()?;
                    sender.send_request(request).await
                }
                Sender::Two(sender) => {
                    sender.ready().await.ok()?;
                    sender.send_request(request).await
                }
            };
            let (head, body) = answer.ok()?.into_parts();
            let whole = body.collect().await.ok()?;
            let trailers = whole.trailers().cloned();
            Some(Told {
                status: head.status.as_u16(),
                version: head.version,
                headers: head.headers,
                body: String::from_utf8_lossy(&whole.to_bytes()).into_owned(),
                trailers,
            })
        };
        runtime.block_on(async { timeout(PATIENCE, asked).await.expect("an end") })
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Begins HTTP. The connection's task runs while its client waits for something.
async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    spoken: Spoken,
) -> Option<Sender> {
    let io = TokioIo::new(stream);
    Some(match spoken {
        Spoken::One => {
            let (sender, connection) = http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            Sender::One(sender)
        }
        Spoken::Two => {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.ok()?;
            tokio::spawn(connection);
            Sender::Two(sender)
        }
    })
}

fn config(trusted: &Authority, shown: Option<&Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(trusted.pem.as_bytes()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let Some(Identity { certificate, key }) = shown else { return builder.with_no_client_auth() };
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    builder.with_client_auth_cert(vec![certificate], key).expect("a pair")
}
