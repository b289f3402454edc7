//! An HTTP/1.1 connection that is taken back from hyper while hyper is not needed.
//!
//! hyper keeps four buffers for each connection, in all 30 KiB and more, for as long as its response lasts. For
//! thousands of clients that do not read, or wait for a slow upstream, that is most of the memory. So a connection is
//! taken back in two cases:
//!
//! - **Its response is long.** [`LongBody`](super::long_body::LongBody) reads the rest of the body and holds no more than
//!   one piece of it. The connection is given to hyper again for its next request.
//! - **The worker has many requests.** A request without a body is written without hyper if the connection is new.
//!   Otherwise the connection is taken back when all of the request is written. When the response begins, hyper gets the
//!   connection. It writes a request like the first one, which is dropped, and reads the response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::TRANSFER_ENCODING;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, Parts, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidegate_server::has_many_requests;
use tokio::io::AsyncWriteExt as _;

use super::connect::{BUFFER_BYTES, ConnectError};
use super::transport::{Transport, TransportProgress};
use crate::body::{BodyState, RequestBody};

/// How often hyper is polled in a row for a response that has arrived: it writes, then reads, then answers.
const RECEIVE_POLLS: usize = 3;

/// What the task of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Order {
    /// Serve requests.
    Serve = 0,
    /// Serve a request that may switch to another protocol.
    Upgrade = 1,
    /// Hand over the connection.
    HandOver = 2,
}

/// A connection that hyper serves.
type HyperConnection = Connection<TokioIo<Transport>, RequestBody>;

/// A connection, and hyper's handle of it.
#[derive(Debug)]
pub(super) struct Http1Connection {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) handover: Arc<Handover>,
    pub(super) progress: Arc<TransportProgress>,
    /// The connection, if no task serves it yet. Locked only so that it can be shared.
    unserved: Mutex<Option<Box<HyperConnection>>>,
}

/// The way of a connection between hyper's task and the body of a response.
#[derive(Debug, Default)]
pub(super) struct Handover {
    order: AtomicU8,
    state: Mutex<HandoverState>,
}

#[derive(Debug, Default)]
struct HandoverState {
    /// The task of the connection.
    task: Option<Waker>,
    /// The body that waits for the connection.
    body: Option<Waker>,
    /// The connection and the bytes that were read ahead.
    handed_over: Option<(Transport, Bytes)>,
    /// The connection after the last byte of a response.
    unused: Option<Transport>,
    /// Whether the task has ended.
    is_over: bool,
}

impl Http1Connection {
    /// Gives a connection to hyper.
    pub(super) async fn start(transport: Transport) -> Result<Self, ConnectError> {
        Http1Connection::handshake(transport).await.map_err(ConnectError::Handshake)
    }

    pub(super) async fn handshake(transport: Transport) -> Result<Self, hyper::Error> {
        let mut connection = Http1Connection::unserved(transport).await?;
        connection.serve();
        Ok(connection)
    }

    async fn unserved(transport: Transport) -> Result<Self, hyper::Error> {
        let progress = Arc::clone(transport.progress());
        let (sender, connection) =
            Builder::new().max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(transport)).await?;
        let handover = Arc::new(Handover::default());
        let unserved = Mutex::new(Some(Box::new(connection)));
        Ok(Http1Connection { sender, handover, progress, unserved })
    }

    /// Lets a task serve the connection.
    pub(super) fn serve(&mut self) {
        if let Some(connection) = self.unserved.get_mut().take() {
            tokio::spawn(serve(*connection, Arc::clone(&self.handover)));
        }
    }

    /// Takes the connection back from hyper, for the body of a response.
    pub(super) fn hand_over(&mut self) {
        match self.unserved.get_mut().take() {
            Some(connection) => self.handover.complete(*connection),
            None => self.handover.begin(),
        }
    }

    /// Sends a request, and waits for its response without hyper once all of it is written. By value: hyper's handle
    /// holds a block of its channel, 10 KiB, and is dropped for the wait.
    pub(super) async fn send_and_wait(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<(Self, Response<Incoming>), SendFailure> {
        let method = request.method().clone();
        let body = request.body().progress();
        let is_complete = || {
            body.as_ref().is_none_or(|body| body.state() == BodyState::Complete)
                && has_many_requests()
        };
        let mut sending = Box::pin(self.sender.try_send_request(request));
        let early = poll_fn(|cx| match sending.as_mut().poll(cx) {
            Poll::Ready(answered) => Poll::Ready(Some(answered)),
            Poll::Pending => match self.progress.poll_flushed(cx) {
                // hyper buffers the end of a body in the same poll in which it is complete, and flushes it then.
                Poll::Ready(()) if is_complete() => Poll::Ready(None),
                Poll::Ready(()) | Poll::Pending => Poll::Pending,
            },
        });
        if let Some(answered) = early.await {
            drop(sending);
            return answered.map(|answered| (self, answered)).map_err(SendFailure::of);
        }
        self.handover.begin();
        let handed_over = poll_fn(|cx| self.handover.poll_take(cx)).await;
        let Some((mut transport, read_ahead)) = handed_over else {
            let answered = sending.await.map_err(SendFailure::of)?;
            return Ok((self, answered));
        };
        drop(sending);
        drop(self);
        transport.unread(&read_ahead);
        drop(read_ahead);
        receive(transport, method).await
    }
}

