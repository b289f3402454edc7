//! Accepts connections and assigns each to the worker with the fewest.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::Permit;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::connection::ConnectionHandler;
use super::connection_state::ConnectionState;
use super::guard::{DoorGuard, Entrance, FullDoor, NetworkSlot};
use super::listener::{AcceptedSocket, Listener};
use super::peer;
use super::stats::{CountGuard, OpenConnection, Stats};
use super::worker::{NewConnection, Phase, Worker};

/// The pause after `accept` fails for want of descriptors or memory. Without it the loop would spin: the connection is
/// still in the backlog, so the socket stays readable.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Connections over the maximum, each of which waits for the end of one that it replaces.
const SURPLUS_MAX: usize = 64;

/// The same problem is logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Accepts the connections of one address.
pub(super) struct Acceptor {
    pub(super) name: &'static str,
    pub(super) listener: Listener,
    pub(super) door: Arc<dyn ConnectionHandler>,
    /// The limits on connections by network.
    pub(super) guard: Option<DoorGuard>,
    pub(super) stats: Arc<Stats>,
    /// Open connections at all addresses of the endpoint.
    pub(super) door_open: Arc<AtomicUsize>,
    pub(super) workers: Arc<[Worker]>,
    /// Index of the worker at which the next search begins, modulo their number.
    pub(super) next_worker: Arc<AtomicUsize>,
}

