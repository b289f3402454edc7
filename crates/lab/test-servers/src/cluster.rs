//! A cluster of real servers on loopback.

use std::ops::Range;

use crate::eventually;
use crate::resp::Reply;
use crate::server::{Flavour, Server, Setup};

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// Masters that share all slots evenly, then their replicas.
#[derive(Debug)]
pub struct Cluster {
    /// The masters at the start.
    pub masters: Vec<Server>,
    /// Their replicas at the start.
    pub replicas: Vec<Server>,
}

impl Cluster {
    /// Three masters.
    #[track_caller]
    pub fn start(flavour: Flavour) -> Self {
        Cluster::start_with(3, 0, &Setup::new(flavour))
    }

    /// Masters with this many replicas each, all with these settings.
    #[track_caller]
    pub fn start_with(masters: usize, replicas_each: usize, setup: &Setup) -> Self {
        let node = || setup.clone().being_cluster_node().start();
        let cluster = Cluster {
            masters: (0..masters).map(|_| node()).collect(),
            replicas: (0..masters * replicas_each).map(|_| node()).collect(),
        };
        cluster.hand_out_slots();
        cluster.introduce();
        cluster.attach_replicas();
        cluster.wait_until_whole();
        cluster
    }

    fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// The slots of a master, as they were at the start.
    pub fn slots(&self, master: usize) -> Range<usize> {
        let count = self.masters.len();
        SLOTS * master / count..SLOTS * (master + 1) / count
    }

    /// Addresses of all nodes, for a `redis-cluster://` URL.
    pub fn addresses(&self) -> String {
        let each: Vec<String> =
            self.nodes().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        each.join(",")
    }

    /// `redis-cluster://127.0.0.1:port,…`.
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses())
    }

    #[track_caller]
    fn hand_out_slots(&self) {
        for (index, node) in self.nodes().enumerate() {
            // Distinct epochs; with equal ones nodes would first have to resolve the collision.
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, master) in self.masters.iter().enumerate() {
            let slots: Vec<String> = self.slots(index).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> = ["CLUSTER", "ADDSLOTS"]
                .into_iter()
                .chain(slots.iter().map(String::as_str))
                .collect();
            master.tell(&words);
        }
    }

    #[track_caller]
    fn introduce(&self) {
        let Some(first) = self.masters.first() else { return };
        let (port, bus) = (first.port().to_string(), first.second_port().to_string());
        for node in self.nodes().skip(1) {
            node.tell(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let count = self.nodes().count().to_string();
        eventually("that all nodes know each other", || {
            self.nodes()
                .all(|node| {
                    node.info(&["CLUSTER", "INFO"], "cluster_known_nodes").as_ref() == Some(&count)
                        && !nodes_of(node).contains("handshake")
                })
                .then_some(())
        });
    }

    #[track_caller]
    fn attach_replicas(&self) {
        for (index, replica) in self.replicas.iter().enumerate() {
            let master = id(&self.masters[index % self.masters.len()]);
            eventually("that the replica may follow", || {
                let reply = replica.try_ask(&["CLUSTER", "REPLICATE", &master])?;
                (!matches!(reply, Reply::Error(_))).then_some(())
            });
        }
        eventually("that every replica is in step", || {
            let in_step = |replica: &Server| {
                replica.info(&["INFO", "replication"], "master_link_status").as_deref()
                    == Some("up")
            };
            self.replicas.iter().all(in_step).then_some(())
        });
    }

    /// Waits until every live node reports `cluster_state:ok`.
    #[track_caller]
    pub fn wait_until_whole(&self) {
        eventually("that the cluster is whole", || {
            let states =
                self.nodes().filter_map(|node| node.info(&["CLUSTER", "INFO"], "cluster_state"));
            states.into_iter().all(|state| state == "ok").then_some(())
        });
    }

    /// Begins to migrate a slot: its keys are spread over two nodes.
    #[track_caller]
    pub fn begin_move(&self, slot: usize, from: usize, to: usize) {
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let slot = slot.to_string();
        to.tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Migrates the keys of a slot.
    #[track_caller]
    pub fn carry_keys(&self, slot: usize, from: usize, to: usize) {
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let port = to.port().to_string();
        loop {
            let reply = from.tell(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
            let keys: Vec<String> = reply.list().iter().filter_map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            for key in keys {
                from.tell(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            }
        }
    }

    /// Ends the migration: the slot belongs to the new node.
    #[track_caller]
    pub fn end_move(&self, slot: usize, to: usize) {
        let (slot, owner) = (slot.to_string(), id(&self.masters[to]));
        // The new node first, so that one node always serves the slot.
        self.masters[to].tell(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        for master in &self.masters {
            master.tell(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        }
    }
}

fn id(node: &Server) -> String {
    node.tell(&["CLUSTER", "MYID"]).text().unwrap()
}

fn nodes_of(node: &Server) -> String {
    node.try_ask(&["CLUSTER", "NODES"]).and_then(|reply| reply.text()).unwrap_or_default()
}
