//! One server: its connections, and what waits for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::job::Job;
use super::meter::Meter;
use super::shipment::Shipment;
use crate::counter_store::StoreError;
use crate::redis::link::dial::Wire;
use crate::redis::link::patience::wait_after;
use crate::redis::settings::RedisAddress;

/// Parcels of a shipment. At a few microseconds each, others wait for the
/// server less than a millisecond.
const PARCELS_MAX: usize = 128;

/// Bytes of a shipment, by count of keys and bodies.
const BYTES_MAX: usize = 64 * 1024;

/// How many have to wait at the least before one more shipment leaves, by how
/// many are out: a second one so that the server has work while an answer is on its
/// way back, further ones only when they carry enough to be worth a call.
const ENOUGH: [usize; 4] = [1, 1, 16, 64];

/// One server.
pub(super) struct Node {
    pub(super) target: Target,
    pub(super) lanes: Vec<Lane>,
    pub(super) waiting: VecDeque<Job>,
    /// The server has forgotten the script.
    pub(super) reload: bool,
    /// The cluster has no use for it any more.
    pub(super) retired: bool,
    /// Why its last connection ended or could not be made.
    pub(super) failure: Option<StoreError>,
}

/// How to find the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Address(RedisAddress),
    /// Whom the sentinels name.
    Master,
}

/// One connection, or the attempt to have one.
pub(super) struct Lane {
    pub(super) state: LaneState,
    /// Changes with each connection, so that news of an old one are known as such.
    pub(super) epoch: u64,
    pub(super) in_flight: VecDeque<Shipment>,
    heard: Instant,
    /// Connections in a row that were no use.
    failures: u32,
    /// Whether this connection has been of use.
    proven: bool,
}

pub(super) enum LaneState {
    Waiting { until: Instant },
    Dialing,
    Up { wire: Wire, hash: String },
}

impl Node {
    pub(super) fn new(target: Target, connections: usize, now: Instant) -> Self {
        Node {
            target,
            lanes: (0..connections).map(|_| Lane::new(now)).collect(),
            waiting: VecDeque::new(),
            reload: false,
            retired: false,
            failure: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.lanes.iter().all(|lane| lane.in_flight.is_empty())
    }

    /// Ends the connections; they are made again when the node is of use again.
    pub(super) fn hang_up(&mut self, now: Instant) {
        self.lanes.iter_mut().for_each(|lane| *lane = Lane::new(now));
    }

    /// How many are out, whether or not anybody still waits for them.
    pub(super) fn out(&self) -> usize {
        self.lanes.iter().map(Lane::out).sum()
    }

    pub(super) fn connected(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.is_up()).count()
    }

    /// Why there is no use in waiting: no connection, and the last attempt failed.
    pub(super) fn hopeless(&self) -> Option<&StoreError> {
        let hope = |lane: &Lane| lane.is_up() || lane.failures == 0;
        if self.lanes.iter().any(hope) { None } else { self.failure.as_ref() }
    }

    /// The connection on which a shipment may leave now.
    pub(super) fn next_lane(&self) -> Option<usize> {
        let up = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_up());
        let (at, lane) = up.min_by_key(|(_, lane)| lane.in_flight.len())?;
        (self.waiting.len() >= enough(lane.in_flight.len(), lane.out())?).then_some(at)
    }

    /// What leaves together next. Who went away or ran out of time is left out.
    pub(super) fn take_load(&mut self, now: Instant, meter: &Meter) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(self.waiting.len().min(PARCELS_MAX));
        let mut bytes = 0;
        while jobs.len() < PARCELS_MAX && bytes < BYTES_MAX {
            let Some(job) = self.waiting.pop_front() else { break };
            if job.until <= now {
                job.expire(meter);
            } else if job.is_wanted() {
                bytes += job.bytes();
                jobs.push(job);
            }
        }
        jobs
    }

    /// Answers whose time is over. Those that were sent leave gaps. The next deadline, if any.
    pub(super) fn expire(&mut self, now: Instant, meter: &Meter) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        expire_in(&mut self.waiting, now, &mut next, meter);
        let shipments = self.lanes.iter_mut().flat_map(|lane| &mut lane.in_flight);
        let calls = shipments.flat_map(|shipment| &mut shipment.calls);
        for job in calls.flat_map(|call| &mut call.jobs) {
            match job {
                Some(late) if late.until <= now => {
                    if let Some(job) = job.take() {
                        job.expire(meter);
                    }
                }
                Some(job) => next = Some(next.map_or(job.until, |next| next.min(job.until))),
                None => {}
            }
        }
        next
    }
}

