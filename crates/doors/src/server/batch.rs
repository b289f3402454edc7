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
//! answer would be a write of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

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
    /// Polls every gathered stream once; those that wait become tasks.
    pub(super) fn run(&self, life: &Life, streams: &mut Vec<Stream>) -> bool {
        std::mem::swap(streams, &mut *self.gathered.lock());
        let any = !streams.is_empty();
        // Nobody has to be woken for this poll: who waits is polled again as a task.
        let mut cx = Context::from_waker(Waker::noop());
        for mut stream in streams.drain(..) {
            let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(&mut cx)));
            match polled {
                Ok(poll) if poll.is_ready() => {}
                Ok(_) => {
                    tokio::spawn(stream);
                }
                Err(payload) => report(life, &*payload),
            }
        }
        any
    }
}
