//! Where snapshots are read: a directory, or the control plane over HTTP.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tidegate_client_tls::ClientTls;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::join::JoinFile;

/// A source of snapshots.
#[derive(Debug)]
pub(crate) enum SnapshotSource {
    /// The file that a publisher replaces.
    File(PathBuf),
    Http(Box<HttpSource>),
}

impl SnapshotSource {
    pub(crate) fn of(join: &JoinFile) -> Result<Self, String> {
        let ring = join.trust.ring.as_deref().unwrap_or_default();
        if join.url.starts_with("http://") || join.url.starts_with("https://") {
            return HttpSource::new(join, ring).map(|http| SnapshotSource::Http(Box::new(http)));
        }
        let directory = PathBuf::from(join.url.strip_prefix("file://").unwrap_or(&join.url));
        Ok(SnapshotSource::File(directory.join(&join.trust.cell).join(ring).join("snapshot")))
    }

    /// Begins to read the snapshot; reading it to the end may take this long.
    pub(crate) fn open(&self, patience: Duration) -> io::Result<Box<dyn Read + '_>> {
        match self {
            SnapshotSource::File(path) => {
                let file = File::open(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                Ok(Box::new(BufReader::new(file)))
            }
            SnapshotSource::Http(http) => http.open(patience),
        }
    }

    /// Sends a report of this node, if anybody takes it. Its loss is no error.
    pub(crate) fn report(&self, node: &str, report: &impl serde::Serialize, patience: Duration) {
        let SnapshotSource::Http(http) = self else { return };
        let Ok(body) = serde_json::to_vec(report) else { return };
        let path = format!("/v1/nodes/{node}/report");
        let deadline = Instant::now() + patience;
        let sent = http.exchange(Method::POST, &path, body.into(), deadline);
        // Dropped unread: the answer says nothing.
        drop(sent);
    }
}

/// The control plane. One connection for each read, so that no state outlives a beat.
#[derive(Debug)]
pub(crate) struct HttpSource {
    /// Drives the connection while a read waits for it.
    runtime: Runtime,
    host: String,
    port: u16,
    base: String,
    ring: String,
    tls: Option<Tls>,
    token: Option<HeaderValue>,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HttpSource {
    fn new(join: &JoinFile, ring: &str) -> Result<Self, String> {
        let url: Uri = join.url.parse().map_err(|error| format!("`{}`: {error}", join.url))?;
        let host = url.host().ok_or_else(|| format!("`{}` has no host", join.url))?;
        let is_secure = url.scheme_str() == Some("https");
        let tls = is_secure.then(|| tls(join, host)).transpose()?;
        let token = join.token.as_ref().map(|token| {
            let field = HeaderValue::try_from(format!("Bearer {token}"));
            field.map_err(|_| "the token has characters that no header field can have".to_owned())
        });
        let mut token = token.transpose()?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(HttpSource {
            runtime: runtime.map_err(|error| error.to_string())?,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            base: url.path().trim_end_matches('/').to_owned(),
            ring: ring.to_owned(),
            tls,
            token,
        })
    }

    fn open(&self, patience: Duration) -> io::Result<Box<dyn Read + '_>> {
        let deadline = Instant::now() + patience;
        let path = format!("/v1/snapshot/{}", self.ring);
        let answer = self.exchange(Method::GET, &path, Bytes::new(), deadline)?;
        if answer.status() != StatusCode::OK {
            let text = format!("the control plane answers {}", answer.status());
            return Err(io::Error::other(text));
        }
        let body = answer.into_body();
        Ok(Box::new(BodyReader { runtime: &self.runtime, body, rest: Bytes::new(), deadline }))
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        deadline: Instant,
    ) -> io::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        request = request.header(HOST, format!("{host}:{}", self.port));
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let exchange = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            match &self.tls {
                None => send(TokioIo::new(stream), request).await,
                Some(Tls { connector, name }) => {
                    let stream = connector.connect(name.clone(), stream).await?;
                    send(TokioIo::new(stream), request).await
                }
            }
        };
        self.runtime.block_on(async { timeout_at(deadline, exchange).await.map_err(late)? })
    }
}

fn tls(join: &JoinFile, host: &str) -> Result<Tls, String> {
    let settings = ClientTls { authority: join.authority.clone(), ..ClientTls::default() };
    let connector = settings.connector(&[]).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    Ok(Tls { connector, name })
}

async fn send<T>(stream: T, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(io::Error::other)
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the control plane did not answer in time")
}

/// The body of an answer, read as it arrives: a snapshot is never in memory twice.
struct BodyReader<'r> {
    runtime: &'r Runtime,
    body: Incoming,
    rest: Bytes,
    deadline: Instant,
}

impl Read for BodyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let (body, deadline) = (&mut self.body, self.deadline);
            let frame = self.runtime.block_on(async { timeout_at(deadline, body.frame()).await });
            match frame.map_err(late)? {
                None => return Ok(0),
                Some(frame) => {
                    let data = frame.map_err(io::Error::other)?.into_data();
                    self.rest = data.unwrap_or_default();
                }
            }
        }
        let bytes = self.rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&self.rest.split_to(bytes));
        Ok(bytes)
    }
}
