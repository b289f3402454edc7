//! Where a job goes: to the only server, or to the node of the cluster that has its slot.
//!
//! The map of slots is asked for at the start, and again when a node says that
//! a slot has moved, cannot be reached, or calls the cluster down. Until a new
//! map is there, single slots follow what the nodes themselves say.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ServerError, cmd};

use super::job::Job;
use super::node::{Node, Target, expire_in};
use super::worker::{Event, Worker};
use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::{self, failure};
use crate::redis::link::dial::{Dialer, Peer};
use crate::redis::link::patience::wait_after;
use crate::redis::link::slots::{SlotMap, Stretch, read_redirect, read_slots};
use crate::redis::settings::{RedisAddress, RedisServers};

/// How often a job is sent on before it is given up. A slot that moves sends it
/// on twice; more means that nodes disagree.
pub(super) const HOPS_MAX: u8 = 5;

/// The map is asked for at most this often.
const REFRESH_GAP: Duration = Duration::from_millis(100);

/// More nodes than a cluster can sensibly have.
const NODES_MAX: usize = 1_000;

/// Keys on their way to another node arrive soon.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// How jobs find their node.
pub(super) enum Routes {
    Single,
    Cluster(Box<ClusterRoutes>),
}

pub(super) struct ClusterRoutes {
    seeds: Vec<RedisAddress>,
    map: Option<Arc<SlotMap>>,
    /// Jobs that came before the first map.
    unrouted: VecDeque<Job>,
    /// When to ask for the map; not while it is asked for.
    due: Option<Instant>,
    asked: Option<Instant>,
    asking: bool,
    failures: u32,
    failure: Option<StoreError>,
}

impl Routes {
    pub(super) fn new(servers: &RedisServers, now: Instant) -> Self {
        match servers {
            RedisServers::Single(_) | RedisServers::Sentinels { .. } => Routes::Single,
            RedisServers::Cluster(seeds) => Routes::Cluster(Box::new(ClusterRoutes {
                seeds: seeds.clone(),
                map: None,
                unrouted: VecDeque::new(),
                due: Some(now),
                asked: None,
                asking: false,
                failures: 0,
                failure: None,
            })),
        }
    }

    pub(super) fn map(&self) -> Option<Arc<SlotMap>> {
        match self {
            Routes::Single => None,
            Routes::Cluster(cluster) => cluster.map.clone(),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Routes::Cluster(_))
    }

    /// Whether it is known which servers there are.
    pub(super) fn is_mapped(&self) -> bool {
        match self {
            Routes::Single => true,
            Routes::Cluster(cluster) => cluster.map.is_some(),
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Routes::Single => None,
            Routes::Cluster(cluster) => cluster.due,
        }
    }

    pub(super) fn unrouted(&self) -> usize {
        match self {
            Routes::Single => 0,
            Routes::Cluster(cluster) => cluster.unrouted.len(),
        }
    }

    /// Asks for a new map soon.
    pub(super) fn doubt(&mut self, now: Instant) {
        if let Routes::Cluster(cluster) = self
            && !cluster.asking
            && cluster.due.is_none()
        {
            cluster.due = Some(cluster.asked.map_or(now, |asked| now.max(asked + REFRESH_GAP)));
        }
    }
}

impl Worker {
    /// Puts a job where it waits for its server.
    pub(super) fn route(&mut self, job: Job) {
        let node = match &mut self.routes {
            Routes::Single => Some(0),
            Routes::Cluster(cluster) => match &cluster.map {
                Some(map) => map.node_of(job.slot()),
                None if cluster.failures == 0 => {
                    cluster.unrouted.push_back(job);
                    return;
                }
                None => {
                    let why = cluster.failure.clone().unwrap_or_else(nobody_has_it);
                    job.fail(&why, &self.meter);
                    return;
                }
            },
        };
        match node.and_then(|at| self.nodes.get_mut(at)) {
            Some(node) => node.waiting.push_back(job),
            None => {
                job.fail(&nobody_has_it(), &self.meter);
                self.routes.doubt(self.now);
            }
        }
    }

    /// A node says that the slot is elsewhere (`MOVED`), or that this once it is (`ASK`).
    pub(super) fn redirect(&mut self, from: usize, error: &ServerError, jobs: Vec<Job>) {
        let asked = match self.nodes.get(from).map(|node| &node.target) {
            Some(Target::Address(address)) => address.clone(),
            _ => RedisAddress::tcp("", 0),
        };
        let place = read_redirect(error.details().unwrap_or_default(), &asked);
        let target = place.and_then(|(slot, address)| Some((slot, self.node_at(&address)?)));
        let Some((slot, target)) = target else {
            self.fail_all(jobs, &failure::of_garbage());
            return;
        };
        let asking = error.code() == "ASK";
        if !asking {
            if let Routes::Cluster(cluster) = &mut self.routes
                && let Some(map) = &mut cluster.map
            {
                Arc::make_mut(map).set(slot, slot, target);
                self.changed = true;
            }
            self.routes.doubt(self.now);
        }
        self.meter.redirected();
        self.send_on(target, jobs, asking);
    }

