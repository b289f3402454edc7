//! One host: its connections, health and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, TRAILER, UPGRADE};
use http::{Request, Response, StatusCode, Version, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tidegate_server::has_many_requests;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connect::{BUFFER_BYTES, ConnectError, Connector, OpenedTransport};
use super::handover::{Handover, Http1Connection, send_bare};
use super::host_health::HostHealth;
use super::long_body::{LongBody, LongFraming, UpstreamBody};
use super::origin::Origin;
use super::pool::{Pools, SharedConnection, pool_index};
use super::transport::Transport;
use crate::body::RequestBody;
use crate::settings::UpstreamSettings;

/// A longer body is read without hyper. hyper cannot have read all of it: it reads one buffer ahead.
const LONG_BYTES_MIN: u64 = BUFFER_BYTES as u64;

/// One host of a group.
#[derive(Debug)]
pub(crate) struct Host {
    origin: Origin,
    pools: Pools,
    health: HostHealth,
    requests: AtomicUsize,
    opened: AtomicU64,
    reused: AtomicU64,
    failures: AtomicU64,
    /// Whether a connection has used HTTP/2.
    speaks_http2: std::sync::atomic::AtomicBool,
}

/// The state of a host, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// Whether it passes its health checks; true if there are none.
    pub healthy: bool,
    /// Whether it is ejected because of failures.
    pub ejected: bool,
    /// Requests in flight.
    pub requests: usize,
    /// Connections opened so far.
    pub opened: u64,
    /// Requests on a connection that was open already.
    pub reused: u64,
    /// Failed requests.
    pub failures: u64,
}

impl Host {
    pub(super) fn new(origin: Origin, settings: &UpstreamSettings) -> Self {
        Host {
            origin,
            pools: Pools::new(settings.pool),
            health: HostHealth::new(settings.ejection),
            requests: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            speaks_http2: std::sync::atomic::AtomicBool::new(false),
        }
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) const fn health(&self) -> &HostHealth {
        &self.health
    }

    pub(super) fn is_available(&self, now: Instant) -> bool {
        self.health.is_available(now)
    }

