//! Serves an HTTP/1.1 connection: on hyper, and without it while a long response is written.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1::{Builder, Parts, UpgradeableConnection};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWrite as _;

use super::connection_state::{ConnectionState, Order};
use super::long_response::{Exchange, LongResponse, ServeFuture, ServeResult, TakenExchange};
use super::panic_guard::PanicGuard;
use super::request_body::RequestBody;
use super::settings::ConnectionLimits;
use super::transport::CountedTransport;

/// How often hyper is polled for a body that it should give up. With TLS the first poll ends with the flush.
const TAKE_POLLS: u8 = 2;

/// The smallest buffer that hyper accepts for a head.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A connection on hyper. It may be upgraded to another protocol.
type HyperConnection<S, B> = UpgradeableConnection<TokioIo<CountedTransport>, PanicGuard<S, B>>;

/// Serves a connection until it ends or is cut. `exchange` is where the service puts what is taken from hyper.
pub(super) async fn serve_http1<S, B>(
    mut transport: CountedTransport,
    mut service: PanicGuard<S, B>,
    exchange: &Exchange<B>,
    limits: &ConnectionLimits,
    state: &Arc<ConnectionState>,
) -> Result<(), BoxError>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Unpin,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let builder = builder(limits);
    loop {
        let connection = builder.serve_connection(TokioIo::new(transport), service);
        // Boxed, so that it is freed while there is no need for it.
        let mut connection = Box::new(connection.with_upgrades());
        let mut finishing = false;
        let served = poll_fn(|cx| poll_hyper(&mut connection, &mut finishing, exchange, state, cx));
        let Some(taken) = served.await? else { return Ok(()) };
        let Some(Parts { io, read_buf, service: returned, .. }) = connection.into_parts() else {
            return Ok(());
        };
        state.set_taken(false);
        (service, transport) = (returned, io.into_inner());
        transport.unread(&read_buf);
        drop(read_buf);
        match taken {
            TakenExchange::Request(future, request) => {
                exchange.answer(wait_for_response(future, &mut transport, state).await?);
                transport.unread(request.head());
            }
            TakenExchange::Response(body, response) => {
                let mut long = LongResponse::new(transport, body, response);
                poll_fn(|cx| {
                    check_order(state)?;
                    long.poll(cx)
                })
                .await?;
                match long.into_transport() {
                    Some(kept) if state.order() < Order::Finish => transport = kept,
                    _ => return Ok(()),
                }
            }
        }
    }
}

/// Waits for the response to a request that was taken from hyper. Fails when the client disconnects.
async fn wait_for_response<B>(
    mut future: ServeFuture<B>,
    transport: &mut CountedTransport,
    state: &ConnectionState,
) -> io::Result<ServeResult<B>> {
    poll_fn(|cx| {
        check_order(state)?;
        if let Poll::Ready(response) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(response));
        }
        // The end of the response before.
        if transport.poll_unsent(cx)?.is_ready()
            && Pin::new(&mut *transport).poll_flush(cx)?.is_pending()
        {
            transport.record_blocked();
        }
        match transport.poll_disconnect(cx)? {
            Poll::Ready(()) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Fails when the connection has to be cut.
fn check_order(state: &ConnectionState) -> io::Result<()> {
    match state.order() {
        Order::Cut => Err(io::ErrorKind::ConnectionAborted.into()),
        Order::Serve | Order::Announce | Order::Finish => Ok(()),
    }
}

/// Ready with what was taken from hyper, or without anything when the connection has ended.
fn poll_hyper<S, B>(
    connection: &mut HyperConnection<S, B>,
    finishing: &mut bool,
    exchange: &Exchange<B>,
    state: &ConnectionState,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<TakenExchange<B>>, hyper::Error>>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Unpin,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut connection = Pin::new(connection);
    let mut polls = 0;
    loop {
        match state.order() {
            Order::Cut => return Poll::Ready(Ok(None)),
            // A response that hyper has not seen yet is written first.
            Order::Finish if !*finishing && !exchange.is_answered() => {
                *finishing = true;
                connection.as_mut().graceful_shutdown();
            }
            Order::Serve | Order::Announce | Order::Finish => {}
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended.map(|()| None));
        }
        if let Some(taken) = exchange.take() {
            return Poll::Ready(Ok(Some(taken)));
        }
        if state.order() == Order::Finish && !*finishing && !exchange.is_answered() {
            continue;
        }
        if state.is_taken() {
            polls += 1;
            if polls < TAKE_POLLS {
                continue;
            }
            // hyper has all of the body already. It keeps the connection, and writes no more than the client takes.
            state.set_taken(false);
            return Poll::Pending;
        }
        // The client does not take what was written. Polled again, hyper gives up the body and what it has buffered.
        if !state.is_write_blocked() || !state.is_takeable() {
            return Poll::Pending;
        }
        state.set_taken(true);
    }
}

fn builder(limits: &ConnectionLimits) -> Builder {
    let mut builder = Builder::new();
    let header_bytes_max = usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX);
    builder
        // The worker enforces the timeout; hyper would set a timer for each request.
        .header_read_timeout(None)
        // Otherwise hyper copies bodies into a buffer, which grows to the size of the largest frame and stays so.
        .writev(true)
        .max_buf_size(header_bytes_max.max(BUFFER_BYTES_MIN));
    builder
}
