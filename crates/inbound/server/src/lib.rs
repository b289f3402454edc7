//! Sockets, workers and encryption for any service of HTTP requests.
//!
//! A [`Server`] has worker threads, each with a runtime of its own, and one thread
//! that accepts. A connection lives on one worker from its first byte to its last:
//! no task moves between threads and no request takes a lock that another
//! worker holds. The acceptor gives each connection to the worker with the
//! fewest. `SO_REUSEPORT` would leave the choice to the kernel, which hashes
//! addresses: of the two connections that a small proxy opens, both may
//! land on one thread.
//!
//! What a connection may take is said by [`ConnectionLimits`]; limits on time
//! are kept by the worker, not by timers in each connection. Requests of one
//! read are answered together, without a task for each. [`Server::open`] serves
//! any service on hyper; [`Server::open_calls`] serves small calls over HTTP/2
//! for less. A panic in a service costs
//! its request, not the worker. [`Tls`] takes new certificates while
//! connections live. [`Server::stop`] lets requests finish; what was upgraded to another
//! protocol is cut. [`Peer`] says who is at the other end, also when a trusted hop says so
//! with the PROXY protocol.
//!
//! Not here: what a request means, how long it may take, how large its body may be.
//! Those belong to the service.
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
//! assert_eq!(cut, 0, "nobody was connected");
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```

mod settings;
mod stats;
mod tls;

mod acceptor;
mod listener;
mod worker;

mod batch;
mod calls;
mod connection;
mod contained;
mod life;
mod peer;
mod proxy_protocol;
mod stream;

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
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use acceptor::Acceptor;
use calls::ServedCalls;
use connection::{Serve, Served};
use listener::Listener;
use stats::Stats;
use worker::{Ending, Stop, Worker};

pub use calls::{BrokenOff, CallBody};
pub use listener::OpenError;
pub use peer::Peer;
pub use settings::{Address, ConnectionLimits, Endpoint, Keepalive, Protocol};
pub use stats::ConnectionCounts;
pub use tls::{Tls, TlsError, TlsFiles};

/// Worker threads, and one that accepts for them.
///
/// Dropping it closes every socket and cuts every connection, without waiting for it.
pub struct Server {
    workers: Arc<[Worker]>,
    endings: Vec<Ending>,
    /// Where acceptors run.
    acceptors: Handle,
    accepting: Option<(oneshot::Receiver<()>, thread::JoinHandle<()>)>,
    stop: watch::Sender<Stop>,
    turn: Arc<AtomicUsize>,
}

impl Server {
    /// Starts so many workers.
    ///
    /// # Errors
    /// When the system gives no threads or descriptors.
    pub fn start(workers: NonZeroUsize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(None);
        let started: io::Result<Vec<_>> =
            (0..workers.get()).map(|index| Worker::start(index, stopped.clone())).collect();
        let (workers, endings): (Vec<_>, Vec<_>) = started?.into_iter().unzip();

        let runtime = Builder::new_current_thread().enable_all().build()?;
        let acceptors = runtime.handle().clone();
        let (tell, ended) = oneshot::channel();
        let mut stopped = stopped;
        let thread =
            thread::Builder::new().name("tidegate-accept".to_owned()).spawn(move || {
                // An error means that the server was dropped, which stops it as well.
                drop(runtime.block_on(stopped.wait_for(Option::is_some)));
                // Drops the acceptors, and with them the sockets.
                drop(runtime);
                // Nobody listens when the server was dropped.
                let _ = tell.send(());
            })?;
        Ok(Server {
            workers: workers.into(),
            endings,
            acceptors,
            accepting: Some((ended, thread)),
            stop,
            turn: Arc::default(),
        })
    }

    /// Listens, and serves what comes. One [`Listening`] for each address, in their order.
    ///
    /// # Errors
    /// When an address cannot be had; then none of them is open.
    pub fn open<S, B>(&self, endpoint: Endpoint, service: S) -> Result<Vec<Listening>, OpenError>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.open_for_peers(endpoint, move |_| service.clone())
    }

    /// Like [`open`](Server::open), with a service for each connection, made when it is known who
    /// is at the other end.
    ///
    /// # Errors
    /// When an address cannot be had; then none of them is open.
    pub fn open_for_peers<S, B>(
        &self,
        endpoint: Endpoint,
        make: impl Fn(&Peer) -> S + Send + Sync + 'static,
    ) -> Result<Vec<Listening>, OpenError>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let Endpoint { name, addresses, protocol, tls, limits, proxy_protocol_from } = endpoint;
        let make = Arc::new(make);
        let proxies = proxy_protocol_from.into();
        let door: Arc<dyn Serve> = Arc::new(Served { make, protocol, tls, limits, proxies });
        self.open_door(name, &addresses, &door)
    }

    /// Listens, and serves calls: small requests with small answers, over HTTP/2
    /// only, whatever the endpoint's protocol. Cheaper than [`Server::open`] for
    /// these; there are no upgrades, and answers carry no `date`.
    ///
    /// # Errors
    /// When an address cannot be had; then none of them is open.
    pub fn open_calls<S, B>(
        &self,
        endpoint: Endpoint,
        service: S,
    ) -> Result<Vec<Listening>, OpenError>
    where
        S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Unpin + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
    {
        let Endpoint { name, addresses, protocol: _, tls, limits, proxy_protocol_from } = endpoint;
        let proxies = proxy_protocol_from.into();
        let door: Arc<dyn Serve> = Arc::new(ServedCalls { service, tls, limits, proxies });
        self.open_door(name, &addresses, &door)
    }

    fn open_door(
        &self,
        name: &'static str,
        addresses: &[Address],
        door: &Arc<dyn Serve>,
    ) -> Result<Vec<Listening>, OpenError> {
        let door_open = Arc::default();
        let inside = self.acceptors.enter();
        let opened: Result<Vec<_>, OpenError> = addresses.iter().map(Listener::bind).collect();
        drop(inside);
        let started = opened?.into_iter().map(|(listener, address)| {
            let listening = Listening { name, address, stats: Arc::default() };
            let acceptor = Acceptor {
                name,
                listener,
                door: Arc::clone(door),
                stats: Arc::clone(&listening.stats),
                door_open: Arc::clone(&door_open),
                workers: Arc::clone(&self.workers),
                turn: Arc::clone(&self.turn),
            };
            self.acceptors.spawn(acceptor.run(self.stop.subscribe()));
            listening
        });
        Ok(started.collect())
    }

    /// Connections that live on each worker.
    pub fn connections(&self) -> Vec<usize> {
        let count = |worker: &Worker| worker.connections.load(std::sync::atomic::Ordering::Relaxed);
        self.workers.iter().map(count).collect()
    }

    /// Stops accepting, tells clients to go, and waits for requests that are
    /// begun, but no longer than `grace`. Returns how many connections were
    /// cut then. Idle connections close at once.
    pub async fn stop(mut self, grace: Duration) -> usize {
        self.stop.send_replace(Some(grace));
        if let Some((ended, thread)) = self.accepting.take() {
            finished(ended, thread).await;
        }
        let mut cut = 0usize;
        for ending in std::mem::take(&mut self.endings) {
            cut = cut.saturating_add(finished(ending.cut, ending.thread).await.unwrap_or(0));
        }
        cut
    }
}

/// What a thread said last. It ends right after that, so joining does not block for long.
async fn finished<T>(last: oneshot::Receiver<T>, thread: thread::JoinHandle<()>) -> Option<T> {
    let said = last.await.ok();
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
    said
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

/// An address at which a door listens.
#[derive(Clone, Debug)]
pub struct Listening {
    name: &'static str,
    address: Address,
    stats: Arc<Stats>,
}

impl Listening {
    /// The door's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens. Port 0 has become a real one.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What happened there so far.
    pub fn counts(&self) -> ConnectionCounts {
        self.stats.read()
    }
}
