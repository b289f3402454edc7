//! A client that sends the script calls of concurrent callers in few pipelines.
//!
//! One thread with its own runtime owns all connections, so callers may live on any runtime, and calls from all of them
//! share pipelines: more callers mean larger batches and less work for the server per call. A connection per runtime
//! would save a lone caller the hop to that thread (20 of 70 µs as measured), but cost the server more connections and
//! smaller batches. Calls of one runtime that are made together reach that thread in one message, and so do their
//! replies ([`job_group`]). A call that arrives while nothing is in flight is sent immediately; calls that arrive while
//! pipelines are in flight wait for the next batch.
//!
//! Every call gets a reply or an error by its deadline. A call that may have run is never sent again; a call that the
//! server refused to run (unknown script, slot moved) is. The client does not interpret the body of a call, and does
//! not choose what to do when the server fails.

mod figures;
mod job;
mod job_group;
mod node;
mod pipeline;
mod router;
mod upkeep;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Value};
use smallvec::smallvec;
use tokio::sync::{mpsc, oneshot, watch};

use crate::dial::Dialer;
use crate::error::{FailureKind, LinkError, unavailable};
use crate::script::{ScriptCall, ScriptReply};
use crate::settings::{RedisSettings, RedisSettingsError};
use crate::state::LinkState;
use figures::Counters;
pub use figures::{ClientFigures, Histogram, REDIS_METRICS};
use job::{Deadline, Job, Payload};
use job_group::Inbox;
use worker::{PublishedState, Worker};

/// Sends script calls and commands to Redis. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct BatchingClient {
    inbox: Inbox,
    open_max: usize,
    state: Arc<ClientState>,
    published: watch::Receiver<PublishedState>,
}

/// What callers share with the thread.
#[derive(Debug, Default)]
struct ClientState {
    /// Callers that wait for a reply, or have not taken it yet.
    open: AtomicUsize,
    counters: Counters,
    /// The first argument of the script.
    instant: Mutex<Vec<u8>>,
}

impl BatchingClient {
    /// Starts the thread, which connects and keeps trying while it cannot. Every [`ScriptCall`] runs `script`.
    ///
    /// The script is called with all keys as `KEYS`, an instant as `ARGV[1]` (empty: read the server's clock) and the
    /// bodies of the calls as the further `ARGV`. It returns `{seconds, microseconds, one string per call}`.
    ///
    /// # Errors
    /// When the settings are invalid, or a file that they name cannot be read.
    pub fn start(settings: RedisSettings, script: &str) -> Result<Self, RedisSettingsError> {
        let settings = Arc::new(settings);
        let dialer = Dialer::new(Arc::clone(&settings))?;
        let (sender, jobs) = mpsc::channel(settings.queue);
        let (publish, published) = watch::channel(PublishedState::disconnected(now()));
        let state = Arc::new(ClientState::default());
        let worker_state = Arc::clone(&state);
        let script: Arc<str> = script.into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RedisSettingsError(error.to_string()))?;
        thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || {
                let worker = Worker::new(dialer, script, jobs, publish, worker_state);
                runtime.block_on(worker.run());
            })
            .map_err(|error| RedisSettingsError(format!("cannot start a thread: {error}")))?;
        let inbox = Inbox { sender, state: Arc::clone(&state) };
        Ok(BatchingClient { inbox, open_max: settings.queue, state, published })
    }

    /// Runs the script for one call, and waits at most this long for its reply.
    ///
    /// # Errors
    /// When there is no reply in time, the server fails, or too many calls wait already.
    pub async fn send(&self, call: ScriptCall, within: Duration) -> Result<ScriptReply, LinkError> {
        let _open = self.enter()?;
        let (reply, received) = oneshot::channel();
        let payload = Payload::Script { call, reply: Some(reply) };
        self.inbox.send_grouped(Job::new(payload, Deadline::after(within)));
        received.await.unwrap_or_else(|_| Err(thread_ended()))
    }

    /// Runs the script for one call without waiting for its reply. The call is lost if it cannot be sent within this
    /// long.
    pub fn send_and_forget(&self, call: ScriptCall, within: Duration) {
        let job = Job::new(Payload::Script { call, reply: None }, Deadline::after(within));
        self.inbox.send(smallvec![job]);
    }

    /// Sends commands in one pipeline, and waits for all replies. In a cluster each command goes to the node of its
    /// first key.
    ///
    /// # Errors
    /// As [`BatchingClient::send`]; also when the server replies to one of them with an error, though others may have
    /// run.
    pub async fn commands(
        &self,
        commands: Vec<Cmd>,
        within: Duration,
    ) -> Result<Vec<Value>, LinkError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let _open = self.enter()?;
        let (reply, received) = oneshot::channel();
        self.inbox.send(Job::commands(commands, reply, Deadline::after(within)));
        received.await.unwrap_or_else(|_| Err(thread_ended()))
    }

    /// Counts a caller, unless too many wait already.
    fn enter(&self) -> Result<OpenCaller<'_>, LinkError> {
        let open = OpenCaller::enter(&self.state.open);
        if open.others >= self.open_max {
            self.state.counters.failed(FailureKind::Overloaded);
            let reason = format!("{} calls wait for it already", self.open_max);
            return Err(unavailable(FailureKind::Overloaded, reason));
        }
        Ok(open)
    }

    /// The number of the cluster's node that has a slot, if it is known.
    pub fn node_of(&self, slot: u16) -> Option<u16> {
        let node = self.published.borrow().map.as_ref()?.node_of(slot)?;
        u16::try_from(node).ok()
    }

    /// Whether this node of a cluster, or the only server as node 0, has an open connection: one that is silent for
    /// too long is closed, so an open one means that the server has answered lately, or was not called.
    pub fn is_answering(&self, node: u16) -> bool {
        self.published.borrow().open_nodes.get(usize::from(node)).is_some_and(|is_open| *is_open)
    }

    /// The state of the connections.
    pub fn state(&self) -> LinkState {
        self.published.borrow().at(now())
    }

    /// Waits until all connections are open, forever if necessary.
    pub async fn connected(&self) {
        let mut published = self.published.clone();
        let is_connected = |published: &PublishedState| published.state.is_connected();
        // An error means that the thread has ended: there is nothing to wait for.
        let _ = published.wait_for(is_connected).await;
    }

    /// Counts of calls, errors and connections since the start.
    pub fn figures(&self) -> ClientFigures {
        let waiting = self.state.open.load(Ordering::Relaxed);
        self.state.counters.figures(waiting, &self.published.borrow().state)
    }

    /// Sets the first argument of the script: the instant at which it decides. Empty lets it read the server's clock.
    /// For tests with a manual clock.
    #[doc(hidden)]
    pub fn set_instant(&self, argument: &[u8]) {
        argument.clone_into(&mut self.state.instant.lock());
    }
}

/// Counts a caller while it waits; dropped also when its future is cancelled.
struct OpenCaller<'a> {
    count: &'a AtomicUsize,
    others: usize,
}

impl<'a> OpenCaller<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        OpenCaller { others: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for OpenCaller<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Real time, even if the callers' clock is manual: the server uses it too.
#[expect(clippy::disallowed_methods, reason = "deadlines of calls to a real server")]
fn now() -> Instant {
    Instant::now()
}

fn queue_full() -> LinkError {
    unavailable(FailureKind::Overloaded, "too many calls wait for it already")
}

fn thread_ended() -> LinkError {
    unavailable(FailureKind::Other, "the thread that owns its connections has ended")
}

#[cfg(test)]
mod tests;
