//! Two regions, each with a server and a Redis, that count one eventual limit.

use crate::process::{Folder, Serving, Start};
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;

const RULES: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 100000, consistency: eventual}
";
const LIMIT: u64 = 100_000;

struct Pair {
    redis: [Server; 2],
    /// The line to each Redis from the other region.
    lines: [Relay; 2],
    servers: [Serving; 2],
    /// A server on each Redis that admits nothing: what it shows is what Redis knows.
    readers: [Serving; 2],
}

impl Pair {
    fn start(folder: &Folder) -> Self {
        let redis = [Server::redis(), Server::redis()];
        let lines = [Relay::to(redis[0].port()), Relay::to(redis[1].port())];
        let start = |own: usize| Start::new(folder).args(["--redis", &redis[own].url()]);
        let server = |own: usize, other: usize| {
            start(own).env("TIDEGATE_STORE_REDIS_REGIONS", lines[other].url()).serving()
        };
        let servers = [server(0, 1), server(1, 0)];
        let readers = [start(0).serving(), start(1).serving()];
        Pair { redis, lines, servers, readers }
    }

    #[track_caller]
    fn admit(&mut self, region: usize, times: usize) {
        for _ in 0..times {
            let answer = ask(&mut self.servers[region], "check");
            assert_eq!(answer["admitted"], true, "{answer}");
        }
    }

    /// Waits until both know this many admissions.
    #[track_caller]
    fn until_both_know(&mut self, admitted: u64) {
        for reader in &mut self.readers {
            reader.until(|reader| {
                let answer = ask(reader, "peek");
                let is_exact = answer["degraded"] != true;
                let left = answer["decisions"][0]["remaining"].as_u64();
                (is_exact && left == Some(LIMIT - admitted)).then_some(())
            });
        }
    }
}

fn ask(serving: &mut Serving, verb: &str) -> serde_json::Value {
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"a"}]}]}"#;
    serving.ask("http", "POST", &format!("/v1/{verb}"), &[], body).json()
}

#[test]
fn regions_that_were_cut_apart_know_every_admission_of_each_other() {
    let folder = Folder::with_rules(RULES);
    let mut pair = Pair::start(&folder);
    pair.admit(0, 100);
    pair.admit(1, 100);
    pair.until_both_know(200);
    // Packets are lost, then the connections with what was on its way.
    pair.lines.iter().for_each(Relay::silence);
    pair.admit(0, 300);
    pair.admit(1, 300);
    pair.lines.iter().for_each(Relay::cut);
    pair.lines.iter().for_each(Relay::mend);
    pair.until_both_know(800);
}

#[test]
fn admissions_while_the_own_redis_is_stopped_are_known_everywhere() {
    let folder = Folder::with_rules(RULES);
    let mut pair = Pair::start(&folder);
    pair.admit(0, 100);
    pair.until_both_know(100);
    pair.redis[0].freeze();
    pair.admit(0, 600);
    pair.redis[0].thaw();
    pair.until_both_know(700);
}
