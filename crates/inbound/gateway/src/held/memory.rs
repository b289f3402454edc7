//! Held requests in memory: bounded in number and in bytes, gone with the process.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{HeldId, HeldRequest, HeldRequests, HeldState, NoRoom};
use crate::settings::QueueSettings;

/// Keeps requests in memory.
#[derive(Debug)]
pub struct HeldInMemory {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    settings: QueueSettings,
    held: HashMap<HeldId, Held>,
    bytes: usize,
    /// Those that ended, with the time; the oldest first.
    ended: VecDeque<(Instant, HeldId)>,
}

#[derive(Debug)]
struct Held {
    state: HeldState,
    request: Option<HeldRequest>,
}

impl HeldInMemory {
    /// Room for as much as the settings say.
    pub fn new(settings: QueueSettings) -> Self {
        let (held, ended) = (HashMap::new(), VecDeque::new());
        HeldInMemory { table: Mutex::new(Table { settings, held, bytes: 0, ended }) }
    }

    /// Makes room for as much as these settings say. What is kept stays, also where it is more.
    pub fn resize(&self, settings: QueueSettings) {
        self.table.lock().settings = settings;
    }
}

impl Table {
    /// Forgets those that ended before a moment.
    fn forget(&mut self, before: Option<Instant>) {
        let old = |ended: &Instant| before.is_some_and(|before| *ended <= before);
        // Each step takes one away, so this ends.
        while let Some((_, id)) = self.ended.pop_front_if(|(ended, _)| old(ended)) {
            self.held.remove(&id);
        }
    }
}

impl HeldRequests for HeldInMemory {
    fn hold(&self, request: HeldRequest) -> Result<HeldId, NoRoom> {
        let bytes = request.bytes();
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| NoRoom)?;
        let id = HeldId::new(u128::from_ne_bytes(random));
        let mut table = self.table.lock();
        let QueueSettings { requests_max, bytes_max, remember, .. } = table.settings;
        table.forget(Instant::now().checked_sub(remember));
        let total = table.bytes.saturating_add(bytes);
        if table.held.len() >= requests_max || total > bytes_max {
            return Err(NoRoom);
        }
        table.bytes = total;
        table.held.insert(id, Held { state: HeldState::Waiting, request: Some(request) });
        Ok(id)
    }

    fn take(&self, id: HeldId) -> Option<HeldRequest> {
        let mut table = self.table.lock();
        let request = table.held.get_mut(&id)?.request.take()?;
        table.bytes = table.bytes.saturating_sub(request.bytes());
        Some(request)
    }

    fn settle(&self, id: HeldId, state: HeldState) {
        // Its request is dropped after the lock.
        let _unprocessed = self.take(id);
        let mut table = self.table.lock();
        let Some(held) = table.held.get_mut(&id) else { return };
        held.state = state;
        if state != HeldState::Waiting {
            table.ended.push_back((Instant::now(), id));
        }
    }

    fn state(&self, id: HeldId) -> Option<HeldState> {
        self.table.lock().held.get(&id).map(|held| held.state)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use tokio::time::advance;

    use super::*;

    fn request(bytes: usize) -> HeldRequest {
        let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
        HeldRequest { head, body: Bytes::from(vec![b'x'; bytes - 1]) }
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_bounded_in_number_and_in_bytes() {
        let settings =
            QueueSettings { requests_max: 3, bytes_max: 100, ..QueueSettings::default() };
        let held = HeldInMemory::new(settings);
        let first = held.hold(request(60)).unwrap();
        assert_eq!(held.hold(request(41)), Err(NoRoom));
        held.hold(request(40)).unwrap();
        assert_eq!(held.take(first).unwrap().bytes(), 60);
        assert!(held.take(first).is_none());
        held.hold(request(60)).unwrap();
        assert_eq!(held.hold(request(1)), Err(NoRoom));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_stays_when_there_is_less_room() {
        let settings = QueueSettings { requests_max: 2, ..QueueSettings::default() };
        let held = HeldInMemory::new(settings);
        let first = held.hold(request(1)).unwrap();
        held.hold(request(1)).unwrap();
        held.resize(QueueSettings { requests_max: 1, ..settings });
        assert_eq!(held.hold(request(1)), Err(NoRoom));
        assert!(held.take(first).is_some());
        held.resize(QueueSettings { requests_max: 3, ..settings });
        assert!(held.hold(request(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_is_told_until_some_time_after_its_end() {
        let settings = QueueSettings {
            requests_max: 1,
            remember: Duration::from_secs(10),
            ..QueueSettings::default()
        };
        let held = HeldInMemory::new(settings);
        let id = held.hold(request(1)).unwrap();
        assert_eq!(held.state(id), Some(HeldState::Waiting));
        held.settle(id, HeldState::Done(StatusCode::CREATED));
        assert_eq!(held.state(id), Some(HeldState::Done(StatusCode::CREATED)));
        advance(Duration::from_secs(9)).await;
        assert_eq!(held.hold(request(1)), Err(NoRoom));
        advance(Duration::from_secs(1)).await;
        let other = held.hold(request(1)).unwrap();
        assert_eq!(held.state(id), None);
        assert_ne!(other, id);
    }

    #[test]
    fn an_identity_is_read_back_and_nothing_else_is() {
        let id = HeldId::new(0xab);
        assert_eq!(HeldId::parse(&id.to_string()), Some(id));
        assert_eq!(HeldId::parse("ab"), None);
        assert_eq!(HeldId::parse(&"+".repeat(32)), None);
    }
}
