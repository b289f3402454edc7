//! Serves one connection on hyper, from the accepted socket to the last response.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio_rustls::TlsAcceptor;

use super::batch_executor::BatchExecutor;
use super::connection_state::{ConnectionState, Order};
use super::guard::{Entrance, NetworkSlot};
use super::http1::serve_http1;
use super::listener::AcceptedSocket;
use super::panic_guard::PanicGuard;
use super::peer::Peer;
use super::proxy_protocol;
use super::request_body::RequestBody;
use super::settings::{ConnectionLimits, Pressure, Protocol};
use super::tls::Tls;
use super::transport::{self, CountedTransport, Socket, Transport, register};

/// Bytes of responses buffered per HTTP/2 stream. The bound keeps a client that does not read from filling the memory.
pub(super) const SEND_BUFFER_BYTES: usize = 32 * 1024;

/// The smallest bound on streams that were reset before they were accepted: the default of `h2`.
const PENDING_RESETS_MIN: usize = 20;

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read to find out the protocol: most heads fit.
const FIRST_READ_BYTES: usize = 4 * 1024;

/// Serves the connections of one endpoint. Hides the type of the service.
pub(super) trait ConnectionHandler: Send + Sync {
    /// The limits of each connection.
    fn limits(&self) -> &ConnectionLimits;
    /// Whether the service has no room for further requests.
    fn pressure(&self) -> Option<&Pressure> {
        None
    }
    /// The peers that must begin with a PROXY header.
    fn proxies(&self) -> &[IpNet];
    /// Serves one connection until it is closed.
    fn serve(&self, accepted: AcceptedSocket, state: Arc<ConnectionState>) -> ConnectionFuture;
}

pub(super) type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves connections on hyper.
pub(super) struct HttpHandler<F> {
    /// Makes the service of a connection.
    pub(super) make: Arc<F>,
    pub(super) protocol: Protocol,
    pub(super) tls: Option<Tls>,
    pub(super) limits: ConnectionLimits,
    /// The peers that must begin with a PROXY header.
    pub(super) proxies: Arc<[IpNet]>,
    pub(super) pressure: Option<Pressure>,
}

impl<F, S, B> ConnectionHandler for HttpHandler<F>
where
    F: Fn(&Peer) -> S + Send + Sync + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
    S: Unpin + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    fn pressure(&self) -> Option<&Pressure> {
        self.pressure.as_ref()
    }

    fn proxies(&self) -> &[IpNet] {
        &self.proxies
    }

    fn serve(&self, accepted: AcceptedSocket, state: Arc<ConnectionState>) -> ConnectionFuture {
        let (make, proxies) = (Arc::clone(&self.make), Arc::clone(&self.proxies));
        let acceptor = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config(self.protocol)));
        let (batch, protocol) = (BatchExecutor::default(), self.protocol);
        let held_bytes_max = self.limits.held_bytes_max;
        let limits = self.limits;
        Box::pin(async move {
            poll_fn(|cx| {
                state.set_waker(cx.waker());
                Poll::Ready(())
            })
            .await;
            let Some((transport, peer)) = handshake(accepted, acceptor, &proxies, &state).await
            else {
                return;
            };
            state.set_handshaken();
            let exchange = Arc::default();
            let inner = make(&peer);
            let service =
                PanicGuard::new(inner, Arc::clone(&state), held_bytes_max, Arc::clone(&exchange));
            let mut transport = CountedTransport::new(transport, Arc::clone(&state));
            let is_http2 = match protocol {
                Protocol::Http2 => true,
                Protocol::Auto => {
                    let Some(Ok(is_http2)) =
                        unless_closing(begins_with_preface(&mut transport), &state).await
                    else {
                        return;
                    };
                    is_http2
                }
            };
            let ended: Result<(), Box<dyn StdError + Send + Sync>> = if is_http2 {
                let builder = http2_builder(&limits, batch.clone());
                // Boxed: it is large, and would enlarge the future of every HTTP/1.1 connection.
                let io = TokioIo::new(transport);
                let mut connection = Box::pin(builder.serve_connection(io, service));
                let finish = http2::Connection::graceful_shutdown;
                drive(connection.as_mut(), finish, &batch, &state).await.map_err(Into::into)
            } else {
                serve_http1(transport, service, &exchange, &limits, &state).await
            };
            if let Err(error) = ended {
                let error: &dyn StdError = &*error;
                tracing::debug!(door = state.door(), error, "connection failed");
            }
        })
    }
}

