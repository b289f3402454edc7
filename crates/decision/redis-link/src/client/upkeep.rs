//! The timers of the client's thread: connecting, deadlines, silent connections, retries, changed passwords.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::node::{Connection, ConnectionState, Node};
use super::now;
use super::pipeline::{PipelineInFlight, load_command};
use super::worker::{ConnectionId, Event, Worker};
use crate::cluster_slots::text;
use crate::dial::{Dialer, OpenConnection, Peer, read_password, silent};
use crate::error::{self, FailureKind, LinkError, unavailable};
use crate::sentinel::dial_master;
use crate::settings::{RedisAddress, RedisServers, Secret};

/// How often a password file is read.
const PASSWORD_BEAT: Duration = Duration::from_secs(1);

/// How long the thread sleeps when nothing is due.
const IDLE: Duration = Duration::from_secs(60);

impl Worker {
    /// Drops a connection. The jobs in flight on it may have run, so they fail.
    pub(super) fn lose(&mut self, id: ConnectionId, error: &LinkError) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(id.node) else { return };
        let error = error::at_node(node.address.as_ref(), error);
        node.failure = Some(error.clone());
        node.end_silence();
        let connection = node.connections.get_mut(id.connection);
        let Some(connection) = connection.filter(|connection| connection.is_open()) else { return };
        // Events of the lost connection do not concern the next one.
        self.count += 1;
        connection.epoch = self.count;
        let in_flight = connection.on_lost(now);
        let lost = error::of_lost_call(&error);
        self.refresh_slots_soon();
        self.note_failure(error);
        self.fail_all(in_flight.into_iter().flat_map(PipelineInFlight::into_jobs), &lost);
    }

    /// Drops a connection that does not serve calls, so that the wait before the next attempt grows.
    pub(super) fn lose_unproven(&mut self, id: ConnectionId, error: &LinkError) {
        if let Some(connection) = self.connection_at(id) {
            connection.proven = false;
        }
        self.lose(id, error);
    }

    fn dial(&mut self, node_index: usize, connection_index: usize) {
        let Some(node) = self.nodes.get_mut(node_index) else { return };
        let address = node.address.clone();
        let Some(connection) = node.connections.get_mut(connection_index) else { return };
        self.count += 1;
        let epoch = self.count;
        connection.epoch = epoch;
        connection.state = ConnectionState::Dialing;
        let id = ConnectionId { node: node_index, connection: connection_index, epoch };
        let (dialer, script) = (self.dialer.clone(), Arc::clone(&self.script));
        self.tasks.spawn(async move {
            Event::Dialed { id, result: connect(&dialer, address.as_ref(), &script).await }
        });
    }

    pub(super) fn on_dialed(
        &mut self,
        id: ConnectionId,
        result: Result<(OpenConnection, String), LinkError>,
    ) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(id.node) else { return };
        let connection = node.connections.get_mut(id.connection);
        let connection = connection.filter(|connection| connection.epoch == id.epoch);
        let Some(connection) = connection else { return };
        self.changed = true;
        match result {
            Ok((mut open, script_hash)) => {
                let closed = open.closed();
                self.tasks.spawn(async move {
                    closed.await;
                    Event::Closed { id }
                });
                connection.on_opened(open, script_hash, now);
                self.state.counters.connects.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                // Nothing was in flight on a connection that was never open.
                let _ = connection.on_lost(now);
                node.failure = Some(error.clone());
                self.refresh_slots_soon();
                self.note_failure(error);
            }
        }
    }

    /// The server closed a connection. If nothing is in flight, no call fails: the connection is opened again.
    /// Otherwise the pipelines in flight report why.
    pub(super) fn on_closed(&mut self, id: ConnectionId) {
        let is_idle = |connection: &mut Connection| connection.in_flight.is_empty();
        if self.connection(id).is_some_and(is_idle) {
            self.changed = true;
            self.lose(id, &unavailable(FailureKind::Refused, "it closed the connection"));
        }
    }

    /// Publishes a failure before the callers that it affects are answered.
    pub(super) fn note_failure(&mut self, error: LinkError) {
        self.failure = Some(error);
        self.publish_state();
    }

    pub(super) fn run_timers(&mut self) {
        self.expire();
        self.dial_due();
        self.lose_silent();
        self.run_retries();
        self.refresh_slots();
        self.refresh_password();
    }

    fn expire(&mut self) {
        if self.expiry.is_none_or(|expiry| expiry > self.now) {
            return;
        }
        let (now, state) = (self.now, Arc::clone(&self.state));
        let deadlines = self.nodes.iter_mut().filter_map(|node| node.expire(now, &state.counters));
        let mut next = deadlines.min();
        self.expire_unrouted(&mut next);
        let (late, retries) =
            self.retries.drain(..).partition::<Vec<_>, _>(|(_, job)| job.deadline.at <= now);
        late.into_iter().for_each(|(_, job)| job.expire(&state.counters));
        self.retries = retries;
        let retries = self.retries.iter().map(|(_, job)| job.deadline.at);
        self.expiry = next.into_iter().chain(retries).min();
    }

    fn dial_due(&mut self) {
        let now = self.now;
        let is_due = |connection: &Connection| matches!(connection.state, ConnectionState::Waiting { until } if until <= now);
        for node_index in 0..self.nodes.len() {
            for index in 0..self.dialer.settings.connections {
                let node = self.nodes.get(node_index).filter(|node| !node.retired);
                if node.and_then(|node| node.connections.get(index)).is_some_and(is_due) {
                    self.dial(node_index, index);
                }
            }
        }
    }

    /// Whether a call or a connection would time out now.
    pub(super) fn is_deadline_due(&self) -> bool {
        let timeout = self.dialer.settings.silence_max();
        let connections = self.nodes.iter().flat_map(|node| &node.connections);
        let silences = connections.filter_map(|connection| connection.silent_until(timeout));
        self.expiry.into_iter().chain(silences).any(|due| due <= self.now)
    }

    fn lose_silent(&mut self) {
        let timeout = self.dialer.settings.silence_max();
        for node in 0..self.nodes.len() {
            for connection in 0..self.dialer.settings.connections {
                let found = self.nodes.get(node).and_then(|node| node.connections.get(connection));
                let Some(found) = found else { continue };
                if found.silent_until(timeout).is_some_and(|due| due <= self.now) {
                    let id = ConnectionId { node, connection, epoch: found.epoch };
                    self.lose_unproven(id, &silent(timeout));
                }
            }
        }
    }

    fn run_retries(&mut self) {
        let now = self.now;
        let (due, retries) = self.retries.drain(..).partition::<Vec<_>, _>(|(due, _)| *due <= now);
        self.retries = retries;
        due.into_iter().for_each(|(_, job)| self.route(job));
    }

    pub(super) fn next_wake(&self) -> Instant {
        let timeout = self.dialer.settings.silence_max();
        let nodes = self.nodes.iter().filter(|node| !node.retired);
        let lingers = nodes.clone().filter_map(Node::linger_until);
        let connections = nodes.flat_map(|node| &node.connections);
        let dials = connections.clone().filter_map(|connection| match connection.state {
            ConnectionState::Waiting { until } => Some(until),
            ConnectionState::Dialing | ConnectionState::Open { .. } => None,
        });
        let silences = connections.filter_map(|connection| connection.silent_until(timeout));
        let retries = self.retries.iter().map(|(due, _)| *due);
        let single =
            [self.expiry, self.cluster.as_ref().and_then(|cluster| cluster.due), self.password_due];
        let next = dials
            .chain(silences)
            .chain(retries)
            .chain(lingers)
            .chain(single.into_iter().flatten())
            .min();
        next.unwrap_or(self.now + IDLE)
    }

    fn refresh_password(&mut self) {
        if self.password_due.is_none_or(|due| due > self.now) {
            return;
        }
        self.password_due = None;
        let dialer = self.dialer.clone();
        self.tasks.spawn(async move {
            Event::PasswordRead { password: read_password(&dialer.settings.login).await }
        });
    }

    /// Logs in again on the open connections if the password has changed.
    pub(super) fn on_password(&mut self, password: Result<Option<Secret>, LinkError>) {
        self.password_due = Some(self.now + PASSWORD_BEAT);
        // A file that cannot be read at this moment is being replaced.
        let Ok(Some(password)) = password else { return };
        let user = self.dialer.settings.login.user.as_deref();
        for connection in self.nodes.iter_mut().flat_map(|node| &mut node.connections) {
            if let ConnectionState::Open { connection, .. } = &mut connection.state {
                connection.log_in(user, &password);
            }
        }
    }
}

/// Connects and loads the script; returns the connection and the script's hash.
async fn connect(
    dialer: &Dialer,
    address: Option<&RedisAddress>,
    script: &str,
) -> Result<(OpenConnection, String), LinkError> {
    let mut connection = match (address, &dialer.settings.servers) {
        (Some(address), _) => dialer.dial(address, Peer::Server).await?,
        (None, RedisServers::Sentinels { sentinels, master }) => {
            dial_master(dialer, sentinels, master).await?
        }
        (None, _) => return Err(unavailable(FailureKind::Other, "no sentinel is named")),
    };
    let started = now();
    let loaded = connection.run(load_command(script), dialer.settings.connect_timeout).await;
    connection.round_trip = now().saturating_duration_since(started);
    let hash = loaded.and_then(|reply| text(&reply).ok_or_else(error::not_redis));
    Ok((connection, hash.map_err(|error| error::at_node(address, &error))?))
}