/// How many have to wait before one more shipment leaves, if one may: half as
/// many as are out. So one follows another at once where little is asked, and
/// calls get larger as more is. What waits leaves when all that is out has been
/// answered, at the latest.
fn enough(shipments: usize, out: usize) -> Option<usize> {
    let least = *ENOUGH.get(shipments)?;
    Some(least.max((out / 2).min(PARCELS_MAX)))
}

/// Answers jobs whose time is over, and finds the next deadline of the others.
pub(super) fn expire_in(
    jobs: &mut VecDeque<Job>,
    now: Instant,
    next: &mut Option<Instant>,
    meter: &Meter,
) {
    for _ in 0..jobs.len() {
        let Some(job) = jobs.pop_front() else { return };
        if job.until <= now {
            job.expire(meter);
        } else {
            *next = Some(next.map_or(job.until, |next| next.min(job.until)));
            jobs.push_back(job);
        }
    }
}

impl Lane {
    fn new(now: Instant) -> Self {
        Lane {
            state: LaneState::Waiting { until: now },
            epoch: 0,
            in_flight: VecDeque::new(),
            heard: now,
            failures: 0,
            proven: false,
        }
    }

    fn out(&self) -> usize {
        self.in_flight.iter().map(Shipment::jobs).sum()
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, LaneState::Up { .. })
    }

    /// A connection was made.
    pub(super) fn rise(&mut self, wire: Wire, hash: String, now: Instant) {
        self.state = LaneState::Up { wire, hash };
        self.heard = now;
        self.proven = false;
    }

    /// The server answered.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The server did what it was asked to.
    pub(super) fn prove(&mut self) {
        self.proven = true;
        self.failures = 0;
    }

    /// The connection is gone, or none could be made. One that was of use is
    /// made again at once; otherwise the wait grows. Gives back what was out.
    pub(super) fn fall(&mut self, now: Instant) -> VecDeque<Shipment> {
        let was_of_use = self.is_up() && self.proven;
        self.failures = if was_of_use { 0 } else { self.failures.saturating_add(1) };
        let wait = if was_of_use { Duration::ZERO } else { wait_after(self.failures) };
        self.state = LaneState::Waiting { until: now + wait };
        self.proven = false;
        std::mem::take(&mut self.in_flight)
    }

    /// From now on the connection counts as being of no use.
    pub(super) fn doubt(&mut self) {
        self.proven = false;
    }

    /// When the connection counts as dead, if the server says nothing until then.
    pub(super) fn silent_until(&self, patience: Duration) -> Option<Instant> {
        let oldest = self.in_flight.front()?;
        Some(oldest.sent.max(self.heard) + patience)
    }
}

#[cfg(test)]
mod tests {
    /// What has to wait before one more leaves, with shipments of so many out.
    fn enough(out: &[usize]) -> Option<usize> {
        super::enough(out.len(), out.iter().sum())
    }

    #[test]
    fn where_little_is_asked_a_second_shipment_leaves_at_once() {
        assert_eq!(enough(&[]), Some(1));
        assert_eq!(enough(&[1]), Some(1));
        assert_eq!(enough(&[3]), Some(1));
    }

    #[test]
    fn where_much_is_asked_a_second_shipment_waits_for_half_of_what_is_out() {
        assert_eq!(enough(&[64]), Some(32));
        assert_eq!(enough(&[128]), Some(64));
    }

    #[test]
    fn further_shipments_have_to_be_worth_a_call_and_four_are_out_at_the_most() {
        assert_eq!(enough(&[1, 1]), Some(16));
        assert_eq!(enough(&[128, 128]), Some(128));
        assert_eq!(enough(&[1, 1, 16]), Some(64));
        assert_eq!(enough(&[128, 128, 128]), Some(128));
        assert_eq!(enough(&[1, 1, 16, 64]), None);
    }
}