/// Polls an HTTP/2 connection until it ends or is cut.
async fn drive<C, E>(
    mut connection: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
    batch: &BatchExecutor,
    state: &Arc<ConnectionState>,
) -> Result<(), E>
where
    C: Future<Output = Result<(), E>>,
{
    let mut finishing = false;
    let mut streams = Vec::new();
    poll_fn(|cx: &mut Context<'_>| {
        match state.order() {
            Order::Cut => return Poll::Ready(Ok(())),
            Order::Finish if !finishing => {
                finishing = true;
                finish(connection.as_mut());
            }
            Order::Serve | Order::Announce | Order::Finish => {}
        }
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            // Polled again to write the responses of these streams. A client that never stops sending does not block
            // the worker: tokio's cooperative budget makes its reads pending.
            if !batch.run(state, &mut streams) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Reads the PROXY header and encrypts, as far as the endpoint asks for either. `None` when that fails.
pub(super) async fn handshake(
    accepted: AcceptedSocket,
    acceptor: Option<TlsAcceptor>,
    proxies: &[IpNet],
    state: &Arc<ConnectionState>,
) -> Option<(Transport, Peer)> {
    let mut peer = Peer::of(&accepted, acceptor.is_some());
    let socket = read_proxy_header(accepted, proxies, &mut peer, state).await?;
    Some((encrypt(socket, acceptor, state).await?, peer))
}

/// Registers the socket, and reads the PROXY header if the peer must send one. `None` when that fails.
async fn read_proxy_header(
    accepted: AcceptedSocket,
    proxies: &[IpNet],
    peer: &mut Peer,
    state: &Arc<ConnectionState>,
) -> Option<Socket> {
    let mut socket = match register(accepted) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(door = state.door(), %error, "cannot register an accepted connection");
            return None;
        }
    };
    if !peer.is_in(proxies) {
        return Some(socket);
    }
    match unless_closing(proxy_protocol::read(&mut socket), state).await {
        Some(Ok(client)) => {
            peer.set_proxied_client(client);
            let admitted = client.is_none_or(|client| is_admitted(client.ip(), state));
            if admitted {
                return Some(socket);
            }
            transport::reset_when_closed(&socket);
            return None;
        }
        Some(Err(error)) => tracing::debug!(door = state.door(), %error, "invalid PROXY header"),
        None => tracing::debug!(door = state.door(), "PROXY header was not finished in time"),
    }
    state.stats().handshake_failures.fetch_add(1, Relaxed);
    None
}

/// Asks the guard about a client that a proxy has named.
fn is_admitted(client: IpAddr, state: &Arc<ConnectionState>) -> bool {
    let Some(guard) = state.guard() else { return true };
    match guard.enter(client, true) {
        Entrance::Unguarded => true,
        Entrance::Admitted(slot) => {
            slot.attach(state);
            state.set_slot(slot);
            true
        }
        Entrance::Refused => false,
    }
}

/// Waits for a step of the handshake. `None` when the connection has to close.
async fn unless_closing<T>(step: impl Future<Output = T>, state: &ConnectionState) -> Option<T> {
    let mut step = pin!(step);
    poll_fn(|cx| {
        if state.order() >= Order::Finish {
            return Poll::Ready(None);
        }
        step.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Encrypts the connection if the endpoint has a certificate. `None` when that fails or takes too long.
async fn encrypt(
    socket: Socket,
    acceptor: Option<TlsAcceptor>,
    state: &ConnectionState,
) -> Option<Transport> {
    let Some(acceptor) = acceptor else { return Some(Transport::Left(socket)) };
    let _handshake = match state.slot().map(NetworkSlot::begin_handshake) {
        Some(None) => {
            state.stats().handshake_failures.fetch_add(1, Relaxed);
            transport::reset_when_closed(&socket);
            return None;
        }
        Some(begun) => begun,
        None => None,
    };
    match unless_closing(acceptor.accept(socket), state).await {
        Some(Ok(stream)) => return Some(Transport::Right(Box::new(stream))),
        Some(Err(error)) => tracing::debug!(door = state.door(), %error, "TLS handshake failed"),
        None => tracing::debug!(door = state.door(), "TLS handshake was not finished in time"),
    }
    state.stats().handshake_failures.fetch_add(1, Relaxed);
    None
}

/// How many streams a client may reset before the server has accepted them; more close the connection. A client that
/// gives up all its requests at once, after a pause of the server, stays below it. One that opens and resets streams
/// faster than the server accepts them (CVE-2023-44487) does not.
pub(super) fn pending_resets_max(limits: &ConnectionLimits) -> usize {
    usize::try_from(limits.streams_max).unwrap_or(usize::MAX).max(PENDING_RESETS_MIN)
}

/// Whether the client begins with the preface of HTTP/2. Whatever was read is read again by hyper: with one read, so
/// that the head of a request does not double hyper's buffer.
async fn begins_with_preface(transport: &mut CountedTransport) -> io::Result<bool> {
    let mut read = Vec::new();
    while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
        let before = read.len();
        // On the stack: a connection that is silent holds no buffer.
        poll_fn(|cx| {
            let mut bytes = [0; FIRST_READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *transport).poll_read(cx, &mut buffer))?;
            read.extend_from_slice(buffer.filled());
            Poll::Ready(io::Result::Ok(()))
        })
        .await?;
        if read.len() == before {
            break;
        }
    }
    let is_http2 = read.starts_with(PREFACE);
    transport.unread(&read);
    Ok(is_http2)
}

fn http2_builder(limits: &ConnectionLimits, batch: BatchExecutor) -> http2::Builder<BatchExecutor> {
    let mut builder = http2::Builder::new(batch);
    builder
        .max_concurrent_streams(limits.streams_max)
        .max_pending_accept_reset_streams(pending_resets_max(limits))
        .max_header_list_size(limits.header_bytes_max)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        // HTTP/2 does not require a date, and gRPC does not use it.
        .auto_date_header(false);
    if let Some(keepalive) = limits.keepalive {
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout);
    }
    builder
}