impl Acceptor {
    /// Accepts until the server stops, then closes the socket.
    pub(super) async fn run(self, mut phase: watch::Receiver<Phase>) {
        let mut failures = LogThrottle::default();
        let mut refusals = LogThrottle::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = phase.wait_for(Phase::is_closing) => return,
            };
            match accepted {
                Ok(accepted) => {
                    let is_admitted = tokio::select! {
                        biased;
                        is_admitted = self.admit(accepted, &mut refusals) => is_admitted,
                        _ = phase.wait_for(Phase::is_closing) => return,
                    };
                    let guard = self.guard.as_ref().filter(|_| is_admitted);
                    if let Some(pause) = guard.and_then(DoorGuard::pause) {
                        // Further connections wait in the kernel's queue, which has SYN cookies when it is full.
                        tokio::select! {
                            () = sleep(pause) => {}
                            _ = phase.wait_for(Phase::is_closing) => return,
                        }
                    }
                }
                // The client closed before it was accepted. The next connection is unaffected.
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    self.stats.accept_errors.fetch_add(1, Relaxed);
                    if failures.is_due(Instant::now()) {
                        tracing::error!(door = self.name, %error, "cannot accept connections");
                    }
                    tokio::select! {
                        () = sleep(BACK_OFF) => {}
                        _ = phase.wait_for(Phase::is_closing) => return,
                    }
                }
            }
        }
    }

    /// Resets a connection that its network may not have, and assigns any other. Returns whether it may.
    async fn admit(&self, accepted: AcceptedSocket, refusals: &mut LogThrottle) -> bool {
        match self.enter(&accepted) {
            Entrance::Unguarded => self.assign(accepted, None, refusals).await,
            Entrance::Admitted(slot) => self.assign(accepted, Some(slot), refusals).await,
            Entrance::Refused => {
                accepted.reset();
                return false;
            }
        }
        true
    }

    /// Asks the guard about a connection, unless a proxy is going to name its client.
    fn enter(&self, accepted: &AcceptedSocket) -> Entrance {
        let (Some(guard), Some(address)) = (&self.guard, accepted.address()) else {
            return Entrance::Unguarded;
        };
        if peer::is_in(address, self.door.proxies()) {
            return Entrance::Unguarded;
        }
        guard.enter(address.ip(), false)
    }

    /// Sends a connection to a worker, or closes it.
    async fn assign(
        &self,
        accepted: AcceptedSocket,
        slot: Option<NetworkSlot>,
        refusals: &mut LogThrottle,
    ) {
        // An option cannot be set on a socket whose client has vanished.
        if accepted.prepare().is_err() {
            return;
        }
        let open = self.door_open.load(Relaxed);
        let limits = self.door.limits();
        let (mut is_surplus, mut has_room) = (open >= limits.connections_max, false);
        if is_surplus && let Some(guard) = &self.guard {
            match guard.make_room(open, slot.as_ref()) {
                // The closed one is counted until it has ended.
                FullDoor::RoomMade => (is_surplus, has_room) = (false, true),
                FullDoor::Refused => return accepted.reset(),
                FullDoor::NoneGreedy => {}
            }
        }
        let spare = if has_room || limits.evict_after.is_some() { SURPLUS_MAX } else { 0 };
        if open < limits.connections_max.saturating_add(spare) {
            let Some((worker, room)) = self.reserve().await else { return };
            let door = CountGuard::new(&self.door_open);
            let open = OpenConnection::new(
                Arc::clone(&self.stats),
                door,
                CountGuard::new(&worker.connections),
            );
            let state = Arc::new(ConnectionState::new(self.name, open, self.guard.clone()));
            if let Some(slot) = slot {
                slot.attach(&state);
                state.set_slot(slot);
            }
            let door = Arc::clone(&self.door);
            room.send(NewConnection { accepted, state, door, is_surplus });
            // The worker counts one that replaces another.
            self.stats.accepted.fetch_add(u64::from(!is_surplus), Relaxed);
        } else {
            self.stats.refused.fetch_add(1, Relaxed);
            if refusals.is_due(Instant::now()) {
                let open = self.door_open.load(Relaxed);
                tracing::warn!(door = self.name, open, "too many connections: closed a new one");
            }
        }
    }

    /// Room in the queue of the worker with the fewest connections, or of another one if that is full. Waits while all
    /// are full: a burst of connections stays in the kernel's queue, and none is closed. `None` when the workers have
    /// ended.
    async fn reserve(&self) -> Option<(&Worker, Permit<'_, NewConnection>)> {
        let worker = self.least_busy();
        if let Ok(room) = worker.new_connections.try_reserve() {
            return Some((worker, room));
        }
        let mut waiting: Vec<_> = self
            .workers
            .iter()
            .map(|worker| (worker, Box::pin(worker.new_connections.reserve())))
            .collect();
        poll_fn(|cx| {
            let mut found = None;
            waiting.retain_mut(|(worker, reserving)| {
                if found.is_some() {
                    return true;
                }
                match reserving.as_mut().poll(cx) {
                    Poll::Pending => true,
                    Poll::Ready(room) => {
                        found = room.ok().map(|room| (*worker, room));
                        false
                    }
                }
            });
            match found {
                None if !waiting.is_empty() => Poll::Pending,
                found => Poll::Ready(found),
            }
        })
        .await
    }

    /// The worker with the fewest connections; ties are broken round-robin.
    fn least_busy(&self) -> &Worker {
        let next = self.next_worker.fetch_add(1, Relaxed);
        let (later, first) = self.workers.split_at(next % self.workers.len());
        let workers = first.iter().chain(later);
        workers
            .min_by_key(|worker| worker.connections.load(Relaxed))
            .expect("a server has at least one worker")
    }
}

/// Whether an error of `accept` concerns only the connection that was accepted.
fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::NotConnected
            // Setting an option on a socket whose client has vanished.
            | ErrorKind::InvalidInput
    )
}

/// Limits how often a message is logged.
#[derive(Debug, Default)]
struct LogThrottle {
    last: Option<Instant>,
}

impl LogThrottle {
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= LOG_EVERY);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vanished_client_does_not_slow_accepting_but_a_lack_of_descriptors_does() {
        assert!(is_client_error(&io::Error::from(ErrorKind::ConnectionAborted)));
        let out_of_descriptors = io::Error::from_raw_os_error(24);
        assert!(!is_client_error(&out_of_descriptors));
    }

    #[test]
    fn the_same_problem_is_logged_once_per_interval() {
        let mut throttle = LogThrottle::default();
        let start = Instant::now();
        assert!(throttle.is_due(start));
        assert!(!throttle.is_due(start + LOG_EVERY / 2));
        assert!(throttle.is_due(start + LOG_EVERY));
    }
}
