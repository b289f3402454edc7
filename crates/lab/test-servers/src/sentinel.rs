//! A master, its replicas, and sentinels that watch them.

use crate::eventually;
use crate::resp::Reply;
use crate::server::{Flavour, Server, Setup};

/// The master's name at the sentinels.
pub const MASTER: &str = "counters";

/// A master with replicas, watched by sentinels.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The master at the start, then its replicas.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

impl SentinelGroup {
    /// One master with this many replicas, and three sentinels.
    #[track_caller]
    pub fn start(flavour: Flavour, replicas: usize) -> Self {
        let master = Setup::new(flavour).start();
        let port = master.port().to_string();
        let replica = || Setup::new(flavour).with("replicaof", &["127.0.0.1", &port]).start();
        let mut servers: Vec<Server> = (0..replicas).map(|_| replica()).collect();
        servers.insert(0, master);
        let sentinel = || {
            Setup::new(flavour)
                .being_sentinel()
                .with("sentinel", &["monitor", MASTER, "127.0.0.1", &port, "2"])
                .with("sentinel", &["down-after-milliseconds", MASTER, "200"])
                .with("sentinel", &["failover-timeout", MASTER, "2000"])
                .start()
        };
        let group = SentinelGroup { servers, sentinels: (0..3).map(|_| sentinel()).collect() };
        group.wait_until_known();
        group
    }

    /// Addresses of all sentinels, for a `redis-sentinel://` URL.
    pub fn addresses(&self) -> String {
        let each: Vec<String> =
            self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        each.join(",")
    }

    /// The index in `servers` of the master that most sentinels name.
    pub fn master(&self) -> Option<usize> {
        let seen: Vec<String> = self.sentinels.iter().filter_map(master_of).collect();
        let port =
            seen.iter().find(|port| seen.iter().filter(|other| other == port).count() >= 2)?;
        self.servers.iter().position(|server| server.port().to_string() == *port)
    }

    /// Waits until most sentinels name another master, and that one accepts writes.
    #[track_caller]
    pub fn wait_for_other_master(&self, than: usize) -> usize {
        eventually("that another server becomes master", || {
            let master = self.master().filter(|&master| master != than)?;
            let role = self.servers[master].info(&["INFO", "replication"], "role")?;
            (role == "master").then_some(master)
        })
    }

    /// Waits until each sentinel knows the others, and sees every replica in sync.
    #[track_caller]
    fn wait_until_known(&self) {
        let replicas = (self.servers.len() - 1).to_string();
        let others = (self.sentinels.len() - 1).to_string();
        eventually("that the sentinels know all", || {
            let knows = |sentinel: &Server| {
                field(sentinel, "num-slaves").as_ref() == Some(&replicas)
                    && field(sentinel, "num-other-sentinels").as_ref() == Some(&others)
            };
            let in_step = |replica: &Server| {
                replica.info(&["INFO", "replication"], "master_link_status").as_deref()
                    == Some("up")
            };
            (self.sentinels.iter().all(knows) && self.servers.iter().skip(1).all(in_step))
                .then_some(())
        });
    }
}

fn master_of(sentinel: &Server) -> Option<String> {
    sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?.list().get(1)?.text()
}

fn field(sentinel: &Server, name: &str) -> Option<String> {
    let reply = sentinel.try_ask(&["SENTINEL", "MASTER", MASTER])?;
    let mut words = reply.list().iter().filter_map(Reply::text);
    words.find(|word| word == name)?;
    words.next()
}
