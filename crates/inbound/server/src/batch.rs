//! The executor of one HTTP/2 connection: its requests are tried in place, all
//! that came in one read together.
//!
//! hyper hands each stream to an executor. A task for each costs an
//! allocation of its whole state, a turn of the run queue and the atomic
//! steps of a task's life, for a future that mostly resolves when it is first
//! polled. Here streams gather while the connection reads; then each is
//! polled once, and only one that has to wait becomes a task. Polling
//! a stream at once, while the connection still reads, would be wrong:
//! the connection flushes before it takes the next stream, so each
//! answer would be a write of its own. Decision 10 has the figures.

use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use parking_lot::Mutex;

use super::contained::report;
use super::life::Life;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gathers the streams of one connection.
#[derive(Clone, Default)]
pub(super) struct Batch {
    gathered: Arc<Mutex<Vec<Stream>>>,
}

impl<F> Executor<F> for Batch
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.gathered.lock().push(Box::pin(future));
    }
}

impl Batch {
    /// Polls every gathered stream once; those that wait become tasks. Says
    /// whether there were any. `streams` is room for them, kept between calls.
    pub(super) fn run(&self, life: &Arc<Life>, streams: &mut Vec<Stream>) -> bool {
        mem::swap(streams, &mut *self.gathered.lock());
        let any = !streams.is_empty();
        // Nobody has to be woken for this poll: who waits is polled again as a task.
        let mut cx = Context::from_waker(Waker::noop());
        for mut stream in streams.drain(..) {
            if poll(&mut stream, life, &mut cx).is_pending() {
                let life = Arc::clone(life);
                tokio::spawn(poll_fn(move |cx| poll(&mut stream, &life, cx)));
            }
        }
        any
    }
}

/// Polls a stream; one that panics has ended.
fn poll(stream: &mut Stream, life: &Life, cx: &mut Context<'_>) -> Poll<()> {
    catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx))).unwrap_or_else(|payload| {
        report(life, &*payload);
        Poll::Ready(())
    })
}
