//! One connection, from the accepted socket to the last answer.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ipnet::IpNet;
use tokio_rustls::TlsAcceptor;

use super::batch::Batch;
use super::contained::Contained;
use super::life::{Life, Order};
use super::listener::Accepted;
use super::peer::Peer;
use super::proxy_protocol;
use super::settings::{ConnectionLimits, Protocol};
use super::stream::{Carrier, Socket, Watched};
use super::tls::Tls;

/// Bytes of answers that may wait in one HTTP/2 stream. Answers here are small;
/// a client that does not read should not be able to pile them up.
pub(super) const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// hyper takes no smaller buffer for a head of HTTP/1.1.
const HTTP1_BUFFER_BYTES_MIN: usize = 8 * 1024;

/// Serves accepted sockets, whatever the type of the service.
pub(super) trait Serve: Send + Sync {
    /// What connections may take.
    fn limits(&self) -> &ConnectionLimits;
    /// The whole life of one connection.
    fn serve(&self, accepted: Accepted, life: Arc<Life>) -> Serving;
}

pub(super) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A door's services with the settings of its connections.
pub(super) struct Served<F> {
    /// Makes the service of one connection.
    pub(super) make: Arc<F>,
    pub(super) protocol: Protocol,
    pub(super) tls: Option<Tls>,
    pub(super) limits: ConnectionLimits,
    /// Who begins with a PROXY header.
    pub(super) proxies: Arc<[IpNet]>,
}

impl<F, S, B> Serve for Served<F>
where
    F: Fn(&Peer) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    fn serve(&self, accepted: Accepted, life: Arc<Life>) -> Serving {
        let (make, proxies) = (Arc::clone(&self.make), Arc::clone(&self.proxies));
        let acceptor = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config(self.protocol)));
        let (batch, protocol) = (Batch::default(), self.protocol);
        let builder = builder(self.protocol, &self.limits, batch.clone());
        Box::pin(async move {
            poll_fn(|cx| {
                life.wake_by(cx.waker());
                Poll::Ready(())
            })
            .await;
            let Some((carrier, peer)) = greeted(accepted, acceptor, &proxies, &life).await else {
                return;
            };
            life.greeted();
            let service = Contained::new(make(&peer), Arc::clone(&life));
            let io = TokioIo::new(Watched::new(carrier, Arc::clone(&life)));
            let ended = match protocol {
                Protocol::Http2 => {
                    let connection = pin!(builder.serve_connection(io, service));
                    drive(connection, auto::Connection::graceful_shutdown, &batch, &life).await
                }
                // HTTP/1.1 may become something else.
                Protocol::Auto => {
                    let connection = pin!(builder.serve_connection_with_upgrades(io, service));
                    let finish = auto::UpgradeableConnection::graceful_shutdown;
                    drive(connection, finish, &batch, &life).await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(door = life.door(), error = &*error, "connection failed");
            }
        })
    }
}

/// Runs a connection to its end, or until it is cut.
async fn drive<C, E>(
    mut connection: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
    batch: &Batch,
    life: &Arc<Life>,
) -> Result<(), E>
where
    C: Future<Output = Result<(), E>>,
{
    let mut finishing = false;
    let mut streams = Vec::new();
    poll_fn(|cx: &mut Context<'_>| {
        match life.order() {
            Order::Cut => return Poll::Ready(Ok(())),
            Order::Finish if !finishing => {
                finishing = true;
                finish(connection.as_mut());
            }
            Order::Serve | Order::Finish => {}
        }
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            // Streams that answered wait for the connection to write them. A
            // client that never stops sending does not keep the worker here: the
            // runtime makes reads wait after a while.
            if !batch.run(life, &mut streams) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// What HTTP begins on, and with whom. `None`: it came to nothing.
pub(super) async fn greeted(
    accepted: Accepted,
    acceptor: Option<TlsAcceptor>,
    proxies: &[IpNet],
    life: &Life,
) -> Option<(Carrier, Peer)> {
    let mut peer = Peer::of(&accepted, acceptor.is_some());
    let socket = socket(accepted, proxies, &mut peer, life).await?;
    Some((carrier(socket, acceptor, life).await?, peer))
}

/// The socket, past the PROXY header where there has to be one. `None`: there was none.
async fn socket(
    accepted: Accepted,
    proxies: &[IpNet],
    peer: &mut Peer,
    life: &Life,
) -> Option<Socket> {
    let mut socket = match Socket::register(accepted) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(door = life.door(), %error, "cannot watch an accepted connection");
            return None;
        }
    };
    if !peer.is_one_of(proxies) {
        return Some(socket);
    }
    match unless_ordered(proxy_protocol::read(&mut socket), life).await {
        Some(Ok(client)) => {
            peer.speaks_for(client);
            return Some(socket);
        }
        Some(Err(error)) => tracing::debug!(door = life.door(), %error, "no PROXY header"),
        None => tracing::debug!(door = life.door(), "PROXY header was not finished in time"),
    }
    life.stats().handshake_failures.fetch_add(1, Relaxed);
    None
}

/// Waits for a step of the greeting, but not once the connection has to go.
async fn unless_ordered<T>(step: impl Future<Output = T>, life: &Life) -> Option<T> {
    let mut step = pin!(step);
    poll_fn(|cx| {
        if life.order() != Order::Serve {
            return Poll::Ready(None);
        }
        step.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Encrypts where the door says so. `None`: it failed, or took too long.
async fn carrier(socket: Socket, acceptor: Option<TlsAcceptor>, life: &Life) -> Option<Carrier> {
    let Some(acceptor) = acceptor else { return Some(Carrier::Plain(socket)) };
    match unless_ordered(acceptor.accept(socket), life).await {
        Some(Ok(stream)) => return Some(Carrier::Tls(Box::new(stream))),
        Some(Err(error)) => tracing::debug!(door = life.door(), %error, "TLS handshake failed"),
        None => tracing::debug!(door = life.door(), "TLS handshake was not finished in time"),
    }
    life.stats().handshake_failures.fetch_add(1, Relaxed);
    None
}

fn builder(protocol: Protocol, limits: &ConnectionLimits, batch: Batch) -> auto::Builder<Batch> {
    let mut builder = auto::Builder::new(batch);
    let header_bytes_max = usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX);
    builder
        .http1()
        // The worker keeps the time; hyper would set a timer for each request.
        .header_read_timeout(None)
        .max_buf_size(header_bytes_max.max(HTTP1_BUFFER_BYTES_MIN));
    builder
        .http2()
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.header_bytes_max)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        // gRPC has no use for a date, and HTTP/2 does not ask for one.
        .auto_date_header(false);
    if let Some(keepalive) = limits.keepalive {
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout);
    }
    match protocol {
        Protocol::Http2 => builder.http2_only(),
        Protocol::Auto => builder,
    }
}
