//! A queue in memory: bounded in number and in bytes, as a whole and for each caller, and lost with the process.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tidegate_document::Size;
use tidegate_overload::Caller;
use tokio::time::Instant;

use super::{QueueFull, QueueFuture, QueueId, QueuedRequest, QueuedState, RequestQueue};
use crate::settings::QueueSettings;

/// A queue in memory.
#[derive(Debug)]
pub struct MemoryQueue {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    settings: QueueSettings,
    requests: HashMap<QueueId, QueueEntry>,
    usage: QueueUsage,
    /// What each caller with a request in the table uses.
    callers: HashMap<Caller, QueueUsage>,
    /// The requests that ended, the oldest first.
    ended: VecDeque<(Instant, QueueId)>,
}

#[derive(Debug)]
struct QueueEntry {
    state: QueuedState,
    request: Option<QueuedRequest>,
    caller: Caller,
}

/// A part of the table.
#[derive(Clone, Copy, Debug, Default)]
struct QueueUsage {
    /// Requests, including those that ended.
    requests: usize,
    /// Bytes of requests that wait.
    bytes: usize,
}

impl QueueUsage {
    fn add(&mut self, bytes: usize) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn has_room(self, bytes: usize, requests_max: usize, bytes_max: Size) -> bool {
        self.requests < requests_max && self.bytes.saturating_add(bytes) <= bytes_max.to_usize()
    }
}

impl MemoryQueue {
    /// An empty queue with these bounds.
    pub fn new(settings: QueueSettings) -> Self {
        let (requests, callers, ended) = Default::default();
        let usage = QueueUsage::default();
        MemoryQueue { table: Mutex::new(Table { settings, requests, usage, callers, ended }) }
    }

    /// Stores a request without waiting.
    ///
    /// # Errors
    /// When the queue is full, or the caller's share of it.
    pub(super) fn push_now(&self, request: QueuedRequest) -> Result<QueueId, QueueFull> {
        let (bytes, caller) = (request.bytes(), request.caller);
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| QueueFull)?;
        let id = QueueId::new(u128::from_ne_bytes(random));
        let mut table = self.table.lock();
        if !table.has_room(caller, bytes) {
            return Err(QueueFull);
        }
        table.insert(id, caller, QueuedState::Waiting, Some(request));
        Ok(id)
    }

    /// Adds a request that an earlier process stored, whatever the bounds are. Its own copy is elsewhere.
    pub(super) fn restore(&self, id: QueueId, caller: Caller, state: QueuedState) {
        let mut table = self.table.lock();
        let has_ended = state != QueuedState::Waiting;
        table.insert(id, caller, state, None);
        if has_ended {
            table.ended.push_back((Instant::now(), id));
        }
    }

    /// Removes a request that could not be stored durably.
    pub(super) fn remove(&self, id: QueueId) {
        // Dropped outside of the lock.
        let _unprocessed = self.take(id);
        self.table.lock().remove(id);
    }

    /// Sets the state of a request without waiting.
    pub(super) fn settle_now(&self, id: QueueId, state: QueuedState) {
        // Dropped outside of the lock.
        let _unprocessed = self.take(id);
        let mut table = self.table.lock();
        let Some(entry) = table.requests.get_mut(&id) else { return };
        let has_ended = state != QueuedState::Waiting;
        entry.state = state;
        if has_ended {
            table.ended.push_back((Instant::now(), id));
        }
    }

    /// Whether a request is in the table.
    pub(super) fn contains(&self, id: QueueId) -> bool {
        self.table.lock().requests.contains_key(&id)
    }

    /// Forgets the requests that ended too long ago.
    pub(super) fn forget_old(&self) {
        let mut table = self.table.lock();
        let remember = table.settings.remember;
        table.forget(Instant::now().checked_sub(remember));
    }

    pub(super) fn settings(&self) -> QueueSettings {
        self.table.lock().settings
    }
}