    /// Lets jobs that did not run wait at the front of this node.
    pub(super) fn send_on(&mut self, node: usize, jobs: Vec<Job>, asking: bool) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        for mut job in jobs.into_iter().rev() {
            job.hops = job.hops.saturating_add(1);
            job.asking = asking;
            if job.hops > HOPS_MAX {
                let why = failure(FailureKind::Cluster, "its nodes send a check back and forth");
                job.fail(&why, &self.meter);
            } else {
                node.waiting.push_front(job);
            }
        }
    }

    /// Keys are on their way to another node: tries again in a moment.
    pub(super) fn postpone(&mut self, jobs: Vec<Job>) {
        let due = self.now + TRY_AGAIN_AFTER;
        self.later.extend(jobs.into_iter().map(|mut job| {
            job.asking = false;
            (due, job)
        }));
    }

    /// Asks for the map if it is time.
    pub(super) fn refresh_map(&mut self) {
        let now = self.now;
        let Routes::Cluster(cluster) = &mut self.routes else { return };
        if cluster.asking || cluster.due.is_none_or(|due| due > now) {
            return;
        }
        cluster.due = None;
        cluster.asking = true;
        cluster.asked = Some(now);
        // Nodes that answer come first; the seeds may be gone by now.
        let known = |up: bool| {
            self.nodes
                .iter()
                .filter(move |node| !node.retired && (node.connected() > 0) == up)
                .filter_map(|node| match &node.target {
                    Target::Address(address) => Some(address.clone()),
                    Target::Master => None,
                })
        };
        let mut places: Vec<RedisAddress> = known(true).collect();
        for place in cluster.seeds.iter().cloned().chain(known(false)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let dialer = self.dialer.clone();
        self.tasks.spawn(async move { Event::Mapped { map: ask_any(&dialer, &places).await } });
    }

    /// A new map, or none.
    pub(super) fn on_map(&mut self, map: Result<Vec<Stretch>, StoreError>) {
        let now = self.now;
        let Routes::Cluster(cluster) = &mut self.routes else { return };
        cluster.asking = false;
        match map {
            Ok(stretches) => {
                cluster.failures = 0;
                self.install_map(&stretches);
            }
            Err(error) => {
                cluster.failures = cluster.failures.saturating_add(1);
                cluster.due = Some(now + wait_after(cluster.failures));
                cluster.failure = Some(error.clone());
                let stranded = std::mem::take(&mut cluster.unrouted);
                self.note_failure(error.clone());
                self.fail_all(stranded, &error);
            }
        }
    }

    fn install_map(&mut self, stretches: &[Stretch]) {
        for node in &mut self.nodes {
            node.retired = true;
        }
        let mut map = SlotMap::empty();
        for stretch in stretches {
            if let Some(node) = self.node_at(&stretch.master) {
                map.set(stretch.first, stretch.last, node);
            }
        }
        let Routes::Cluster(cluster) = &mut self.routes else { return };
        cluster.map = Some(Arc::new(map));
        let mut stranded: Vec<Job> = cluster.unrouted.drain(..).collect();
        for node in self.nodes.iter_mut().filter(|node| node.retired) {
            stranded.extend(node.waiting.drain(..));
            if node.is_idle() {
                node.hang_up(self.now);
            }
        }
        for job in stranded {
            self.route(job);
        }
        self.changed = true;
    }

    /// The node at this address; makes one if there is none yet.
    fn node_at(&mut self, address: &RedisAddress) -> Option<usize> {
        let target = Target::Address(address.clone());
        let known = self.nodes.iter().position(|node| node.target == target);
        if let Some(at) = known {
            if let Some(node) = self.nodes.get_mut(at) {
                node.retired = false;
            }
            return Some(at);
        }
        let node = Node::new(target, self.dialer.settings.connections, self.now);
        self.changed = true;
        let free = self.nodes.iter().position(|node| node.retired && node.is_idle());
        if let Some(at) = free {
            if let Some(place) = self.nodes.get_mut(at) {
                *place = node;
            }
            return Some(at);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }

    /// Answers jobs without a map whose time is over.
    pub(super) fn expire_unrouted(&mut self, next: &mut Option<Instant>) {
        if let Routes::Cluster(cluster) = &mut self.routes {
            expire_in(&mut cluster.unrouted, self.now, next, &self.meter);
        }
    }
}

fn nobody_has_it() -> StoreError {
    failure(FailureKind::Cluster, "no node of the cluster has the slot")
}

/// The map that the first of these nodes with an answer has.
async fn ask_any(dialer: &Dialer, places: &[RedisAddress]) -> Result<Vec<Stretch>, StoreError> {
    let mut last = failure(FailureKind::Refused, "no node is named");
    for place in places {
        match ask_one(dialer, place).await {
            Ok(map) if !map.is_empty() => return Ok(map),
            Ok(_) => last = failure(FailureKind::Cluster, "the cluster has handed out no slots"),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask_one(dialer: &Dialer, place: &RedisAddress) -> Result<Vec<Stretch>, StoreError> {
    let wire = dialer.dial(place, Peer::Server).await?;
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = wire.ask(command, dialer.settings.connect_timeout).await;
    let answer = answer.and_then(|answer| read_slots(&answer, place));
    answer.map_err(|error| failure::at(place, &error))
}
