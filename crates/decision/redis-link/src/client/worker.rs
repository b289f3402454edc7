//! The loop of the client's thread: takes jobs, sends pipelines, distributes replies, keeps deadlines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use redis::{RedisError, ServerError, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::job::{Job, JobBatch};
use super::node::{Connection, ConnectionState, Node, keep_earliest};
use super::pipeline::{CommandSharing, PipelineInFlight, ReplyOutcome, Script, build};
use super::router::ClusterRouter;
use super::{ClientState, now, queue_full};
use crate::cluster_slots::{SlotMap, SlotRange};
use crate::dial::{Dialer, OpenConnection};
use crate::error::{self, LinkError};
use crate::settings::{Password, RedisServers, Secret};
use crate::state::LinkState;

/// Messages taken from the inbox before replies are read again.
const INBOX_BATCH_MAX: usize = 1_024;

/// How often the other tasks of the thread run before a deadline is enforced: one polls the socket, one reads it, one
/// passes the replies on; one more for a reply in several parts.
const READ_TURNS: usize = 4;

/// How long a batch waits for callers that were just answered: less than a round trip.
const JOIN_WINDOW: Duration = Duration::from_micros(100);

/// Callers below which a batch does not wait: the server can work for some while the others prepare their calls.
const JOIN_CALLERS_MIN: usize = 64;

/// The state that callers can read.
#[derive(Clone, Debug)]
pub(super) struct PublishedState {
    pub(super) state: LinkState,
    changed: Instant,
    /// Which node has which slot, in a cluster.
    pub(super) map: Option<Arc<SlotMap>>,
    /// Whether each node has an open connection.
    pub(super) open_nodes: Vec<bool>,
}

impl PublishedState {
    pub(super) fn disconnected(changed: Instant) -> Self {
        let state =
            LinkState { connected: 0, wanted: 1, since: Duration::ZERO, last_failure: None };
        PublishedState { state, changed, map: None, open_nodes: Vec::new() }
    }

    pub(super) fn at(&self, now: Instant) -> LinkState {
        let since = now.saturating_duration_since(self.changed);
        LinkState { since, ..self.state.clone() }
    }
}

/// One of the connections: the node's index, the connection's index within the node, and its epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionId {
    pub(super) node: usize,
    pub(super) connection: usize,
    pub(super) epoch: u64,
}

/// The result of a task of this thread.
pub(super) enum Event {
    Dialed { id: ConnectionId, result: Result<(OpenConnection, String), LinkError> },
    Closed { id: ConnectionId },
    Replied { id: ConnectionId, pipeline: u64, replies: Replies },
    SlotsRead { slots: Result<Vec<SlotRange>, LinkError> },
    PasswordRead { password: Result<Option<Secret>, LinkError> },
}

type Replies = Result<Vec<Value>, RedisError>;

/// The state of the thread.
pub(super) struct Worker {
    pub(super) dialer: Dialer,
    pub(super) script: Arc<str>,
    inbox: mpsc::Receiver<JobBatch>,
    publish: watch::Sender<PublishedState>,
    pub(super) state: Arc<ClientState>,
    pub(super) nodes: Vec<Node>,
    /// None unless the servers are a cluster.
    pub(super) cluster: Option<ClusterRouter>,
    pub(super) tasks: JoinSet<Event>,
    /// Jobs to send again, and when.
    pub(super) retries: Vec<(Instant, Job)>,
    /// The time of this iteration.
    pub(super) now: Instant,
    /// The earliest deadline, or earlier.
    pub(super) expiry: Option<Instant>,
    pub(super) password_due: Option<Instant>,
    /// Numbers epochs and pipelines.
    pub(super) count: u64,
    /// Whether the published state is out of date.
    pub(super) changed: bool,
    pub(super) failure: Option<LinkError>,
}

impl Worker {
    pub(super) fn new(
        dialer: Dialer,
        script: Arc<str>,
        inbox: mpsc::Receiver<JobBatch>,
        publish: watch::Sender<PublishedState>,
        state: Arc<ClientState>,
    ) -> Self {
        let now = now();
        let settings = &dialer.settings;
        let address = match &settings.servers {
            RedisServers::Single(address) => Some(Some(address.clone())),
            RedisServers::Sentinels { .. } => Some(None),
            RedisServers::Cluster(_) => None,
        };
        let nodes = address.map(|address| Node::new(address, settings.connections, now));
        let rotates = matches!(settings.login.password, Password::File(_));
        Worker {
            script,
            inbox,
            publish,
            state,
            nodes: nodes.into_iter().collect(),
            cluster: ClusterRouter::new(&settings.servers, now),
            tasks: JoinSet::new(),
            retries: Vec::new(),
            now,
            expiry: None,
            password_due: rotates.then_some(now),
            count: 0,
            changed: true,
            failure: None,
            dialer,
        }
    }