impl Table {
    fn insert(
        &mut self,
        id: QueueId,
        caller: Caller,
        state: QueuedState,
        request: Option<QueuedRequest>,
    ) {
        let bytes = request.as_ref().map_or(0, QueuedRequest::bytes);
        self.usage.add(bytes);
        self.callers.entry(caller).or_default().add(bytes);
        self.requests.insert(id, QueueEntry { state, request, caller });
    }

    /// Forgets the requests that ended before an instant.
    fn forget(&mut self, before: Option<Instant>) {
        let old = |ended: &Instant| before.is_some_and(|before| *ended <= before);
        while let Some((_, id)) = self.ended.pop_front_if(|(ended, _)| old(ended)) {
            self.remove(id);
        }
    }

    /// Forgets the oldest request of a caller that has ended, and returns whether there was one.
    fn forget_of(&mut self, caller: Caller) -> bool {
        let of_caller =
            |id: &QueueId| self.requests.get(id).is_some_and(|entry| entry.caller == caller);
        let oldest = self.ended.iter().position(|(_, id)| of_caller(id));
        let ended = oldest.and_then(|index| self.ended.remove(index));
        ended.map(|(_, id)| self.remove(id)).is_some()
    }

    /// Removes a request that ended, so that none of its bytes are counted.
    fn remove(&mut self, id: QueueId) {
        let Some(entry) = self.requests.remove(&id) else { return };
        self.usage.requests = self.usage.requests.saturating_sub(1);
        if let Entry::Occupied(mut usage) = self.callers.entry(entry.caller) {
            usage.get_mut().requests = usage.get().requests.saturating_sub(1);
            if usage.get().requests == 0 {
                usage.remove();
            }
        }
    }

    /// Makes room for a request: in the table, and in its caller's share.
    fn has_room(&mut self, caller: Caller, bytes: usize) -> bool {
        let settings = self.settings;
        self.forget(Instant::now().checked_sub(settings.remember));
        let share = |table: &Self| table.callers.get(&caller).copied().unwrap_or_default();
        if share(self).requests >= settings.caller_requests_max {
            self.forget_of(caller);
        }
        share(self).has_room(bytes, settings.caller_requests_max, settings.caller_bytes_max)
            && self.usage.has_room(bytes, settings.requests_max, settings.bytes_max)
    }
}

