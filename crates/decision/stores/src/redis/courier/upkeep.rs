//! What the loop does beside carrying: it connects, keeps deadlines, notices
//! silence, and tells servers a password that has changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::node::{Lane, LaneState, Target};
use super::shipment::{Shipment, load_command};
use super::worker::{Event, Worker};
use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::{self, failure};
use crate::redis::link::dial::{Dialer, Peer, Wire, read_password, silent};
use crate::redis::link::sentinel::dial_master;
use crate::redis::settings::{RedisServers, Secret};

/// How often a password file is looked at.
const PASSWORD_BEAT: Duration = Duration::from_secs(1);

/// Longer than any pause that has a reason.
const IDLE: Duration = Duration::from_secs(60);

impl Worker {
    pub(super) fn doubt(&mut self, at: usize, lane: usize) {
        if let Some(lane) = self.nodes.get_mut(at).and_then(|node| node.lanes.get_mut(lane)) {
            lane.doubt();
        }
    }

    /// The connection is of no use any more. What was out on it may have run.
    pub(super) fn lose(&mut self, at: usize, lane: usize, why: &StoreError) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(at) else { return };
        let why = match &node.target {
            Target::Address(address) => failure::at(address, why),
            Target::Master => why.clone(),
        };
        node.failure = Some(why.clone());
        let Some(lane) = node.lanes.get_mut(lane).filter(|lane| lane.is_up()) else { return };
        // News of the connection that is lost are not for the next one.
        self.count += 1;
        lane.epoch = self.count;
        let out = lane.fall(now);
        let lost = failure::of_lost_call(&why);
        self.routes.doubt(now);
        self.note_failure(why);
        self.fail_all(out.into_iter().flat_map(Shipment::into_jobs), &lost);
    }

    fn dial(&mut self, at: usize, lane: usize) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        let target = node.target.clone();
        let Some(place) = node.lanes.get_mut(lane) else { return };
        self.count += 1;
        let epoch = self.count;
        place.epoch = epoch;
        place.state = LaneState::Dialing;
        let (dialer, script) = (self.dialer.clone(), Arc::clone(&self.script));
        self.tasks.spawn(async move {
            let made = connect(&dialer, &target, &script).await;
            Event::Dialed { node: at, lane, epoch, made }
        });
    }

    pub(super) fn on_dialed(
        &mut self,
        at: usize,
        lane: usize,
        epoch: u64,
        made: Result<(Wire, String), StoreError>,
    ) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(at) else { return };
        let number = lane;
        let Some(lane) = node.lanes.get_mut(lane).filter(|lane| lane.epoch == epoch) else {
            return;
        };
        self.changed = true;
        match made {
            Ok((mut wire, hash)) => {
                let ended = wire.ended();
                self.tasks.spawn(async move {
                    ended.await;
                    Event::Ended { node: at, lane: number, epoch }
                });
                lane.rise(wire, hash, now);
                self.meter.connected();
            }
            Err(why) => {
                // Nothing was out on a connection that was not there.
                let _ = lane.fall(now);
                node.failure = Some(why.clone());
                self.routes.doubt(now);
                self.note_failure(why);
            }
        }
    }

    /// The server closed a connection. While nothing is out on it that is no
    /// failure of any call, if it is noticed before the next one goes out;
    /// otherwise the calls that were out tell why.
    pub(super) fn on_ended(&mut self, at: usize, lane: usize, epoch: u64) {
        let place = self.nodes.get(at).and_then(|node| node.lanes.get(lane));
        let is_idle = |place: &Lane| place.epoch == epoch && place.in_flight.is_empty();
        if place.is_some_and(is_idle) {
            self.changed = true;
            self.lose(at, lane, &failure(FailureKind::Refused, "it closed the connection"));
        }
    }

    /// Tells others of a failure, before those who were waiting are told.
    pub(super) fn note_failure(&mut self, why: StoreError) {
        self.failure = Some(why);
        self.tell();
    }

    pub(super) fn keep_time(&mut self) {
        self.expire();
        self.dial_due();
        self.lose_silent();
        self.retry_later();
        self.refresh_map();
        self.look_at_password();
    }

    fn expire(&mut self) {
        if self.expiry.is_none_or(|expiry| expiry > self.now) {
            return;
        }
        let (now, meter) = (self.now, Arc::clone(&self.meter));
        let deadlines = self.nodes.iter_mut().filter_map(|node| node.expire(now, &meter));
        let mut next = deadlines.min();
        self.expire_unrouted(&mut next);
        let (late, later) =
            self.later.drain(..).partition::<Vec<_>, _>(|(_, job)| job.until <= now);
        late.into_iter().for_each(|(_, job)| job.expire(&meter));
        self.later = later;
        self.expiry = next.into_iter().chain(self.later.iter().map(|(_, job)| job.until)).min();
    }

    fn dial_due(&mut self) {
        let now = self.now;
        let is_due =
            |lane: &Lane| matches!(lane.state, LaneState::Waiting { until } if until <= now);
        for at in 0..self.nodes.len() {
            for lane in 0..self.dialer.settings.connections {
                let node = self.nodes.get(at).filter(|node| !node.retired);
                if node.and_then(|node| node.lanes.get(lane)).is_some_and(is_due) {
                    self.dial(at, lane);
                }
            }
        }
    }

    fn lose_silent(&mut self) {
        let patience = self.dialer.settings.connect_timeout;
        for at in 0..self.nodes.len() {
            for lane in 0..self.dialer.settings.connections {
                let place = self.nodes.get(at).and_then(|node| node.lanes.get(lane));
                let due = place.and_then(|lane| lane.silent_until(patience));
                if due.is_some_and(|due| due <= self.now) {
                    self.doubt(at, lane);
                    self.lose(at, lane, &silent(patience));
                }
            }
        }
    }

    fn retry_later(&mut self) {
        let now = self.now;
        let (due, later) = self.later.drain(..).partition::<Vec<_>, _>(|(due, _)| *due <= now);
        self.later = later;
        due.into_iter().for_each(|(_, job)| self.route(job));
    }

    pub(super) fn next_wake(&self) -> Instant {
        let patience = self.dialer.settings.connect_timeout;
        let lanes = self.nodes.iter().filter(|node| !node.retired).flat_map(|node| &node.lanes);
        let dials = lanes.clone().filter_map(|lane| match lane.state {
            LaneState::Waiting { until } => Some(until),
            LaneState::Dialing | LaneState::Up { .. } => None,
        });
        let silences = lanes.filter_map(|lane| lane.silent_until(patience));
        let retries = self.later.iter().map(|(due, _)| *due);
        let single = [self.expiry, self.routes.due(), self.password_due];
        let next = dials.chain(silences).chain(retries).chain(single.into_iter().flatten()).min();
        next.unwrap_or(self.now + IDLE)
    }

    fn look_at_password(&mut self) {
        if self.password_due.is_none_or(|due| due > self.now) {
            return;
        }
        self.password_due = None;
        let dialer = self.dialer.clone();
        self.tasks.spawn(async move {
            Event::Password { read: read_password(&dialer.settings.login).await }
        });
    }

    /// Tells the servers a password that has changed, on the connections that are there.
    pub(super) fn on_password(&mut self, read: Result<Option<Secret>, StoreError>) {
        self.password_due = Some(self.now + PASSWORD_BEAT);
        // A file that cannot be read for a moment is being replaced.
        let Ok(Some(password)) = read else { return };
        let user = self.dialer.settings.login.user.as_deref();
        for lane in self.nodes.iter_mut().flat_map(|node| &mut node.lanes) {
            if let LaneState::Up { wire, .. } = &mut lane.state {
                wire.log_in(user, &password);
            }
        }
    }
}

/// A connection on which the script can be called by its hash.
async fn connect(
    dialer: &Dialer,
    target: &Target,
    script: &str,
) -> Result<(Wire, String), StoreError> {
    let wire = match (target, &dialer.settings.servers) {
        (Target::Address(address), _) => dialer.dial(address, Peer::Server).await?,
        (Target::Master, RedisServers::Sentinels { sentinels, master }) => {
            dial_master(dialer, sentinels, master).await?
        }
        (Target::Master, _) => return Err(failure(FailureKind::Other, "no sentinel is named")),
    };
    let loaded = wire.ask(load_command(script), dialer.settings.connect_timeout).await;
    let hash = loaded.and_then(|answer| match answer {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| failure::of_garbage()),
        Value::SimpleString(text) => Ok(text),
        _ => Err(failure::of_garbage()),
    });
    let hash = hash.map_err(|error| match target {
        Target::Address(address) => failure::at(address, &error),
        Target::Master => error,
    })?;
    Ok((wire, hash))
}
