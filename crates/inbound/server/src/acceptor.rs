//! The acceptor: takes connections and gives each to the worker with the fewest.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::connection::Serve;
use super::life::Life;
use super::listener::{Accepted, Listener};
use super::stats::{Counted, OpenConnection, Stats};
use super::worker::{Arrival, Stop, Worker};

/// How long to wait when the process is out of descriptors or memory. Trying
/// again at once would spin: the connection still waits, so the socket stays readable.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The same trouble is logged no more often than this.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Accepts at one address.
pub(super) struct Acceptor {
    pub(super) name: &'static str,
    pub(super) listener: Listener,
    pub(super) door: Arc<dyn Serve>,
    pub(super) stats: Arc<Stats>,
    /// Connections open at all addresses of the door.
    pub(super) door_open: Arc<AtomicUsize>,
    pub(super) workers: Arc<[Worker]>,
    /// Where the next search for a worker begins.
    pub(super) turn: Arc<AtomicUsize>,
}

impl Acceptor {
    /// Accepts until the server stops; then the socket is closed.
    pub(super) async fn run(self, mut stop: watch::Receiver<Stop>) {
        let mut failures = Seldom::default();
        let mut refusals = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(Option::is_some) => return,
            };
            match accepted {
                Ok(accepted) => self.hand_over(accepted, &mut refusals),
                // The client was gone before it was accepted; the next one is not to blame.
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    self.stats.accept_errors.fetch_add(1, Relaxed);
                    if failures.is_due(Instant::now()) {
                        tracing::error!(door = self.name, %error, "cannot accept connections");
                    }
                    tokio::select! {
                        () = sleep(BACK_OFF) => {}
                        _ = stop.wait_for(Option::is_some) => return,
                    }
                }
            }
        }
    }

    fn hand_over(&self, accepted: Accepted, refusals: &mut Seldom) {
        let handed = self.has_room() && {
            let worker = self.least_busy();
            let door = Counted::new(&self.door_open);
            let open = OpenConnection::new(
                Arc::clone(&self.stats),
                door,
                Counted::new(&worker.connections),
            );
            let life = Arc::new(Life::new(self.name, open));
            let arrival = Arrival { accepted, life, door: Arc::clone(&self.door) };
            worker.arrivals.try_send(arrival).is_ok()
        };
        if handed {
            self.stats.accepted.fetch_add(1, Relaxed);
        } else {
            self.stats.refused.fetch_add(1, Relaxed);
            if refusals.is_due(Instant::now()) {
                let open = self.door_open.load(Relaxed);
                tracing::warn!(door = self.name, open, "too many connections: closed a new one");
            }
        }
    }

    fn has_room(&self) -> bool {
        self.door_open.load(Relaxed) < self.door.limits().connections_max
    }

    /// The worker with the fewest connections; among equals, the next in turn.
    fn least_busy(&self) -> &Worker {
        let turn = self.turn.fetch_add(1, Relaxed);
        let (later, first) = self.workers.split_at(turn % self.workers.len());
        let in_turn = first.iter().chain(later);
        in_turn
            .min_by_key(|worker| worker.connections.load(Relaxed))
            .expect("a server has at least one worker")
    }
}

/// Whether an error of `accept` belongs to the one connection that was taken.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::NotConnected
            // A socket option that a vanished client's socket no longer takes.
            | ErrorKind::InvalidInput
    )
}

/// Lets one message through per while.
#[derive(Debug, Default)]
struct Seldom {
    last: Option<Instant>,
}

impl Seldom {
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
        assert!(is_the_clients(&io::Error::from(ErrorKind::ConnectionAborted)));
        let out_of_descriptors = io::Error::from_raw_os_error(24);
        assert!(!is_the_clients(&out_of_descriptors));
    }

    #[test]
    fn the_same_trouble_is_logged_once_in_a_while() {
        let mut seldom = Seldom::default();
        let start = Instant::now();
        assert!(seldom.is_due(start));
        assert!(!seldom.is_due(start + LOG_EVERY / 2));
        assert!(seldom.is_due(start + LOG_EVERY));
    }
}
