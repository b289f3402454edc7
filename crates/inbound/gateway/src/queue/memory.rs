//! A queue in memory: bounded in number and in bytes, lost with the process.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{QueueFull, QueueId, QueuedRequest, QueuedState, RequestQueue};
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
    bytes: usize,
    /// The requests that ended, the oldest first.
    ended: VecDeque<(Instant, QueueId)>,
}

#[derive(Debug)]
struct QueueEntry {
    state: QueuedState,
    request: Option<QueuedRequest>,
}

impl MemoryQueue {
    /// An empty queue with these bounds.
    pub fn new(settings: QueueSettings) -> Self {
        let (requests, ended) = (HashMap::new(), VecDeque::new());
        MemoryQueue { table: Mutex::new(Table { settings, requests, bytes: 0, ended }) }
    }

    /// Changes the bounds. Requests that are stored stay, even if there are more.
    pub fn resize(&self, settings: QueueSettings) {
        self.table.lock().settings = settings;
    }
}

impl Table {
    /// Forgets the requests that ended before an instant.
    fn forget(&mut self, before: Option<Instant>) {
        let old = |ended: &Instant| before.is_some_and(|before| *ended <= before);
        while let Some((_, id)) = self.ended.pop_front_if(|(ended, _)| old(ended)) {
            self.requests.remove(&id);
        }
    }
}

impl RequestQueue for MemoryQueue {
    fn push(&self, request: QueuedRequest) -> Result<QueueId, QueueFull> {
        let bytes = request.bytes();
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| QueueFull)?;
        let id = QueueId::new(u128::from_ne_bytes(random));
        let mut table = self.table.lock();
        let QueueSettings { requests_max, bytes_max, remember, .. } = table.settings;
        table.forget(Instant::now().checked_sub(remember));
        let total = table.bytes.saturating_add(bytes);
        if table.requests.len() >= requests_max || total > bytes_max {
            return Err(QueueFull);
        }
        table.bytes = total;
        table
            .requests
            .insert(id, QueueEntry { state: QueuedState::Waiting, request: Some(request) });
        Ok(id)
    }

    fn take(&self, id: QueueId) -> Option<QueuedRequest> {
        let mut table = self.table.lock();
        let request = table.requests.get_mut(&id)?.request.take()?;
        table.bytes = table.bytes.saturating_sub(request.bytes());
        Some(request)
    }

    fn settle(&self, id: QueueId, state: QueuedState) {
        // Dropped outside of the lock.
        let _unprocessed = self.take(id);
        let mut table = self.table.lock();
        let Some(entry) = table.requests.get_mut(&id) else { return };
        entry.state = state;
        if state != QueuedState::Waiting {
            table.ended.push_back((Instant::now(), id));
        }
    }

    fn state(&self, id: QueueId) -> Option<QueuedState> {
        self.table.lock().requests.get(&id).map(|entry| entry.state)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use tokio::time::advance;

    use super::*;

    fn request(bytes: usize) -> QueuedRequest {
        let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
        QueuedRequest { head, body: Bytes::from(vec![b'x'; bytes - 1]) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_number_and_in_bytes() {
        let settings =
            QueueSettings { requests_max: 3, bytes_max: 100, ..QueueSettings::default() };
        let queue = MemoryQueue::new(settings);
        let first = queue.push(request(60)).unwrap();
        assert_eq!(queue.push(request(41)), Err(QueueFull));
        queue.push(request(40)).unwrap();
        assert_eq!(queue.take(first).unwrap().bytes(), 60);
        assert!(queue.take(first).is_none());
        queue.push(request(60)).unwrap();
        assert_eq!(queue.push(request(1)), Err(QueueFull));
    }

    #[tokio::test(start_paused = true)]
    async fn stored_requests_stay_when_the_bounds_shrink() {
        let settings = QueueSettings { requests_max: 2, ..QueueSettings::default() };
        let queue = MemoryQueue::new(settings);
        let first = queue.push(request(1)).unwrap();
        queue.push(request(1)).unwrap();
        queue.resize(QueueSettings { requests_max: 1, ..settings });
        assert_eq!(queue.push(request(1)), Err(QueueFull));
        assert!(queue.take(first).is_some());
        queue.resize(QueueSettings { requests_max: 3, ..settings });
        assert!(queue.push(request(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_is_readable_for_some_time_after_its_end() {
        let settings = QueueSettings {
            requests_max: 1,
            remember: Duration::from_secs(10),
            ..QueueSettings::default()
        };
        let queue = MemoryQueue::new(settings);
        let id = queue.push(request(1)).unwrap();
        assert_eq!(queue.state(id), Some(QueuedState::Waiting));
        queue.settle(id, QueuedState::Done(StatusCode::CREATED));
        assert_eq!(queue.state(id), Some(QueuedState::Done(StatusCode::CREATED)));
        advance(Duration::from_secs(9)).await;
        assert_eq!(queue.push(request(1)), Err(QueueFull));
        advance(Duration::from_secs(1)).await;
        let other = queue.push(request(1)).unwrap();
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
