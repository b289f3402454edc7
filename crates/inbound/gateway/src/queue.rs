//! The queue of requests that are processed later.
//!
//! A limit with `when_over: queue` does not refuse: the gateway stores the request, answers where its state can be
//! read, and processes it at the limit's pace. [`RequestQueue`] is the interface; [`MemoryQueue`] loses its requests
//! with the process, and their states are then unknown.

mod memory;

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use tidegate_overload::Caller;

pub use memory::MemoryQueue;
/// The id of a queued request.
pub use tidegate_access::RandomId as QueueId;

/// The path of the states of queued requests; the id follows.
pub(super) const QUEUE_PATH: &str = "/.tidegate/held/";

/// A request with its whole body.
#[derive(Debug)]
pub struct QueuedRequest {
    /// The head, unchanged.
    pub head: Parts,
    /// The body.
    pub body: Bytes,
    /// Its caller, who has only a share of the queue.
    pub caller: Caller,
}

impl QueuedRequest {
    /// The memory that it needs, about.
    pub fn bytes(&self) -> usize {
        let fields = self.head.headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        let target = self.head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        fields.fold(self.body.len().saturating_add(target), usize::saturating_add)
    }
}

/// The state of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedState {
    /// It waits, or is being processed.
    Waiting,
    /// It was processed, and the upstream answered with this status.
    Done(StatusCode),
    /// It waited too long and was not processed.
    Expired,
}

/// The queue is full, or the caller's share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// A queue of requests.
pub trait RequestQueue: Send + Sync + fmt::Debug {
    /// Stores a request.
    ///
    /// # Errors
    /// When the queue is full, or the caller's share of it.
    fn push(&self, request: QueuedRequest) -> Result<QueueId, QueueFull>;

    /// Takes a request out to process it; its state stays. [`None`] if it is not there.
    fn take(&self, id: QueueId) -> Option<QueuedRequest>;

    /// Sets the state of a request, and drops the request if it is still stored.
    fn settle(&self, id: QueueId, state: QueuedState);

    /// The state of a request; [`None`] if it is unknown.
    fn state(&self, id: QueueId) -> Option<QueuedState>;
}
