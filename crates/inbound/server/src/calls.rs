//! Serves a connection of HTTP/2 calls on `h2`, from the accepted socket to the last response.
//!
//! For services with small requests and responses, as in gRPC. hyper would box each request, reserve capacity before
//! each frame of a response and take the connection's lock for each of these steps. Here a call runs where it is
//! accepted, without a task or an allocation, and the responses to all calls of one read leave in one write. Only a
//! pending call becomes a task. Decision 14 has the figures.
//!
//! There is no HTTP/1.1, no upgrade, no `date` field and no `content-length`: gRPC uses none of them.

mod authority;
mod body;
mod call;
mod io_gate;
mod keepalive;

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use http_body::Body;
use hyper::service::Service;
use ipnet::IpNet;
use tokio_rustls::TlsAcceptor;

use super::connection::{
    ConnectionFuture, ConnectionHandler, SEND_BUFFER_BYTES, handshake, pending_resets_max,
};
use super::connection_state::{ConnectionState, Order};
use super::listener::AcceptedSocket;
use super::panic_guard::report_panic;
use super::settings::{ConnectionLimits, Protocol};
use super::tls::Tls;
use super::transport::CountedTransport;
use authority::AuthorityFilter;
use call::InFlightCall;
use io_gate::{GatedIo, IoGate};
use keepalive::KeepalivePings;

pub use body::{CallBody, CallBodyError};

/// The flow-control window of a call and of a connection. Calls are small, so clients hardly ever wait for an update.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// Serves connections of calls.
pub(super) struct CallHandler<S> {
    pub(super) service: S,
    pub(super) tls: Option<Tls>,
    pub(super) limits: ConnectionLimits,
    /// The peers that must begin with a PROXY header.
    pub(super) proxies: Arc<[IpNet]>,
}

impl<S, B> ConnectionHandler for CallHandler<S>
where
    S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Unpin + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    fn proxies(&self) -> &[IpNet] {
        &self.proxies
    }

    fn serve(&self, accepted: AcceptedSocket, state: Arc<ConnectionState>) -> ConnectionFuture {
        let service = self.service.clone();
        let acceptor = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config(Protocol::Http2)));
        let (limits, proxies) = (self.limits, Arc::clone(&self.proxies));
        Box::pin(async move {
            poll_fn(|cx| {
                state.set_waker(cx.waker());
                Poll::Ready(())
            })
            .await;
            let authority = matches!(accepted, AcceptedSocket::Unix(_))
                .then(|| Box::new(AuthorityFilter::new()));
            let handshaken = handshake(accepted, acceptor, &proxies, &state).await;
            let Some((transport, _)) = handshaken else { return };
            state.set_handshaken();
            let gate = Arc::new(IoGate::default());
            let io = GatedIo::new(
                CountedTransport::new(transport, Arc::clone(&state)),
                Arc::clone(&gate),
                authority,
            );
            let ended = match start_http2(io, &gate, &limits, &state).await {
                Some(Ok(mut connection)) => {
                    let pings = limits.keepalive.and_then(|keepalive| {
                        connection.ping_pong().map(|pings| KeepalivePings::new(pings, keepalive))
                    });
                    let mut calls = CallConnection {
                        connection,
                        service,
                        state: Arc::clone(&state),
                        gate,
                        pings,
                    };
                    calls.run().await
                }
                Some(Err(error)) => Err(error),
                None => return,
            };
            if let Err(error) = ended {
                tracing::debug!(door = state.door(), %error, "connection failed");
            }
        })
    }
}

/// Exchanges the HTTP/2 preface. `None` when it takes too long, or the server stops.
async fn start_http2(
    io: GatedIo<CountedTransport>,
    gate: &IoGate,
    limits: &ConnectionLimits,
    state: &ConnectionState,
) -> Option<Result<Connection<GatedIo<CountedTransport>, Bytes>, h2::Error>> {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(limits.streams_max)
        .max_pending_accept_reset_streams(pending_resets_max(limits))
        .max_header_list_size(limits.header_bytes_max)
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    let mut handshake = pin!(builder.handshake(io));
    poll_fn(|cx| {
        gate.start_poll();
        match state.order() {
            Order::Serve | Order::Announce => handshake.as_mut().poll(cx).map(Some),
            Order::Finish | Order::Cut => Poll::Ready(None),
        }
    })
    .await
}

/// The calls of one connection.
struct CallConnection<S> {
    connection: Connection<GatedIo<CountedTransport>, Bytes>,
    service: S,
    state: Arc<ConnectionState>,
    gate: Arc<IoGate>,
    pings: Option<KeepalivePings>,
}

impl<S, B> CallConnection<S>
where
    S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
    S::Future: Unpin + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    /// Serves calls until the connection ends.
    async fn run(&mut self) -> Result<(), h2::Error> {
        let mut finishing = false;
        poll_fn(|cx| {
            match self.state.order() {
                Order::Cut => return Poll::Ready(Ok(())),
                Order::Finish if !finishing => {
                    finishing = true;
                    self.connection.graceful_shutdown();
                }
                Order::Serve | Order::Announce | Order::Finish => {}
            }
            self.gate.start_poll();
            if let Some(pings) = &mut self.pings
                && pings.poll_timeout(&self.state, cx).is_ready()
            {
                return Poll::Ready(Ok(()));
            }
            self.poll_calls(cx)
        })
        .await
    }

    /// Answers all calls that have arrived, then writes. A client that never stops sending does not block the worker:
    /// tokio's cooperative budget makes its reads pending.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            // Accepting a call flushes the response to the one before, so writes are held until all are answered.
            self.gate.hold_writes();
            while let Poll::Ready(next) = self.connection.poll_accept(cx) {
                let Some((request, reply)) = next.transpose()? else { return Poll::Ready(Ok(())) };
                self.answer(request, reply);
            }
            self.gate.release_writes();
            let next = ready!(self.connection.poll_accept(cx));
            let Some((request, reply)) = next.transpose()? else { return Poll::Ready(Ok(())) };
            self.answer(request, reply);
        }
    }

    /// Polls a call once, and spawns a task if it is pending.
    #[inline]
    fn answer(&self, request: Request<RecvStream>, mut reply: SendResponse<Bytes>) {
        let request = request.map(CallBody::new);
        // Unwind safe: whatever state a panic leaves inconsistent belongs to the call, which ends.
        let called = catch_unwind(AssertUnwindSafe(|| self.service.call(request)));
        let future = match called {
            Ok(future) => future,
            Err(payload) => {
                report_panic(&self.state, &*payload);
                return reply.send_reset(Reason::INTERNAL_ERROR);
            }
        };
        let mut call = InFlightCall::new(future, reply, &self.state);
        // No waker is needed for this poll: a pending call is polled again by its task.
        let mut cx = Context::from_waker(Waker::noop());
        if call.poll(&mut cx).is_pending() {
            tokio::spawn(poll_fn(move |cx| call.poll(cx)));
        }
    }
}
