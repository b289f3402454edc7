//! One server: its connections, and how well it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use tokio::time::Instant;

use super::connect::{ConnectError, Connector, Opened};
use super::health::Wellness;
use super::origin::Origin;
use super::pool::{Pools, Shared, number};
use crate::body::RequestBody;
use crate::settings::UpstreamSettings;

/// One server of a group.
#[derive(Debug)]
pub(crate) struct Host {
    origin: Origin,
    pools: Pools,
    wellness: Wellness,
    requests: AtomicUsize,
    opened: AtomicU64,
    reused: AtomicU64,
    failures: AtomicU64,
    /// Whether it has been seen to speak HTTP/2.
    shares: std::sync::atomic::AtomicBool,
}

/// What an operator is shown of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// Whether it passes its health checks, as far as it is asked.
    pub healthy: bool,
    /// Whether it is left alone for its failures.
    pub ejected: bool,
    /// Requests under way.
    pub requests: usize,
    /// Connections opened so far.
    pub opened: u64,
    /// Requests that went over a connection that was there.
    pub reused: u64,
    /// Requests that failed there.
    pub failures: u64,
}

impl Host {
    pub(super) fn new(origin: Origin, settings: &UpstreamSettings) -> Self {
        Host {
            origin,
            pools: Pools::new(settings.pool),
            wellness: Wellness::new(settings.ejection),
            requests: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            shares: std::sync::atomic::AtomicBool::new(false),
        }
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) const fn wellness(&self) -> &Wellness {
        &self.wellness
    }

    pub(super) fn is_well(&self, now: Instant) -> bool {
        self.wellness.is_well(now)
    }

    pub(super) fn failed(&self, now: Instant) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.wellness.failed(now);
    }

    /// Takes note of an answer. One that says that the server cannot is a failure too. The clock
    /// is read only for those.
    pub(super) fn answered(&self, status: StatusCode) {
        match status {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => self.wellness.failed(Instant::now()),
            _ => self.wellness.succeeded(),
        }
    }

    pub(super) fn sweep(&self, now: Instant) {
        self.pools.sweep(now);
    }

    /// What an operator is shown.
    pub(crate) fn state(&self, now: Instant) -> HostState {
        HostState {
            healthy: self.wellness.is_healthy(),
            ejected: self.wellness.is_ejected(now),
            requests: self.requests(),
            opened: self.opened.load(Ordering::Relaxed),
            reused: self.reused.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// A connection for one request: one that is there, or a new one.
    pub(super) async fn lease(
        self: &Arc<Self>,
        connector: &Connector,
        patience: Duration,
        fresh: bool,
    ) -> Result<Lease, ConnectError> {
        let number = number();
        if !fresh && let Some(lease) = self.reuse(number).await {
            return Ok(lease);
        }
        // In a box: it is large and seldom needed, and every request would carry its size.
        Box::pin(self.open(number, connector, patience, fresh)).await
    }

    async fn open(
        self: &Arc<Self>,
        number: usize,
        connector: &Connector,
        patience: Duration,
        fresh: bool,
    ) -> Result<Lease, ConnectError> {
        // Those that came while another opens a connection to share wait for that one.
        let opening = match self.pools.pool(number) {
            Some(pool) if self.shares.load(Ordering::Relaxed) => Some(pool.opening.lock().await),
            _ => None,
        };
        if opening.is_some()
            && !fresh
            && let Some(shared) = self.pools.share(number)
        {
            return Ok(self.shared(number, shared));
        }
        let opened = connector.open(&self.origin, patience).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(match opened {
            Opened::One(sender) => self.alone(number, sender),
            Opened::Two(sender) => {
                self.shares.store(true, Ordering::Relaxed);
                self.shared(number, self.pools.keep_shared(number, sender))
            }
        })
    }

    async fn reuse(self: &Arc<Self>, number: usize) -> Option<Lease> {
        if self.shares.load(Ordering::Relaxed)
            && let Some(shared) = self.pools.share(number)
        {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Some(self.shared(number, shared));
        }
        while let Some(mut sender) = self.pools.take_idle(number) {
            // The last answer was whole, so its connection is ready soon or closed.
            if sender.is_ready() || sender.ready().await.is_ok() {
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Some(self.alone(number, sender));
            }
        }
        None
    }

    fn alone(self: &Arc<Self>, number: usize, sender: http1::SendRequest<RequestBody>) -> Lease {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Lease { host: Arc::clone(self), number, line: Some(Line::One(sender)) }
    }

    fn shared(self: &Arc<Self>, number: usize, shared: Shared) -> Lease {
        self.requests.fetch_add(1, Ordering::Relaxed);
        shared.requests.fetch_add(1, Ordering::Relaxed);
        Lease { host: Arc::clone(self), number, line: Some(Line::Two(shared)) }
    }
}

/// A connection while one request uses it.
#[derive(Debug)]
pub(crate) struct Lease {
    host: Arc<Host>,
    number: usize,
    line: Option<Line>,
}

#[derive(Debug)]
enum Line {
    One(http1::SendRequest<RequestBody>),
    Two(Shared),
}

impl Lease {
    pub(super) const fn version(&self) -> Version {
        match self.line {
            Some(Line::Two(_)) => Version::HTTP_2,
            Some(Line::One(_)) | None => Version::HTTP_11,
        }
    }

    /// Sends the request that is there, and waits for the head of the answer. A request of which
    /// nothing was written is there again.
    pub(super) async fn send(
        &mut self,
        request: &mut Option<Request<RequestBody>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let sent = request.take().expect("a request is sent once");
        let mut unsent = |mut error: TrySendError<Request<RequestBody>>| {
            *request = error.take_message();
            error.into_error()
        };
        match &mut self.line {
            Some(Line::One(sender)) => sender.try_send_request(sent).await.map_err(&mut unsent),
            Some(Line::Two(shared)) => {
                shared.sender.try_send_request(sent).await.map_err(&mut unsent)
            }
            None => unreachable!("a lease has its line until it is dropped"),
        }
    }

    /// The answer ended as it should: the connection can be used again.
    pub(crate) fn give_back(mut self) {
        if let Some(Line::One(_)) = &self.line
            && let Some(Line::One(sender)) = self.line.take()
        {
            self.host.pools.keep_idle(self.number, sender);
        }
    }
}

impl Lease {
    /// The answer broke off, which its host has to answer for.
    pub(crate) fn broke(&self) {
        self.host.failed(Instant::now());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.host.requests.fetch_sub(1, Ordering::Relaxed);
        if let Some(Line::Two(shared)) = &self.line {
            shared.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