    /// Runs until the client is dropped.
    pub(super) async fn run(mut self) {
        let mut batches = Vec::with_capacity(INBOX_BATCH_MAX);
        loop {
            self.read_before_deadlines().await;
            self.advance();
            let wake = self.next_wake();
            tokio::select! {
                biased;
                Some(event) = self.tasks.join_next() => {
                    self.now = now();
                    self.on_event(event.ok());
                }
                count = self.inbox.recv_many(&mut batches, INBOX_BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.now = now();
                    batches.drain(..).for_each(|jobs| self.accept(jobs));
                }
                () = tokio::time::sleep_until(wake.into()) => self.now = now(),
            }
            while let Some(event) = self.tasks.try_join_next() {
                self.on_event(event.ok());
            }
        }
    }

    /// Reads what has arrived before a deadline is enforced. A deadline measures the server: however late this thread
    /// was scheduled, a reply that is in the socket counts.
    async fn read_before_deadlines(&mut self) {
        if !self.is_deadline_due() {
            return;
        }
        for _ in 0..READ_TURNS {
            tokio::task::yield_now().await;
            while let Some(event) = self.tasks.try_join_next() {
                self.on_event(event.ok());
            }
        }
    }

    fn advance(&mut self) {
        self.run_timers();
        self.wait_for_joining_callers();
        self.send_due();
        if std::mem::take(&mut self.changed) {
            self.publish_state();
        }
    }

    /// Waits up to 100 µs so that callers that were just answered can join the next batch. Skipped below 64 callers.
    fn wait_for_joining_callers(&mut self) {
        let until = self.now + JOIN_WINDOW;
        while self.joining() >= JOIN_CALLERS_MIN.max(self.waiting())
            && self.can_send()
            && now() < until
        {
            thread::yield_now();
            while let Ok(jobs) = self.inbox.try_recv() {
                self.accept(jobs);
            }
        }
    }

    /// Callers whose reply was delivered but not taken yet, or whose jobs are still in the inbox.
    fn joining(&self) -> usize {
        let in_flight: usize = self.nodes.iter().map(Node::jobs_in_flight).sum();
        self.state.open.load(Ordering::Relaxed).saturating_sub(in_flight + self.queued())
    }

    fn waiting(&self) -> usize {
        self.nodes.iter().map(|node| node.waiting.len()).sum()
    }

    /// Jobs that are not in flight.
    fn queued(&self) -> usize {
        let unrouted = self.cluster.as_ref().map_or(0, |cluster| cluster.unrouted.len());
        self.waiting() + unrouted + self.retries.len()
    }

