//! The queue of requests that are processed later.
//!
//! A limit with `when_over: queue` does not refuse: the gateway stores the request, answers where its state can be
//! read, and processes it at the limit's pace. [`RequestQueue`] is the interface; [`MemoryQueue`] loses its requests
//! with the process, and their states are then unknown; [`DurableQueue`] keeps them in a durable queue.

mod durable;
mod memory;
mod stored_form;

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tidegate_overload::Caller;
use tidegate_server::Peer;

pub use durable::DurableQueue;
pub use memory::MemoryQueue;
/// The id of a queued request.
pub use tidegate_access::RandomId as QueueId;

use crate::settings::QueueSettings;

/// The path of the states of queued requests; the id follows.
pub(super) const QUEUE_PATH: &str = "/.tidegate/held/";

/// Follows the id in the path of a response.
pub(super) const RESPONSE_SUFFIX: &str = "/response";

/// Marks a request that an earlier process stored: it is not stored again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveredRequest;

/// Marks a response to a request that was shed, so that a recovered request is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShedRequest;

/// A future of a queue.
pub type QueueFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A request with its whole body.
#[derive(Debug)]
pub struct QueuedRequest {
    /// The head, unchanged.
    pub head: Parts,
    /// The body.
    pub body: Bytes,
    /// Its caller, who has only a share of the queue.
    pub caller: Caller,
    /// The other end of its connection.
    pub peer: Peer,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuedState {
    /// It waits, or is being processed.
    Waiting,
    /// It was processed, and this is the response.
    Done(QueuedResponse),
    /// It waited too long and was not processed.
    Expired,
}

/// The response to a queued request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedResponse {
    /// The status.
    pub status: StatusCode,
    /// The end-to-end fields, without cookies.
    pub headers: HeaderMap,
    /// The beginning of the body.
    pub body: Bytes,
    /// Whether the body was longer, or broke off.
    pub truncated: bool,
}

/// The request cannot be stored: the queue is full, or the caller's share of it, or its store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// A queue of requests.
pub trait RequestQueue: Send + Sync + fmt::Debug {
    /// Stores a request. It is as safe as the queue is when the future is ready.
    ///
    /// # Errors
    /// When the queue is full, or the caller's share of it, or its store fails.
    fn push(&self, request: QueuedRequest) -> QueueFuture<'_, Result<QueueId, QueueFull>>;

    /// Takes a request out to process it; its state stays. [`None`] if it is not there.
    fn take(&self, id: QueueId) -> Option<QueuedRequest>;

    /// Sets the final state of a request, and drops the request if it is still stored.
    fn settle(&self, id: QueueId, state: QueuedState) -> QueueFuture<'_, ()>;

    /// The state of a request; [`None`] if it is unknown.
    fn state(&self, id: QueueId) -> Option<QueuedState>;

    /// Changes the bounds. Requests that are stored stay, even if there are more.
    fn resize(&self, settings: QueueSettings);

    /// Keeps the requests of this process, and returns those that an earlier process left. Called every few seconds.
    fn recover(&self) -> QueueFuture<'_, Vec<(QueueId, QueuedRequest)>> {
        Box::pin(async { Vec::new() })
    }
}