    pub(super) fn record_failure(&self, now: Instant) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.health.record_failure(now);
    }

    /// Records a response. The statuses 502 to 504 are failures; the clock is read only for these.
    pub(super) fn record_response(&self, status: StatusCode) {
        match status {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => self.health.record_failure(Instant::now()),
            _ => self.health.record_success(),
        }
    }

    pub(super) fn sweep(&self, now: Instant) {
        self.pools.sweep(now);
    }

    /// The state for operators.
    pub(crate) fn state(&self, now: Instant) -> HostState {
        HostState {
            healthy: self.health.is_healthy(),
            ejected: self.health.is_ejected(now),
            requests: self.requests(),
            opened: self.opened.load(Ordering::Relaxed),
            reused: self.reused.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// A connection for one request: a pooled one, or a new one if there is none or `fresh` is set.
    pub(super) async fn lease(
        self: &Arc<Self>,
        connector: &Connector,
        connect_timeout: Duration,
        fresh: bool,
    ) -> Result<ConnectionLease, ConnectError> {
        let pool_index = pool_index();
        if !fresh && let Some(lease) = self.reuse(pool_index).await {
            return Ok(lease);
        }
        // Boxed: the future is large and rarely needed, and would enlarge the future of every request.
        Box::pin(self.open(pool_index, connector, connect_timeout, fresh)).await
    }

    async fn open(
        self: &Arc<Self>,
        pool_index: usize,
        connector: &Connector,
        connect_timeout: Duration,
        fresh: bool,
    ) -> Result<ConnectionLease, ConnectError> {
        // Requests that arrive while an HTTP/2 connection is opened wait for it.
        let opening = match self.pools.pool(pool_index) {
            Some(pool) if self.speaks_http2.load(Ordering::Relaxed) => {
                Some(pool.opening.lock().await)
            }
            _ => None,
        };
        if opening.is_some()
            && !fresh
            && let Some(shared) = self.pools.take_shared(pool_index)
        {
            return Ok(self.lease_shared(pool_index, shared));
        }
        let opened = connector.open_transport(&self.origin, connect_timeout).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(match opened {
            OpenedTransport::Http1(transport) => {
                let sender = match has_many_requests() {
                    true => RequestSender::Bare(transport),
                    false => RequestSender::Exclusive(Http1Connection::start(transport).await?),
                };
                self.lease_exclusive(pool_index, sender)
            }
            OpenedTransport::Http2(sender) => {
                self.speaks_http2.store(true, Ordering::Relaxed);
                self.lease_shared(pool_index, self.pools.add_shared(pool_index, sender))
            }
        })
    }

    async fn reuse(self: &Arc<Self>, pool_index: usize) -> Option<ConnectionLease> {
        if self.speaks_http2.load(Ordering::Relaxed)
            && let Some(shared) = self.pools.take_shared(pool_index)
        {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Some(self.lease_shared(pool_index, shared));
        }
        while let Some(mut connection) = self.pools.take_idle(pool_index) {
            let sender = &mut connection.sender;
            // The last response was complete, so the connection is ready soon or closed.
            if sender.is_ready() || sender.ready().await.is_ok() {
                self.reused.fetch_add(1, Ordering::Relaxed);
                let sender = RequestSender::Exclusive(connection);
                return Some(self.lease_exclusive(pool_index, sender));
            }
        }
        None
    }

    fn lease_exclusive(
        self: &Arc<Self>,
        pool_index: usize,
        sender: RequestSender,
    ) -> ConnectionLease {
        self.requests.fetch_add(1, Ordering::Relaxed);
        ConnectionLease { host: Arc::clone(self), pool_index, reusable: true, sender: Some(sender) }
    }

    fn lease_shared(
        self: &Arc<Self>,
        pool_index: usize,
        shared: SharedConnection,
    ) -> ConnectionLease {
        self.requests.fetch_add(1, Ordering::Relaxed);
        shared.requests.fetch_add(1, Ordering::Relaxed);
        ConnectionLease {
            host: Arc::clone(self),
            pool_index,
            reusable: true,
            sender: Some(RequestSender::Shared(shared)),
        }
    }
}

/// A connection in use by one request.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    host: Arc<Host>,
    pool_index: usize,
    /// Whether another request may be sent on it.
    reusable: bool,
    sender: Option<RequestSender>,
}

#[derive(Debug)]
enum RequestSender {
    /// A new connection that hyper does not have yet.
    Bare(Transport),
    Exclusive(Http1Connection),
    /// A connection that was taken back from hyper.
    HandedOver(Arc<Handover>),
    Shared(SharedConnection),
}