/// Why a request was not answered, and the request if nothing of it was sent.
pub(super) struct SendFailure {
    pub(super) error: hyper::Error,
    pub(super) unsent: Option<Request<RequestBody>>,
}

impl SendFailure {
    fn of(mut error: TrySendError<Request<RequestBody>>) -> Self {
        SendFailure { unsent: error.take_message(), error: error.into_error() }
    }
}

impl From<hyper::Error> for SendFailure {
    fn from(error: hyper::Error) -> Self {
        SendFailure { error, unsent: None }
    }
}

/// Sends a request without a body on a connection that hyper does not have yet, and waits for its response.
pub(super) async fn send_bare(
    mut transport: Transport,
    request: Request<RequestBody>,
) -> Result<(Http1Connection, Response<Incoming>), SendFailure> {
    let method = request.method().clone();
    let head = encode_head(&request);
    drop(request);
    // hyper finds out what is wrong with the connection.
    let sent = async { transport.write_all(&head).await.and(transport.flush().await) };
    drop(sent.await);
    drop(head);
    receive(transport, method).await
}

/// A head as hyper writes it.
fn encode_head(request: &Request<RequestBody>) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        if name != TRANSFER_ENCODING {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Waits for the response to a request that was sent, then lets hyper read it.
async fn receive(
    mut transport: Transport,
    method: Method,
) -> Result<(Http1Connection, Response<Incoming>), SendFailure> {
    poll_fn(|cx| transport.poll_response(cx)).await;
    transport.drop_request();
    transport.progress().begin(true);
    let mut connection = Http1Connection::unserved(transport).await?;
    let mut again = Request::new(RequestBody::empty());
    *again.method_mut() = method;
    // A retry would not send the request of the caller.
    let mut sending = Box::pin(connection.sender.send_request(again));
    let serving = connection.unserved.get_mut();
    // Served here and not by a task: the head has arrived, and of many responses only one is between two polls.
    let answered = poll_fn(|cx| {
        for _ in 0..RECEIVE_POLLS {
            // Its error is returned to the request.
            let ended =
                serving.as_mut().is_none_or(|serving| Pin::new(serving).poll(cx).is_ready());
            if ended {
                *serving = None;
            }
            if let Poll::Ready(answered) = sending.as_mut().poll(cx) {
                return Poll::Ready(answered);
            }
        }
        Poll::Pending
    });
    let answered = answered.await?;
    drop(sending);
    Ok((connection, answered))
}

/// Serves a connection until it ends or is handed over.
async fn serve(connection: HyperConnection, handover: Arc<Handover>) {
    let mut serving = Some(connection);
    let mut is_known = false;
    let taken = poll_fn(|cx| {
        if !std::mem::replace(&mut is_known, true) {
            handover.state.lock().task = Some(cx.waker().clone());
        }
        if handover.order() != Order::Serve {
            return Poll::Ready(serving.take());
        }
        // Its error is returned to the request on it.
        let ended = serving.as_mut().map(|connection| Pin::new(connection).poll(cx).is_ready());
        if ended == Some(false) { Poll::Pending } else { Poll::Ready(None) }
    });
    match (taken.await, handover.order()) {
        (Some(connection), Order::HandOver) => return handover.complete(connection),
        (Some(connection), _) => drop(connection.with_upgrades().await),
        (None, _) => {}
    }
    handover.end(None);
}

impl Handover {
    fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Upgrade,
            _ => Order::HandOver,
        }
    }

    fn set_order(&self, order: Order) {
        self.order.store(order as u8, Relaxed);
        // Locked after the order is set: a task that has not stored its waker yet will see the order.
        let task = self.state.lock().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Lets the next request switch to another protocol. Called before it is sent.
    pub(super) fn allow_upgrade(&self) {
        self.set_order(Order::Upgrade);
    }

    /// Whether hyper's task would hand over the connection: not after a request that might have switched protocols.
    pub(super) fn is_possible(&self) -> bool {
        self.order() == Order::Serve
    }

    /// Takes a connection from hyper.
    fn complete(&self, connection: HyperConnection) {
        let Parts { io, read_buf, .. } = connection.into_parts();
        let transport = io.into_inner();
        transport.progress().release();
        self.end(Some((transport, read_buf)));
    }

    /// Records that hyper has no connection any more.
    fn end(&self, handed_over: Option<(Transport, Bytes)>) {
        let mut state = self.state.lock();
        state.handed_over = handed_over;
        state.is_over = true;
        let body = state.body.take();
        // The waker holds the memory of hyper's task.
        let task = state.task.take();
        drop(state);
        drop(task);
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Asks hyper's task for the connection.
    pub(super) fn begin(&self) {
        self.set_order(Order::HandOver);
    }

    /// The connection, and the bytes that hyper has read ahead. `None` if the connection has ended.
    pub(super) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<(Transport, Bytes)>> {
        let mut state = self.state.lock();
        match state.handed_over.take() {
            Some(handed_over) => Poll::Ready(Some(handed_over)),
            None if state.is_over => Poll::Ready(None),
            None => {
                state.body = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns the connection after the last byte of a response.
    pub(super) fn give_back(&self, transport: Transport) {
        self.state.lock().unused = Some(transport);
    }

    /// The connection, if its response is complete.
    pub(super) fn take_unused(&self) -> Option<Transport> {
        self.state.lock().unused.take()
    }
}