impl RequestQueue for MemoryQueue {
    fn push(&self, request: QueuedRequest) -> QueueFuture<'_, Result<QueueId, QueueFull>> {
        let pushed = self.push_now(request);
        Box::pin(std::future::ready(pushed))
    }

    fn take(&self, id: QueueId) -> Option<QueuedRequest> {
        let mut table = self.table.lock();
        let request = table.requests.get_mut(&id)?.request.take()?;
        let bytes = request.bytes();
        table.usage.bytes = table.usage.bytes.saturating_sub(bytes);
        if let Some(usage) = table.callers.get_mut(&request.caller) {
            usage.bytes = usage.bytes.saturating_sub(bytes);
        }
        Some(request)
    }

    fn settle(&self, id: QueueId, state: QueuedState) -> QueueFuture<'_, ()> {
        self.settle_now(id, state);
        Box::pin(std::future::ready(()))
    }

    fn state(&self, id: QueueId) -> Option<QueuedState> {
        self.table.lock().requests.get(&id).map(|entry| entry.state.clone())
    }

    fn resize(&self, settings: QueueSettings) {
        self.table.lock().settings = settings;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, Request, StatusCode};
    use tidegate_server::Peer;
    use tokio::time::advance;

    use super::super::QueuedResponse;
    use super::*;

    fn done(status: StatusCode) -> QueuedState {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        QueuedState::Done(QueuedResponse { status, headers, body, truncated: false })
    }

    fn request(bytes: usize) -> QueuedRequest {
        let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
        let caller = Caller::default();
        QueuedRequest {
            head,
            body: Bytes::from(vec![b'x'; bytes - 1]),
            caller,
            peer: Peer::default(),
        }
    }

    fn request_of(name: &str, bytes: usize) -> QueuedRequest {
        QueuedRequest { caller: Caller::named(name), ..request(bytes) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_has_a_share_in_number_and_in_bytes() {
        let settings = QueueSettings {
            caller_requests_max: 2,
            caller_bytes_max: Size::new(100),
            ..QueueSettings::default()
        };
        let queue = MemoryQueue::new(settings);
        let first = queue.push_now(request_of("a", 60)).unwrap();
        assert_eq!(queue.push_now(request_of("a", 41)), Err(QueueFull));
        let second = queue.push_now(request_of("a", 40)).unwrap();
        assert_eq!(queue.push_now(request_of("a", 1)), Err(QueueFull));
        for _ in 0..2 {
            queue.push_now(request_of("b", 50)).unwrap();
        }
        // One that has ended makes room, and its state is forgotten.
        queue.settle_now(first, done(StatusCode::OK));
        assert_eq!(queue.state(first), Some(done(StatusCode::OK)));
        queue.push_now(request_of("a", 60)).unwrap();
        assert_eq!((queue.state(first), queue.state(second)), (None, Some(QueuedState::Waiting)));
        assert_eq!(queue.push_now(request_of("a", 1)), Err(QueueFull));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_callers_whose_requests_are_forgotten() {
        let settings = QueueSettings { remember: Duration::ZERO, ..QueueSettings::default() };
        let queue = MemoryQueue::new(settings);
        for number in 0..50 {
            let id = queue.push_now(request_of(&number.to_string(), 10)).unwrap();
            queue.settle_now(id, QueuedState::Expired);
        }
        queue.push_now(request_of("last", 10)).unwrap();
        let table = queue.table.lock();
        assert_eq!((table.callers.len(), table.requests.len()), (1, 1));
        assert_eq!((table.usage.requests, table.usage.bytes), (1, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_number_and_in_bytes() {
        let settings = QueueSettings {
            requests_max: 3,
            bytes_max: Size::new(100),
            ..QueueSettings::default()
        };
        let queue = MemoryQueue::new(settings);
        let first = queue.push_now(request(60)).unwrap();
        assert_eq!(queue.push_now(request(41)), Err(QueueFull));
        queue.push_now(request(40)).unwrap();
        assert_eq!(queue.take(first).unwrap().bytes(), 60);
        assert!(queue.take(first).is_none());
        queue.push_now(request(60)).unwrap();
        assert_eq!(queue.push_now(request(1)), Err(QueueFull));
    }

    #[tokio::test(start_paused = true)]
    async fn stored_requests_stay_when_the_bounds_shrink() {
        let settings = QueueSettings { requests_max: 2, ..QueueSettings::default() };
        let queue = MemoryQueue::new(settings);
        let first = queue.push_now(request(1)).unwrap();
        queue.push_now(request(1)).unwrap();
        queue.resize(QueueSettings { requests_max: 1, ..settings });
        assert_eq!(queue.push_now(request(1)), Err(QueueFull));
        assert!(queue.take(first).is_some());
        queue.resize(QueueSettings { requests_max: 3, ..settings });
        assert!(queue.push_now(request(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_is_readable_for_some_time_after_its_end() {
        let settings = QueueSettings {
            requests_max: 1,
            remember: Duration::from_secs(10),
            ..QueueSettings::default()
        };
        let queue = MemoryQueue::new(settings);
        let id = queue.push_now(request(1)).unwrap();
        assert_eq!(queue.state(id), Some(QueuedState::Waiting));
        queue.settle_now(id, done(StatusCode::CREATED));
        assert_eq!(queue.state(id), Some(done(StatusCode::CREATED)));
        advance(Duration::from_secs(9)).await;
        assert_eq!(queue.push_now(request(1)), Err(QueueFull));
        advance(Duration::from_secs(1)).await;
        let other = queue.push_now(request(1)).unwrap();
        assert_eq!(queue.state(id), None);
        assert_ne!(other, id);
    }

    #[test]
    fn only_ids_are_parsed() {
        let id = QueueId::new(0xab);
        assert_eq!(QueueId::parse(&id.to_string()), Some(id));
        assert_eq!(QueueId::parse("ab"), None);
        assert_eq!(QueueId::parse(&"+".repeat(32)), None);
    }
}
