//! Exported rules: the packet filters accept them, and refuse as the rules say.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use tempfile::TempDir;
use tidegate_test_servers::namespace::{NamespacePair, SERVER};

use crate::{CONNECT, LISTEN, binary, printed};

const RULES: &str = "
domain: edge
descriptors:
- key: address
  address: true
  limits:
  - {algorithm: token_bucket, unit: hour, requests_per_unit: 5, burst: 5}
- {key: address, cidr: 10.77.64.0/24, rate_limit: {unlimited: true}}
- {key: address, cidr: 10.77.65.0/24, share_threshold: true, limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 3}]}
- {key: address, cidr: 10.77.66.0/24, limits: [{algorithm: concurrency, requests_per_unit: 2, time_to_live: 60s}]}
- {key: address, cidr: 10.77.67.0/24, mode: shadow, limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1}]}
- {key: address, cidr: [\"2001:db8::/32\", 198.51.100.0/24], address: {v4: 24, v6: 56}, rate_limit: {unit: minute, requests_per_unit: 90}}
- {key: \"user\\\"; drop\", rate_limit: {unit: second, requests_per_unit: 1}}
";

struct RuleFile {
    folder: TempDir,
}

impl RuleFile {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.yaml"), text).unwrap();
        RuleFile { folder }
    }

    fn args(&self, language: &str, more: &[&str]) -> Vec<String> {
        let path = self.folder.path().join("rules.yaml").display().to_string();
        let args = ["rules", "export", language, "--port", "443", "--rules", &path];
        args.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
    }
}

/// A listener in the server's namespace, ended with the test.
struct Listening(Child);

impl Listening {
    fn start(pair: &NamespacePair) -> Self {
        let mut command = pair.on_server("python3");
        command.args(["-c", LISTEN]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Listening(child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connected(pair: &NamespacePair, times: u32, sources: &[&str]) -> Vec<u32> {
    let mut command = pair.on_client("python3");
    command.args(["-c", CONNECT, SERVER, "443", &times.to_string()]).args(sources);
    printed(&mut command).split_whitespace().map(|count| count.parse().unwrap()).collect()
}

#[test]
fn every_exported_file_passes_the_check_of_its_packet_filter() {
    let Some(pair) = NamespacePair::or_skip("exported files", &["nft", "iptables-restore"]) else {
        return;
    };
    let without_addresses =
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]\n";
    for rules in [RULES, without_addresses] {
        let file = RuleFile::new(rules);
        for language in ["nftables", "iptables", "ip6tables"] {
            let args = file.args(language, &["--check", "--connections-per-request", "1.5"]);
            let said = printed(pair.on_server(binary()).args(args));
            assert!(said.contains("accepts it"), "{language}: {said}");
        }
    }
    let rules = printed(pair.on_server("nft").args(["list", "ruleset"]));
    assert!(!rules.contains("tidegate"), "a check changes nothing: {rules}");
}

#[test]
fn nftables_refuses_new_and_open_connections_as_the_rules_say() {
    let Some(pair) = NamespacePair::or_skip("exported rules in nftables", &["nft"]) else { return };
    let file = RuleFile::new(RULES);
    // Twice: a second time replaces the first.
    for _ in 0..2 {
        printed(pair.on_server(binary()).args(file.args("nftables", &["--apply"])));
    }
    let _listening = Listening::start(&pair);
    let counts = connected(&pair, 8, &["10.77.100.1", "10.77.100.2", "10.77.64.1", "10.77.67.1"]);
    assert_eq!(counts, [5, 5, 8, 8], "its own bucket each; unlimited; shadow");
    let shared = connected(&pair, 4, &["10.77.65.1", "10.77.65.2"]);
    assert_eq!(shared.iter().sum::<u32>(), 3, "one bucket for the range");
    assert_eq!(connected(&pair, 4, &["10.77.66.1"]), [2], "two open at a time");
    let rules = printed(pair.on_server("nft").args(["list", "ruleset"]));
    assert_eq!(rules.matches("chain arrivals {").count(), 1, "{rules}");
}

#[test]
fn a_flood_from_more_addresses_than_a_set_holds_meets_the_overflow_limit() {
    let Some(pair) = NamespacePair::or_skip("the overflow limit", &["nft"]) else { return };
    let file = RuleFile::new(RULES);
    let script =
        printed(pair.on_server(binary()).args(file.args("nftables", &["--overflow", "1"])));
    let small = file.folder.path().join("small.nft");
    fs::write(&small, script.replace("size 65536", "size 4")).unwrap();
    printed(pair.on_server("nft").arg("-f").arg(&small));
    let _listening = Listening::start(&pair);
    let sources: Vec<String> = (1..=40).map(|last| format!("10.77.100.{last}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let opened: u32 = connected(&pair, 1, &sources).iter().sum();
    // Two at once and one a second, for the ten seconds of 40 attempts. Without the limit all 40 connect.
    assert!((2..=20).contains(&opened), "{opened}");
    let counter =
        printed(pair.on_server("nft").args(["list", "counter", "inet", "tidegate", "overflow"]));
    assert!(!counter.contains("packets 0 "), "{counter}");
}
