//! A connection of HTTP/2 calls, from the accepted socket to the last answer.
//!
//! For services whose requests and answers are small, as those of gRPC mostly
//! are. Served on `h2` itself: hyper in between boxes each request, asks for
//! room before each piece of an answer and takes the connection's lock for
//! each of these steps. Here a call is decided where it is accepted, without a
//! task or an allocation, and all that came in one read leave in one write.
//! Only a call that has to wait becomes a task. Decision 14 has the figures.
//!
//! Not here: HTTP/1.1, upgrades, the `date` field and the length of bodies,
//! which gRPC has no use for.

mod answering;
mod body;
mod gate;
mod pings;

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

use super::connection::{SEND_BUFFER_BYTES, Serve, Serving, greeted};
use super::contained::report;
use super::life::{Life, Order};
use super::listener::Accepted;
use super::settings::{ConnectionLimits, Protocol};
use super::stream::Watched;
use super::tls::Tls;
use answering::Answering;
use gate::{Gate, Gated};
use pings::Pings;

pub use body::{BrokenOff, CallBody};

/// Bytes that a client may send before it is told that they were read: of one
/// call, and of a connection. Calls are small, so nobody waits to be told.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// A door's service with the settings of its connections.
pub(super) struct ServedCalls<S> {
    pub(super) service: S,
    pub(super) tls: Option<Tls>,
    pub(super) limits: ConnectionLimits,
    /// Who begins with a PROXY header.
    pub(super) proxies: Arc<[IpNet]>,
}

impl<S, B> Serve for ServedCalls<S>
where
    S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Unpin + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    fn serve(&self, accepted: Accepted, life: Arc<Life>) -> Serving {
        let service = self.service.clone();
        let acceptor = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config(Protocol::Http2)));
        let (limits, proxies) = (self.limits, Arc::clone(&self.proxies));
        Box::pin(async move {
            poll_fn(|cx| {
                life.wake_by(cx.waker());
                Poll::Ready(())
            })
            .await;
            let greeted = greeted(accepted, acceptor, &proxies, &life).await;
            let Some((carrier, _)) = greeted else { return };
            life.greeted();
            let gate = Arc::new(Gate::default());
            let io = Gated::new(Watched::new(carrier, Arc::clone(&life)), Arc::clone(&gate));
            let ended = match greet(io, &gate, &limits, &life).await {
                Some(Ok(mut connection)) => {
                    let pings = limits.keepalive.and_then(|keepalive| {
                        connection.ping_pong().map(|pings| Pings::new(pings, keepalive))
                    });
                    let mut calls =
                        Calls { connection, service, life: Arc::clone(&life), gate, pings };
                    calls.run().await
                }
                Some(Err(error)) => Err(error),
                None => return,
            };
            if let Err(error) = ended {
                tracing::debug!(door = life.door(), %error, "connection failed");
            }
        })
    }
}

/// Greets the client. `None`: it took too long, or the server stops.
async fn greet(
    io: Gated<Watched>,
    gate: &Gate,
    limits: &ConnectionLimits,
    life: &Life,
) -> Option<Result<Connection<Gated<Watched>, Bytes>, h2::Error>> {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.header_bytes_max)
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    let mut greeting = pin!(builder.handshake(io));
    poll_fn(|cx| {
        gate.look_again();
        match life.order() {
            Order::Serve => greeting.as_mut().poll(cx).map(Some),
            Order::Finish | Order::Cut => Poll::Ready(None),
        }
    })
    .await
}

/// The calls of one connection.
struct Calls<S> {
    connection: Connection<Gated<Watched>, Bytes>,
    service: S,
    life: Arc<Life>,
    gate: Arc<Gate>,
    pings: Option<Pings>,
}

impl<S, B> Calls<S>
where
    S: Service<Request<CallBody>, Response = Response<B>, Error = Infallible>,
    S::Future: Unpin + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    /// Serves until the connection ends.
    async fn run(&mut self) -> Result<(), h2::Error> {
        let mut finishing = false;
        poll_fn(|cx| {
            match self.life.order() {
                Order::Cut => return Poll::Ready(Ok(())),
                Order::Finish if !finishing => {
                    finishing = true;
                    self.connection.graceful_shutdown();
                }
                Order::Serve | Order::Finish => {}
            }
            self.gate.look_again();
            if let Some(pings) = &mut self.pings
                && pings.poll_silence(&self.life, cx).is_ready()
            {
                return Poll::Ready(Ok(()));
            }
            self.poll_calls(cx)
        })
        .await
    }

    /// Answers what has come, then writes. A client that never stops sending does not
    /// keep the worker here: the runtime makes reads wait after a while.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            // Accepting the next call writes the answer to the last one, so
            // writing waits until all are answered.
            self.gate.hold();
            while let Poll::Ready(next) = self.connection.poll_accept(cx) {
                let Some((request, reply)) = next.transpose()? else { return Poll::Ready(Ok(())) };
                self.answer(request, reply);
            }
            self.gate.release();
            let next = ready!(self.connection.poll_accept(cx));
            let Some((request, reply)) = next.transpose()? else { return Poll::Ready(Ok(())) };
            self.answer(request, reply);
        }
    }

    /// Tries a call in place; one that has to wait becomes a task.
    #[inline]
    fn answer(&self, request: Request<RecvStream>, mut reply: SendResponse<Bytes>) {
        let request = request.map(CallBody::new);
        // Whatever a panic leaves half done belongs to the call, which ends.
        let called = catch_unwind(AssertUnwindSafe(|| self.service.call(request)));
        let future = match called {
            Ok(future) => future,
            Err(payload) => {
                report(&self.life, &*payload);
                return reply.send_reset(Reason::INTERNAL_ERROR);
            }
        };
        let mut answering = Answering::new(future, reply, &self.life);
        // Nobody has to be woken for this poll: who waits is polled again as a task.
        let mut cx = Context::from_waker(Waker::noop());
        if answering.poll(&mut cx).is_pending() {
            tokio::spawn(poll_fn(move |cx| answering.poll(cx)));
        }
    }
}