impl ConnectionLease {
    /// The server at the other end.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) const fn version(&self) -> Version {
        match self.sender {
            Some(RequestSender::Shared(_)) => Version::HTTP_2,
            Some(
                RequestSender::Bare(_) | RequestSender::Exclusive(_) | RequestSender::HandedOver(_),
            )
            | None => Version::HTTP_11,
        }
    }

    /// Takes the request, sends it and waits for the head of the response. Puts the request back if nothing of it was
    /// written.
    pub(super) async fn send(
        &mut self,
        request: &mut Option<Request<RequestBody>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let sent = request.take().expect("a request is sent once");
        let unsent = |mut error: TrySendError<Request<RequestBody>>| {
            *request = error.take_message();
            error.into_error()
        };
        let upgrades = sent.headers().contains_key(UPGRADE);
        let is_bare = !upgrades && sent.body().is_empty();
        if let Some(RequestSender::Bare(_)) = &self.sender
            && let Some(RequestSender::Bare(transport)) = self.sender.take()
        {
            let connection = match is_bare {
                true => {
                    // Boxed: otherwise the future of every request would have its size.
                    let sending = Box::pin(send_bare(transport, sent));
                    let (connection, answered) = sending.await.map_err(|failure| failure.error)?;
                    self.sender = Some(RequestSender::Exclusive(connection));
                    return Ok(answered);
                }
                false => Http1Connection::handshake(transport).await?,
            };
            self.sender = Some(RequestSender::Exclusive(connection));
        }
        match &mut self.sender {
            Some(RequestSender::Exclusive(connection)) => {
                if upgrades {
                    connection.handover.allow_upgrade();
                }
                connection.progress.begin(!upgrades);
                if upgrades || !has_many_requests() || !connection.handover.is_possible() {
                    return connection.sender.try_send_request(sent).await.map_err(unsent);
                }
            }
            Some(RequestSender::Shared(shared)) => {
                return shared.sender.try_send_request(sent).await.map_err(unsent);
            }
            Some(RequestSender::Bare(_) | RequestSender::HandedOver(_)) | None => {}
        }
        let Some(RequestSender::Exclusive(connection)) = self.sender.take() else {
            unreachable!("a lease sends one request")
        };
        let sending = Box::pin(connection.send_and_wait(sent));
        let (connection, answered) = sending.await.map_err(|failure| {
            *request = failure.unsent;
            failure.error
        })?;
        self.sender = Some(RequestSender::Exclusive(connection));
        Ok(answered)
    }

    /// Closes the connection after the response.
    pub(super) const fn forbid_reuse(&mut self) {
        self.reusable = false;
    }

    /// The body of a response. A long one is read without hyper, if the client has sent all of its request.
    pub(crate) fn take_body(
        &mut self,
        answer: &response::Parts,
        body: Incoming,
        is_sent: bool,
    ) -> UpstreamBody {
        let Some(RequestSender::Exclusive(connection)) = &mut self.sender else {
            return UpstreamBody::Hyper(body);
        };
        let progress = &connection.progress;
        let framing = match body.size_hint().exact() {
            Some(length) => (length > LONG_BYTES_MIN).then_some(LongFraming::Length(length)),
            None => (progress.is_withheld() && !answer.headers.contains_key(TRAILER))
                .then(LongFraming::chunked),
        };
        let is_sent = is_sent && progress.is_flushed() && connection.handover.is_possible();
        let Some(framing) = framing.filter(|_| is_sent) else {
            if progress.is_withheld() {
                progress.release();
            }
            connection.serve();
            return UpstreamBody::Hyper(body);
        };
        connection.hand_over();
        let handover = Arc::clone(&connection.handover);
        let stays_open = answer.version == Version::HTTP_11
            && answer
                .headers
                .get_all(CONNECTION)
                .iter()
                .all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"keep-alive"));
        self.reusable &= stays_open;
        let body = LongBody::new(body, framing, Arc::clone(&handover));
        // hyper's handle is dropped: it holds a block of its channel, 10 KiB.
        self.sender = Some(RequestSender::HandedOver(handover));
        UpstreamBody::Long(Box::new(body))
    }

    /// Returns the connection to the pool after a complete response.
    pub(crate) fn return_to_pool(mut self) {
        if !self.reusable {
            return;
        }
        let (host, pool_index) = (Arc::clone(&self.host), self.pool_index);
        match self.sender.take() {
            Some(RequestSender::Exclusive(connection)) => {
                host.pools.put_idle(pool_index, connection);
            }
            Some(RequestSender::HandedOver(handover)) => {
                // No runtime while the process shuts down.
                if let (Some(transport), Ok(runtime)) =
                    (handover.take_unused(), Handle::try_current())
                {
                    runtime.spawn(async move {
                        if let Ok(connection) = Http1Connection::start(transport).await {
                            host.pools.put_idle(pool_index, connection);
                        }
                    });
                }
            }
            // Put back: its request is counted until the lease is dropped.
            shared => self.sender = shared,
        }
    }

    /// Records a response that the host did not complete.
    pub(crate) fn record_broken(&self) {
        self.host.record_failure(Instant::now());
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.host.requests.fetch_sub(1, Ordering::Relaxed);
        if let Some(RequestSender::Shared(shared)) = &self.sender {
            shared.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
