//! Finds the node of a job: the only server, or the node of the cluster that has the job's slot.
//!
//! The slot map is read at the start, and again when a node reports that a slot has moved, cannot be reached, or
//! reports that the cluster is down. Until the new map arrives, single slots follow the nodes' redirects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{ServerError, cmd};

use super::job::Job;
use super::node::{Node, expire_in};
use super::worker::{Event, Worker};
use crate::backoff::wait_after;
use crate::cluster_slots::{SlotMap, SlotRange, read_redirect, read_slots};
use crate::dial::{Dialer, Peer};
use crate::error::{self, FailureKind, LinkError, unavailable};
use crate::settings::{RedisAddress, RedisServers};

/// How often a job is sent again before it fails. A slot that moves needs two; more means that nodes disagree.
const RESENDS_MAX: u8 = 5;

/// The least time between two readings of the slot map.
const REFRESH_GAP: Duration = Duration::from_millis(100);

/// More nodes than a cluster can sensibly have.
const NODES_MAX: usize = 1_000;

/// How long to wait for keys that migrate to another node.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// How jobs of a cluster find their node.
pub(super) struct ClusterRouter {
    seeds: Vec<RedisAddress>,
    pub(super) map: Option<Arc<SlotMap>>,
    /// Jobs that arrived before the first map.
    pub(super) unrouted: VecDeque<Job>,
    /// When to read the map; none while it is being read.
    pub(super) due: Option<Instant>,
    last_read: Option<Instant>,
    reading: bool,
    failures: u32,
    failure: Option<LinkError>,
}

impl ClusterRouter {
    /// The router for these servers; none unless they are a cluster.
    pub(super) fn new(servers: &RedisServers, now: Instant) -> Option<Self> {
        let RedisServers::Cluster(seeds) = servers else { return None };
        Some(ClusterRouter {
            seeds: seeds.clone(),
            map: None,
            unrouted: VecDeque::new(),
            due: Some(now),
            last_read: None,
            reading: false,
            failures: 0,
            failure: None,
        })
    }
}

impl Worker {
    /// Schedules a reading of the slot map, in a cluster.
    pub(super) fn refresh_slots_soon(&mut self) {
        if let Some(cluster) = &mut self.cluster
            && !cluster.reading
            && cluster.due.is_none()
        {
            let now = self.now;
            cluster.due = Some(cluster.last_read.map_or(now, |read| now.max(read + REFRESH_GAP)));
        }
    }

    /// Queues a job at its node.
    pub(super) fn route(&mut self, job: Job) {
        let node = match &mut self.cluster {
            None => Some(0),
            Some(ClusterRouter { map: Some(map), .. }) => map.node_of(job.slot()),
            Some(cluster) if cluster.failures == 0 => return cluster.unrouted.push_back(job),
            Some(cluster) => {
                let error = cluster.failure.clone().unwrap_or_else(slot_without_node);
                return job.fail(&error, &self.state.counters);
            }
        };
        match node.and_then(|node| self.nodes.get_mut(node)) {
            Some(node) => {
                if let Some(rejected) = node.enqueue(job) {
                    let reason = "it is silent, and enough calls wait for it already";
                    let error = unavailable(FailureKind::Overloaded, reason);
                    rejected.fail(&error, &self.state.counters);
                }
            }
            None => {
                job.fail(&slot_without_node(), &self.state.counters);
                self.refresh_slots_soon();
            }
        }
    }

    /// Follows `MOVED` (another node has the slot) or `ASK` (another node has the slot's keys for now).
    pub(super) fn redirect(&mut self, from: usize, error: &ServerError, jobs: Vec<Job>) {
        let asked = self.nodes.get(from).and_then(|node| node.address.clone());
        let asked = asked.unwrap_or_else(|| RedisAddress::tcp("", 0));
        let redirect = read_redirect(error.details().unwrap_or_default(), &asked);
        let target = redirect.and_then(|(slot, address)| Some((slot, self.node_at(&address)?)));
        let Some((slot, target)) = target else {
            self.fail_all(jobs, &error::not_redis());
            return;
        };
        let asking = error.code() == "ASK";
        if !asking {
            if let Some(map) = self.cluster.as_mut().and_then(|cluster| cluster.map.as_mut()) {
                Arc::make_mut(map).set(slot, slot, target);
                self.changed = true;
            }
            self.refresh_slots_soon();
        }
        self.state.counters.redirects.fetch_add(1, Ordering::Relaxed);
        self.resend(target, jobs, asking);
    }

