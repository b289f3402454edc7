//! One server: its connections, and the jobs that wait for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::figures::Counters;
use super::job::Job;
use super::pipeline::PipelineInFlight;
use crate::backoff::wait_after;
use crate::dial::OpenConnection;
use crate::error::LinkError;
use crate::settings::RedisAddress;

/// Jobs in one pipeline. At a few microseconds each, other clients wait less than a millisecond for the server.
const PIPELINE_JOBS_MAX: usize = 128;

/// Bytes of keys and bodies in one pipeline.
const PIPELINE_BYTES_MAX: usize = 64 * 1024;

/// The fewest jobs that must wait before one more pipeline is sent, by the number of pipelines in flight. A second one
/// keeps the server busy while a reply travels back; further ones must be worth a round trip.
const WAITING_MIN_BY_IN_FLIGHT: [usize; 4] = [1, 1, 16, 64];

/// One server.
pub(super) struct Node {
    /// Its address; none for the master that the sentinels name.
    pub(super) address: Option<RedisAddress>,
    pub(super) connections: Vec<Connection>,
    pub(super) waiting: VecDeque<Job>,
    /// The server has lost the script: the next pipeline loads it.
    pub(super) reload_script: bool,
    /// The cluster no longer uses it.
    pub(super) retired: bool,
    /// Why its last connection ended or could not be opened.
    pub(super) failure: Option<LinkError>,
}

/// One connection, open or not.
pub(super) struct Connection {
    pub(super) state: ConnectionState,
    /// Changes each time the connection is opened or lost, so that events of an earlier one are recognized.
    pub(super) epoch: u64,
    pub(super) in_flight: VecDeque<PipelineInFlight>,
    pub(super) last_reply: Instant,
    /// Attempts in a row that executed nothing.
    failures: u32,
    /// Whether the server has executed a call on it; otherwise its loss counts as a failure.
    pub(super) proven: bool,
}

pub(super) enum ConnectionState {
    Waiting { until: Instant },
    Dialing,
    Open { connection: OpenConnection, script_hash: String },
}

impl Node {
    pub(super) fn new(address: Option<RedisAddress>, connections: usize, now: Instant) -> Self {
        Node {
            address,
            connections: (0..connections).map(|_| Connection::new(now)).collect(),
            waiting: VecDeque::new(),
            reload_script: false,
            retired: false,
            failure: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.connections.iter().all(|connection| connection.in_flight.is_empty())
    }

    /// Closes the connections. They are opened again when the cluster uses the node again.
    pub(super) fn close(&mut self, now: Instant) {
        self.connections.iter_mut().for_each(|connection| *connection = Connection::new(now));
    }

    /// Jobs in flight, including those whose callers have gone.
    pub(super) fn jobs_in_flight(&self) -> usize {
        self.connections.iter().map(Connection::jobs_in_flight).sum()
    }

    pub(super) fn connected(&self) -> usize {
        self.connections.iter().filter(|connection| connection.is_open()).count()
    }

    /// Why waiting is pointless: no connection is open, and the last attempt of each failed.
    pub(super) fn unreachable(&self) -> Option<&LinkError> {
        let has_hope = |connection: &Connection| connection.is_open() || connection.failures == 0;
        if self.connections.iter().any(has_hope) { None } else { self.failure.as_ref() }
    }

    /// The connection on which a pipeline may be sent now.
    pub(super) fn next_connection(&self) -> Option<usize> {
        let open = self.connections.iter().enumerate().filter(|(_, each)| each.is_open());
        let (index, connection) = open.min_by_key(|(_, each)| each.in_flight.len())?;
        let in_flight = connection.in_flight.len();
        let enough = self.waiting.len() >= waiting_min(in_flight, connection.jobs_in_flight())?;
        enough.then_some(index)
    }

    /// Takes the jobs of the next pipeline. Jobs past their deadline fail; jobs without a caller are dropped.
    pub(super) fn take_batch(&mut self, now: Instant, counters: &Counters) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(self.waiting.len().min(PIPELINE_JOBS_MAX));
        let mut bytes = 0;
        while jobs.len() < PIPELINE_JOBS_MAX && bytes < PIPELINE_BYTES_MAX {
            let Some(job) = self.waiting.pop_front() else { break };
            if job.deadline.at <= now {
                job.expire(counters);
            } else if job.is_wanted() {
                bytes += job.bytes();
                jobs.push(job);
            }
        }
        jobs
    }