    /// Whether a pipeline may be sent now.
    fn can_send(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| !node.waiting.is_empty() && node.next_connection(self.now).is_some())
    }

    fn accept(&mut self, jobs: JobBatch) {
        let full = self.queued() >= self.dialer.settings.queue;
        for job in jobs {
            if full {
                job.fail(&queue_full(), &self.state.counters);
                continue;
            }
            keep_earliest(&mut self.expiry, job.deadline.at);
            self.route(job);
        }
    }

    fn on_event(&mut self, event: Option<Event>) {
        match event {
            // Tasks do not panic. If one did, its connection would time out.
            None => {}
            Some(Event::Dialed { id, result }) => self.on_dialed(id, result),
            Some(Event::Closed { id }) => self.on_closed(id),
            Some(Event::Replied { id, pipeline, replies }) => {
                self.on_replies(id, pipeline, replies);
            }
            Some(Event::SlotsRead { slots }) => self.on_slots(slots),
            Some(Event::PasswordRead { password }) => self.on_password(password),
        }
    }

    fn send_due(&mut self) {
        for node in 0..self.nodes.len() {
            self.fail_unreachable(node);
            // Ends, because the pipelines in flight have a maximum.
            while let Some((connection, jobs)) = self.next_batch(node) {
                self.send(node, connection, jobs);
            }
        }
    }

    fn fail_unreachable(&mut self, node: usize) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        if node.waiting.is_empty() {
            return;
        }
        if let Some(error) = node.unreachable().cloned() {
            let jobs = std::mem::take(&mut node.waiting);
            self.fail_all(jobs, &error);
        }
    }

    fn next_batch(&mut self, node: usize) -> Option<(usize, Vec<Job>)> {
        let node = self.nodes.get_mut(node)?;
        let connection = node.next_connection(self.now)?;
        let jobs = node.take_batch(self.now, &self.state.counters);
        (!jobs.is_empty()).then_some((connection, jobs))
    }

    fn send(&mut self, node_index: usize, connection_index: usize, jobs: Vec<Job>) {
        let sharing =
            if self.cluster.is_some() { CommandSharing::SameTag } else { CommandSharing::All };
        let Some(node) = self.nodes.get_mut(node_index) else { return };
        let reload = std::mem::take(&mut node.reload_script);
        let Some(sender) = node.connections.get_mut(connection_index) else { return };
        let ConnectionState::Open { connection, script_hash } = &sender.state else { return };
        let script = Script { text: &self.script, hash: script_hash };
        let (pipeline, commands) = build(jobs, script, sharing, reload, &self.state.instant.lock());
        self.count += 1;
        let number = self.count;
        let id =
            ConnectionId { node: node_index, connection: connection_index, epoch: sender.epoch };
        let replies = connection.send(pipeline);
        self.tasks
            .spawn(async move { Event::Replied { id, pipeline: number, replies: replies.await } });
        sender.in_flight.push_back(PipelineInFlight { number, sent: self.now, commands });
    }

    fn on_replies(&mut self, id: ConnectionId, number: u64, replies: Replies) {
        let now = self.now;
        let Some(connection) = self.connection(id) else { return };
        let mut replies = match replies {
            Ok(replies) => replies,
            Err(error) => return self.lose(id, &error::of_connection(&error)),
        };
        let found = connection.in_flight.iter().position(|pipeline| pipeline.number == number);
        let pipeline = found.and_then(|found| connection.in_flight.remove(found));
        let Some(pipeline) = pipeline else { return };
        let took = now.saturating_duration_since(pipeline.sent);
        connection.on_reply(took, now);
        self.nodes.get_mut(id.node).into_iter().for_each(Node::end_silence);
        for command in pipeline.commands {
            if command.is_script() {
                self.state.counters.answered(command.jobs.len(), took);
            }
            let reply = command.take_reply(&mut replies);
            match command.deliver(reply, &self.state.counters) {
                ReplyOutcome::Delivered { error: None } => {
                    self.connection_at(id).into_iter().for_each(Connection::on_executed);
                }
                ReplyOutcome::Delivered { error: Some(error) } => self.on_server_error(id, &error),
                ReplyOutcome::Rejected { error, jobs } => self.on_rejected(id, &error, jobs),
            }
        }
    }

    /// The connection at this index of its node.
    pub(super) fn connection_at(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.nodes.get_mut(id.node)?.connections.get_mut(id.connection)
    }

    /// The connection, if it is still the one with this epoch.
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connection_at(id).filter(|connection| connection.epoch == id.epoch)
    }

    /// The server did not run the jobs. Some of them can be sent again in another way.
    fn on_rejected(&mut self, id: ConnectionId, error: &ServerError, jobs: Vec<Job>) {
        let is_cluster = self.cluster.is_some();
        match error.code() {
            "NOSCRIPT" => {
                self.state.counters.script_reloads.fetch_add(1, Ordering::Relaxed);
                if let Some(node) = self.nodes.get_mut(id.node) {
                    node.reload_script = true;
                }
                let asking = jobs.first().is_some_and(|job| job.asking);
                self.resend(id.node, jobs, asking);
            }
            "MOVED" | "ASK" if is_cluster => self.redirect(id.node, error, jobs),
            "TRYAGAIN" if is_cluster => self.retry_soon(jobs),
            _ => {
                self.fail_all(jobs, &error::of_server(error));
                self.on_server_error(id, error);
            }
        }
    }

    /// Reconnects or reads the slots again, if the error calls for it.
    fn on_server_error(&mut self, id: ConnectionId, error: &ServerError) {
        match error.code() {
            "CLUSTERDOWN" => self.refresh_slots_soon(),
            // The master or the password may have changed.
            "READONLY" | "MASTERDOWN" | "NOAUTH" => {
                self.lose_unproven(id, &error::of_server(error));
            }
            _ => {}
        }
    }

    pub(super) fn fail_all(&self, jobs: impl IntoIterator<Item = Job>, error: &LinkError) {
        jobs.into_iter().for_each(|job| job.fail(error, &self.state.counters));
    }

    /// Makes the state of the connections readable for callers.
    pub(super) fn publish_state(&mut self) {
        let nodes = || self.nodes.iter().filter(|node| !node.retired);
        let connected: usize = nodes().map(Node::connected).sum();
        let wanted: usize = nodes().map(|node| node.connections.len()).sum();
        let map = self.cluster.as_ref().map(|cluster| cluster.map.clone());
        let wanted = if matches!(map, Some(None)) { wanted.max(1) } else { wanted };
        if connected >= wanted {
            self.failure = None;
        }
        let (failure, now, map) = (self.failure.clone(), self.now, map.flatten());
        self.publish.send_modify(|published| {
            let state = &mut published.state;
            if state.is_connected() != (wanted > 0 && connected >= wanted) {
                published.changed = now;
            }
            state.connected = connected;
            state.wanted = wanted;
            state.last_failure = failure;
            published.map = map;
            published.open_nodes.clear();
            published.open_nodes.extend(self.nodes.iter().map(|node| node.connected() > 0));
        });
    }
}