    /// Queues jobs that did not run at the front of this node.
    pub(super) fn resend(&mut self, node: usize, jobs: Vec<Job>, asking: bool) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        for mut job in jobs.into_iter().rev() {
            job.resends = job.resends.saturating_add(1);
            job.asking = asking;
            if job.resends > RESENDS_MAX {
                let reason = "its nodes redirect a call to each other";
                job.fail(&unavailable(FailureKind::Cluster, reason), &self.state.counters);
            } else {
                node.waiting.push_front(job);
            }
        }
    }

    /// Routes jobs again shortly: their keys migrate to another node.
    pub(super) fn retry_soon(&mut self, jobs: Vec<Job>) {
        let due = self.now + TRY_AGAIN_AFTER;
        self.retries.extend(jobs.into_iter().map(|mut job| {
            job.asking = false;
            (due, job)
        }));
    }

    /// Starts reading the slot map if it is due.
    pub(super) fn refresh_slots(&mut self) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.reading || cluster.due.is_none_or(|due| due > now) {
            return;
        }
        cluster.due = None;
        cluster.reading = true;
        cluster.last_read = Some(now);
        // Connected nodes come first; the seeds may be gone by now.
        let known = |connected: bool| {
            self.nodes
                .iter()
                .filter(move |node| !node.retired && (node.connected() > 0) == connected)
                .filter_map(|node| node.address.clone())
        };
        let mut addresses: Vec<RedisAddress> = known(true).collect();
        for address in cluster.seeds.iter().cloned().chain(known(false)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let dialer = self.dialer.clone();
        self.tasks.spawn(async move {
            Event::SlotsRead { slots: read_slots_from_any(&dialer, &addresses).await }
        });
    }

    pub(super) fn on_slots(&mut self, slots: Result<Vec<SlotRange>, LinkError>) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        cluster.reading = false;
        match slots {
            Ok(ranges) => {
                cluster.failures = 0;
                self.install_map(&ranges);
            }
            Err(error) => {
                cluster.failures = cluster.failures.saturating_add(1);
                cluster.due = Some(now + wait_after(cluster.failures));
                cluster.failure = Some(error.clone());
                let unrouted = std::mem::take(&mut cluster.unrouted);
                self.note_failure(error.clone());
                self.fail_all(unrouted, &error);
            }
        }
    }

    fn install_map(&mut self, ranges: &[SlotRange]) {
        for node in &mut self.nodes {
            node.retired = true;
        }
        let mut map = SlotMap::empty();
        for range in ranges {
            if let Some(node) = self.node_at(&range.master) {
                map.set(range.first, range.last, node);
            }
        }
        let Some(cluster) = &mut self.cluster else { return };
        cluster.map = Some(Arc::new(map));
        let mut to_route: Vec<Job> = cluster.unrouted.drain(..).collect();
        for node in self.nodes.iter_mut().filter(|node| node.retired) {
            to_route.extend(node.waiting.drain(..));
            if node.is_idle() {
                node.close(self.now);
            }
        }
        for job in to_route {
            self.route(job);
        }
        self.changed = true;
    }

    /// The index of the node at this address; adds one if it is new. `None` when there are too many.
    fn node_at(&mut self, address: &RedisAddress) -> Option<usize> {
        let known = self.nodes.iter().position(|node| node.address.as_ref() == Some(address));
        if let Some(index) = known {
            self.nodes[index].retired = false;
            return Some(index);
        }
        let node = Node::new(Some(address.clone()), self.dialer.settings.connections, self.now);
        self.changed = true;
        if let Some(index) = self.nodes.iter().position(|node| node.retired && node.is_idle()) {
            self.nodes[index] = node;
            return Some(index);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }

    /// Fails unrouted jobs past their deadline.
    pub(super) fn expire_unrouted(&mut self, next: &mut Option<Instant>) {
        if let Some(cluster) = &mut self.cluster {
            expire_in(&mut cluster.unrouted, self.now, next, &self.state.counters);
        }
    }
}

fn slot_without_node() -> LinkError {
    unavailable(FailureKind::Cluster, "no node of the cluster has the slot")
}

/// The slots, from the first of these nodes that replies.
async fn read_slots_from_any(
    dialer: &Dialer,
    addresses: &[RedisAddress],
) -> Result<Vec<SlotRange>, LinkError> {
    let mut last = unavailable(FailureKind::Refused, "no node is named");
    for address in addresses {
        match read_slots_from(dialer, address).await {
            Ok(slots) if !slots.is_empty() => return Ok(slots),
            Ok(_) => last = unavailable(FailureKind::Cluster, "the cluster has assigned no slots"),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn read_slots_from(
    dialer: &Dialer,
    address: &RedisAddress,
) -> Result<Vec<SlotRange>, LinkError> {
    let connection = dialer.dial(address, Peer::Server).await?;
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = connection.run(command, dialer.settings.connect_timeout).await;
    let slots = reply.and_then(|reply| read_slots(&reply, address));
    slots.map_err(|error| error::at(address, &error))
}