    /// Fails jobs past their deadline; those in flight leave a gap. Returns the next deadline.
    pub(super) fn expire(&mut self, now: Instant, counters: &Counters) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        expire_in(&mut self.waiting, now, &mut next, counters);
        let pipelines = self.connections.iter_mut().flat_map(|each| &mut each.in_flight);
        let commands = pipelines.flat_map(|pipeline| &mut pipeline.commands);
        for job in commands.flat_map(|command| &mut command.jobs) {
            match job {
                Some(late) if late.deadline.at <= now => {
                    job.take().into_iter().for_each(|job| job.expire(counters));
                }
                Some(job) => keep_earliest(&mut next, job.deadline.at),
                None => {}
            }
        }
        next
    }
}

/// How many jobs must wait before one more pipeline is sent, if one may be: half as many as are in flight. Under light
/// load the next one starts immediately, under heavy load batches grow, and waiting jobs are always sent once nothing
/// is in flight.
fn waiting_min(pipelines: usize, jobs_in_flight: usize) -> Option<usize> {
    let least = *WAITING_MIN_BY_IN_FLIGHT.get(pipelines)?;
    Some(least.max((jobs_in_flight / 2).min(PIPELINE_JOBS_MAX)))
}

/// Sets the next deadline to this one, if it is earlier.
pub(super) fn keep_earliest(next: &mut Option<Instant>, deadline: Instant) {
    *next = Some(next.map_or(deadline, |at| at.min(deadline)));
}

/// Fails jobs past their deadline, and finds the next deadline of the others.
pub(super) fn expire_in(
    jobs: &mut VecDeque<Job>,
    now: Instant,
    next: &mut Option<Instant>,
    counters: &Counters,
) {
    for _ in 0..jobs.len() {
        let Some(job) = jobs.pop_front() else { return };
        if job.deadline.at <= now {
            job.expire(counters);
        } else {
            keep_earliest(next, job.deadline.at);
            jobs.push_back(job);
        }
    }
}

impl Connection {
    fn new(now: Instant) -> Self {
        Connection {
            state: ConnectionState::Waiting { until: now },
            epoch: 0,
            in_flight: VecDeque::new(),
            last_reply: now,
            failures: 0,
            proven: false,
        }
    }

    fn jobs_in_flight(&self) -> usize {
        self.in_flight.iter().map(PipelineInFlight::jobs).sum()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open { .. })
    }

    pub(super) fn on_opened(
        &mut self,
        connection: OpenConnection,
        script_hash: String,
        now: Instant,
    ) {
        self.state = ConnectionState::Open { connection, script_hash };
        self.last_reply = now;
        self.proven = false;
    }

    /// The server executed a call.
    pub(super) fn on_executed(&mut self) {
        self.proven = true;
        self.failures = 0;
    }

    /// The connection ended or could not be opened. One that executed a call is reopened immediately; otherwise the
    /// wait grows. Returns the pipelines that were in flight.
    pub(super) fn on_lost(&mut self, now: Instant) -> VecDeque<PipelineInFlight> {
        let was_proven = self.is_open() && self.proven;
        self.failures = if was_proven { 0 } else { self.failures.saturating_add(1) };
        let wait = if was_proven { Duration::ZERO } else { wait_after(self.failures) };
        self.state = ConnectionState::Waiting { until: now + wait };
        self.proven = false;
        std::mem::take(&mut self.in_flight)
    }

    /// When the connection counts as dead, unless the server replies before.
    pub(super) fn silent_until(&self, timeout: Duration) -> Option<Instant> {
        let oldest = self.in_flight.front()?;
        Some(oldest.sent.max(self.last_reply) + timeout)
    }
}

#[cfg(test)]
mod tests {
    /// The jobs that must wait, with pipelines of so many jobs in flight.
    fn waiting_min(in_flight: &[usize]) -> Option<usize> {
        super::waiting_min(in_flight.len(), in_flight.iter().sum())
    }

    #[test]
    fn under_light_load_a_second_pipeline_is_sent_at_once() {
        assert_eq!(waiting_min(&[]), Some(1));
        assert_eq!(waiting_min(&[1]), Some(1));
        assert_eq!(waiting_min(&[3]), Some(1));
    }

    #[test]
    fn under_heavy_load_a_second_pipeline_waits_for_half_of_the_jobs_in_flight() {
        assert_eq!(waiting_min(&[64]), Some(32));
        assert_eq!(waiting_min(&[128]), Some(64));
    }

    #[test]
    fn further_pipelines_have_to_be_worth_a_round_trip_and_four_are_the_most() {
        assert_eq!(waiting_min(&[1, 1]), Some(16));
        assert_eq!(waiting_min(&[128, 128]), Some(128));
        assert_eq!(waiting_min(&[1, 1, 16]), Some(64));
        assert_eq!(waiting_min(&[128, 128, 128]), Some(128));
        assert_eq!(waiting_min(&[1, 1, 16, 64]), None);
    }
}
