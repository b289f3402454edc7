//! The executor of one HTTP/2 connection: polls the streams that arrived in one read as a batch, without tasks.
//!
//! hyper passes each stream to an executor. A task per stream costs an allocation, a pass through the run queue and the
//! atomic operations of a task, for a future that mostly completes at its first poll. This executor collects streams
//! while the connection reads, then polls each of them once; only a pending one becomes a task. Polling a stream
//! immediately, while the connection still reads, would cost a write per response: the connection flushes before it
//! accepts the next stream. Decision 10 has the figures.

use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use parking_lot::Mutex;

use super::connection_state::ConnectionState;
use super::panic_guard::report_panic;
use super::response_body::ResponseKey;

type StreamFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Collects the new streams of one connection.
#[derive(Clone, Default)]
pub(super) struct BatchExecutor {
    collected: Arc<Mutex<Vec<StreamFuture>>>,
}

impl<F> Executor<F> for BatchExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.collected.lock().push(Box::pin(future));
    }
}

impl BatchExecutor {
    /// Polls every collected stream once, and spawns a task for each that is pending. Returns whether there were any.
    /// `streams` is a buffer that the caller keeps between calls.
    pub(super) fn run(
        &self,
        state: &Arc<ConnectionState>,
        streams: &mut Vec<StreamFuture>,
    ) -> bool {
        mem::swap(streams, &mut *self.collected.lock());
        let any = !streams.is_empty();
        // No waker is needed for this poll: a pending stream is polled again by its task.
        let mut cx = Context::from_waker(Waker::noop());
        for mut stream in streams.drain(..) {
            state.responses().clear_last();
            if poll(&mut stream, state, &mut cx).is_pending() {
                let response = state.responses().last();
                let mut task =
                    StreamTask { stream: Some(stream), response, state: Arc::clone(state) };
                tokio::spawn(poll_fn(move |cx| task.poll(cx)));
            }
        }
        any
    }
}

/// A stream that was pending at its first poll.
struct StreamTask {
    stream: Option<StreamFuture>,
    /// Its response, once that has begun.
    response: Option<ResponseKey>,
    state: Arc<ConnectionState>,
}

impl StreamTask {
    /// Ready when the stream has ended, or its response is cut. Dropping the stream resets it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(()) };
        if self.response.is_none() {
            self.state.responses().clear_last();
        }
        if poll(stream, &self.state, cx).is_ready() {
            return Poll::Ready(());
        }
        let mut responses = self.state.responses();
        self.response = self.response.or_else(|| responses.last());
        if self.response.is_none_or(|response| responses.watch(response, cx.waker())) {
            return Poll::Pending;
        }
        // The body of the response takes the lock when it is dropped.
        drop(responses);
        self.stream = None;
        Poll::Ready(())
    }
}

/// Polls a stream; a panic ends it.
fn poll(stream: &mut StreamFuture, state: &ConnectionState, cx: &mut Context<'_>) -> Poll<()> {
    catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx))).unwrap_or_else(|payload| {
        report_panic(state, &*payload);
        Poll::Ready(())
    })
}
