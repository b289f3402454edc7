//! Sockets, workers and encryption for any service of HTTP requests.
//!
//! A [`Server`] has worker threads, each with its own single-threaded runtime, and one acceptor thread. A connection
//! stays on one worker from its first byte to its last: no task moves between threads, and no request takes a lock that
//! another worker holds. The acceptor assigns each connection to the worker with the fewest. `SO_REUSEPORT` would leave
//! the choice to the kernel, which hashes addresses: both connections of a small proxy may land on one thread.
//!
//! - [`Server::open`] serves any service on hyper; [`Server::open_calls`] serves small HTTP/2 calls at lower cost.
//! - [`ConnectionLimits`] bounds what a connection may use. The worker enforces timeouts and the minimum rate at which
//!   clients must read; connections set no timers.
//! - Requests that arrive in one read are answered in one write, without a task for each.
//! - A panic in a service fails its request, not the worker.
//! - [`ConnectionGuard`] limits the connections of each network before TLS, at every door that it is given to.
//! - [`Tls`] loads new certificates while connections are open.
//! - [`Peer`] is the other end of a connection, also as named by a trusted proxy with the PROXY protocol.
//! - [`Server::stop`] lets requests finish, and cuts connections that were upgraded to another protocol.
//!
//! The meaning of a request, its timeout and the size of its body are up to the service.
//!
//! ```
//! use std::convert::Infallible;
//! use std::num::NonZeroUsize;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper::service::service_fn;
//! use tidegate_server::{Address, Endpoint, Protocol, Server};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let service = service_fn(|_request| async {
//!     Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from("hello"))))
//! });
//!
//! let server = Server::start(NonZeroUsize::MIN)?;
//! let address = Address::Tcp("127.0.0.1:0".parse()?);
//! let listening = server.open(Endpoint::new("http", Protocol::Auto, address), service)?;
//! println!("http at {}", listening[0].address());
//!
//! let cut = server.stop(Duration::from_secs(5)).await;
//! assert_eq!(cut, 0, "no client was connected");
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```

mod guard;
mod settings;
mod stats;
mod tls;

mod acceptor;
mod listener;
mod worker;

mod batch_executor;
mod calls;
mod connection;
mod connection_state;
mod http1;
mod long_response;
mod panic_guard;
mod peer;
mod private_socket;
mod proxy_protocol;
mod request_body;
mod response_body;
mod transport;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::service::Service;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use acceptor::Acceptor;
use calls::CallHandler;
use connection::{ConnectionHandler, HttpHandler};
use listener::Listener;
use stats::Stats;
use worker::{Phase, Worker, WorkerExit};

pub use calls::{CallBody, CallBodyError};
pub use connection_state::has_many_requests;
pub use guard::{
    ConnectionGuard, ConnectionRate, GUARD_METRICS, GuardSettings, KernelCounters, NetworkPrefixes,
    NetworkReading, RefusalCause, RefusalHook,
};
pub use listener::OpenError;
pub use peer::Peer;
pub use private_socket::{PrivateSocket, PrivateSocketError, connect_private};
pub use request_body::RequestBody;
pub use response_body::{ResponseDeadline, StallFlag};
pub use settings::{Address, ConnectionLimits, Endpoint, Keepalive, Pressure, Protocol};
pub use stats::ConnectionCounts;
pub use tls::{Tls, TlsError, TlsFiles};

/// Worker threads, and one acceptor thread.
///
/// Dropping it closes every socket and cuts every connection, without waiting.
pub struct Server {
    workers: Arc<[Worker]>,
    exits: Vec<WorkerExit>,
    /// The runtime of the acceptors.
    acceptors: Handle,
    acceptor_thread: Option<(oneshot::Receiver<()>, thread::JoinHandle<()>)>,
    phase: watch::Sender<Phase>,
    next_worker: Arc<AtomicUsize>,
}

impl Server {
    /// Starts this number of workers.
    ///
    /// # Errors
    /// When the system is out of threads or file descriptors.
    pub fn start(workers: NonZeroUsize) -> io::Result<Self> {
        let (phase, phases) = watch::channel(Phase::Serving);
        let started: io::Result<Vec<_>> =
            (0..workers.get()).map(|index| Worker::start(index, phases.clone())).collect();
        let (workers, exits): (Vec<_>, Vec<_>) = started?.into_iter().unzip();

        let runtime = Builder::new_current_thread().enable_all().build()?;
        let acceptors = runtime.handle().clone();
        let (exited, exit) = oneshot::channel();
        let mut phases = phases;
        let thread =
            thread::Builder::new().name("tidegate-accept".to_owned()).spawn(move || {
                // An error means that the server was dropped, which stops it too.
                drop(runtime.block_on(phases.wait_for(Phase::is_closing)));
                // Drops the acceptors with their sockets.
                drop(runtime);
                // The receiver is gone if the server was dropped.
                let _ = exited.send(());
            })?;
        Ok(Server {
            workers: workers.into(),
            exits,
            acceptors,
            acceptor_thread: Some((exit, thread)),
            phase,
            next_worker: Arc::default(),
        })
    }

    /// Listens, and serves each request with `service`. Returns one [`BoundEndpoint`] per address, in their order.
    ///
    /// # Errors
    /// When an address cannot be bound; then none of them is open.
    pub fn open<S, B>(
        &self,
        endpoint: Endpoint,
        service: S,
    ) -> Result<Vec<BoundEndpoint>, OpenError>
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
        S: Clone + Unpin + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.open_for_peers(endpoint, move |_| service.clone())
    }

    /// Like [`open`](Server::open), but makes a service for each connection once its peer is known.
    ///
    /// # Errors
    /// When an address cannot be bound; then none of them is open.
    pub fn open_for_peers<S, B>(
        &self,
        endpoint: Endpoint,
        make: impl Fn(&Peer) -> S + Send + Sync + 'static,
    ) -> Result<Vec<BoundEndpoint>, OpenError>
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
        S: Unpin + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let socket = ListenSettings::of(&endpoint);
        let Endpoint { protocol, tls, limits, proxy_protocol_from, pressure, .. } = endpoint;
        let make = Arc::new(make);
        let proxies = proxy_protocol_from.into();
        let door: Arc<dyn ConnectionHandler> =
            Arc::new(HttpHandler { make, protocol, tls, limits, proxies, pressure });
        self.listen(socket, &door)
    }

    /// Listens, and serves calls: small requests with small responses, over HTTP/2 only, whatever the endpoint's
    /// protocol. Cheaper than [`Server::open`] for these; there are no upgrades, and responses have no `date` field.
    ///
    /// # Errors
    /// When an address cannot be bound; then none of them is open.
    pub fn open_calls<S, B>(
        &self,
        endpoint: Endpoint,
        service: S,
    ) -> Result<Vec<BoundEndpoint>, OpenError>
    where
        S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Unpin + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
    {
        let socket = ListenSettings::of(&endpoint);
        let Endpoint { tls, limits, proxy_protocol_from, .. } = endpoint;
        let proxies = proxy_protocol_from.into();
        let door: Arc<dyn ConnectionHandler> =
            Arc::new(CallHandler { service, tls, limits, proxies });
        self.listen(socket, &door)
    }

    fn listen(
        &self,
        socket: ListenSettings,
        door: &Arc<dyn ConnectionHandler>,
    ) -> Result<Vec<BoundEndpoint>, OpenError> {
        let ListenSettings { name, addresses, guard, backlog } = socket;
        let door_open = Arc::default();
        let entered = self.acceptors.enter();
        let opened: Result<Vec<_>, OpenError> =
            addresses.iter().map(|address| Listener::bind(address, backlog)).collect();
        drop(entered);
        let started = opened?.into_iter().map(|(listener, address)| {
            let bound = BoundEndpoint { name, address, stats: Arc::default() };
            let stats = Arc::clone(&bound.stats);
            let acceptor = Acceptor {
                name,
                listener,
                door: Arc::clone(door),
                guard: guard.as_ref().map(|guard| guard.add_door(name, Arc::clone(&stats))),
                stats,
                door_open: Arc::clone(&door_open),
                workers: Arc::clone(&self.workers),
                next_worker: Arc::clone(&self.next_worker),
            };
            self.acceptors.spawn(acceptor.run(self.phase.subscribe()));
            bound
        });
        Ok(started.collect())
    }

    /// The number of open connections of each worker.
    pub fn connections(&self) -> Vec<usize> {
        let count = |worker: &Worker| worker.connections.load(std::sync::atomic::Ordering::Relaxed);
        self.workers.iter().map(count).collect()
    }

    /// Asks clients to close their HTTP/1.1 connections with the next response, and goes on serving. Called some time
    /// before [`Server::stop`], so that no client sends a request on a connection that is about to be closed.
    pub fn announce_stop(&self) {
        let announce = |phase: &mut Phase| {
            let serving = *phase == Phase::Serving;
            if serving {
                *phase = Phase::Announcing;
            }
            serving
        };
        self.phase.send_if_modified(announce);
    }

    /// Stops accepting, asks clients to close, and waits up to `grace` for requests in flight. Returns the number of
    /// connections that were cut after that. Idle connections close immediately, except that an HTTP/1.1 connection
    /// which was used a moment ago gets a second to send its next request.
    pub async fn stop(mut self, grace: Duration) -> usize {
        // Workers stop after the last connection is in their queue.
        self.phase.send_replace(Phase::Closing);
        if let Some((exit, thread)) = self.acceptor_thread.take() {
            join(exit, thread).await;
        }
        self.phase.send_replace(Phase::Stopping(grace));
        let mut cut = 0usize;
        for exit in std::mem::take(&mut self.exits) {
            cut = cut.saturating_add(join(exit.cut, exit.thread).await.unwrap_or(0));
        }
        cut
    }
}

/// How an endpoint listens, whatever it serves.
struct ListenSettings {
    name: &'static str,
    addresses: Vec<Address>,
    guard: Option<Arc<ConnectionGuard>>,
    backlog: u32,
}

impl ListenSettings {
    fn of(endpoint: &Endpoint) -> Self {
        ListenSettings {
            name: endpoint.name,
            addresses: endpoint.addresses.clone(),
            guard: endpoint.guard.clone(),
            backlog: endpoint.backlog,
        }
    }
}

/// Waits for a thread's result. The thread ends right after sending it, so joining hardly blocks.
async fn join<T>(result: oneshot::Receiver<T>, thread: thread::JoinHandle<()>) -> Option<T> {
    let result = result.await.ok();
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
    result
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

/// One address of an endpoint that the server listens at.
#[derive(Clone, Debug)]
pub struct BoundEndpoint {
    name: &'static str,
    address: Address,
    stats: Arc<Stats>,
}

impl BoundEndpoint {
    /// The name of the endpoint.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The bound address; port 0 is replaced by the actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The connections at this address so far.
    pub fn counts(&self) -> ConnectionCounts {
        self.stats.read()
    }
}
