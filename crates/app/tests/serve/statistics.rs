//! Statistics that leave the process: statsd and DogStatsD on real sockets, upstream's Prometheus names, and what is said
//! of settings without an effect.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;

use crate::process::{Folder, PATIENCE, RULES, Serving, Start, write_below};

/// As envoyproxy/ratelimit is deployed.
fn start(folder: &Folder) -> Start<'_> {
    write_below(&folder.path("data/ratelimit/config/shop.yaml"), RULES);
    Start::bare(folder)
        .args(["--compat"])
        .env("RUNTIME_ROOT", folder.path("data"))
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("LOG_LEVEL", "info")
        .env("STATS_FLUSH_INTERVAL", "50ms")
}

fn check(serving: &mut Serving, user: &str) {
    let body = format!(
        r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#
    );
    serving.ask("http", "POST", "/json", &[], &body);
}

/// Sums the lines of counters until the wanted ones have their sums.
fn await_sums(wanted: &[(&str, u64)], mut lines: impl FnMut() -> Vec<String>) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let done = |sums: &BTreeMap<String, u64>| {
        wanted.iter().all(|(name, sum)| sums.get(*name).is_some_and(|have| have >= sum))
    };
    while !done(&sums) {
        for line in lines() {
            let Some((rest, tags)) = line.split_once("|c") else { continue };
            let (name, count) = rest.rsplit_once(':').expect("a value");
            let count: u64 = count.parse().expect("a count");
            *sums.entry(format!("{name}{tags}")).or_default() += count;
        }
    }
    for (name, sum) in wanted {
        assert_eq!(sums[*name], *sum, "{name}: {sums:?}");
    }
}

const HITS: &str = "ratelimit.service.rate_limit.shop.user.total_hits";
const OVER: &str = "ratelimit.service.rate_limit.shop.user.over_limit";

#[test]
fn statsd_receives_counts_over_tcp_under_the_names_of_upstream() {
    let folder = Folder::with_rules(RULES);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let mut serving = start(&folder)
        .env("STATSD_HOST", "127.0.0.1")
        .env("STATSD_PORT", address.port().to_string())
        .serving();
    for _ in 0..5 {
        check(&mut serving, "ada");
    }
    let (stream, _) = server.accept().expect("it connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut stream = BufReader::new(stream);
    await_sums(&[(HITS, 5), (OVER, 3), ("ratelimit.service.config_load_success", 1)], || {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("a line") > 0, "the stream ended");
        vec![line.trim().to_owned()]
    });
    let metrics = serving.get("debug", "/metrics").body;
    let is_failed =
        |line: &&str| line.starts_with("tidegate_statsd_lines_total{result=\"failed\"} 0");
    assert!(metrics.lines().any(|line| is_failed(&line)), "{metrics}");
}

#[test]
fn the_last_counts_are_sent_when_it_stops() {
    let folder = Folder::with_rules(RULES);
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = server.local_addr().expect("an address").port();
    let mut serving = start(&folder)
        .env("STATSD_PROTOCOL", "udp")
        .env("STATSD_HOST", "127.0.0.1")
        .env("STATSD_PORT", port.to_string())
        .env("STATS_FLUSH_INTERVAL", "1h")
        .serving();
    check(&mut serving, "ada");
    serving.signal("TERM");
    await_sums(&[(HITS, 1)], || packet(|bytes| server.recv(bytes)));
    assert_eq!(serving.ended().0.code(), Some(0));
}

#[test]
fn dogstatsd_receives_tags_and_rewritten_names() {
    let folder = Folder::with_rules(RULES);
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = server.local_addr().expect("an address").port();
    let mut serving = start(&folder)
        .env("USE_STATSD", "false")
        .env("USE_DOG_STATSD", "true")
        .env("STATSD_HOST", "127.0.0.1")
        .env("STATSD_PORT", port.to_string())
        .env("EXTRA_TAGS", "zone:a.1")
        .env("USE_DOG_STATSD_MOGRIFIERS", "HITS")
        .env(
            "DOG_STATSD_MOGRIFIER_HITS_PATTERN",
            r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$",
        )
        .env("DOG_STATSD_MOGRIFIER_HITS_NAME", "ratelimit.service.rate_limit.$3")
        .env("DOG_STATSD_MOGRIFIER_HITS_TAGS", "domain:$1,descriptor:$2")
        .serving();
    check(&mut serving, "ada");
    let wanted = [
        ("ratelimit.service.rate_limit.total_hits|#zone:a_1,domain:shop,descriptor:user", 1),
        ("ratelimit.service.config_load_success|#zone:a_1", 1),
    ];
    await_sums(&wanted, || packet(|bytes| server.recv(bytes)));
}

#[test]
fn a_unix_socket_receives_our_own_names_without_compat() {
    let folder = Folder::with_rules(RULES);
    let path = folder.path("dsd.socket");
    let server = UnixDatagram::bind(&path).expect("a socket");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut serving = Start::new(&folder)
        .args(["--set", &format!("statsd.address=unix:{}", path.display())])
        .args(["--set", "statsd.format=dogstatsd", "--set", "statsd.tags=zone:a"])
        .args(["--set", "statsd.flush_interval=50ms"])
        .serving();
    serving.check("ada");
    let wanted = [("tidegate.rule.shop.user.calls.within|#zone:a", 1)];
    await_sums(&wanted, || packet(|bytes| server.recv(bytes)));
}

/// The lines of one packet.
fn packet(receive: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> Vec<String> {
    let mut bytes = vec![0; 65_536];
    let length = receive(&mut bytes).expect("a packet");
    let text = std::str::from_utf8(&bytes[..length]).expect("text");
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_server_that_is_missing_is_said_once_and_stops_nothing() {
    let folder = Folder::with_rules(RULES);
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let mut serving = start(&folder).env("STATSD_PORT", port.to_string()).serving();
    let failed = |line: &serde_json::Value| {
        line["message"].as_str().is_some_and(|text| text.contains("statistics cannot be sent"))
    };
    assert_eq!(serving.wait_for(failed)["level"], "WARN");
    serving.until(|serving| {
        check(serving, "ada");
        let metrics = serving.get("debug", "/metrics").body;
        let failures = metrics.lines().find_map(|line| {
            line.strip_prefix("tidegate_statsd_flushes_total{result=\"failed\"} ")
        });
        (failures?.parse::<u64>().ok()? > 2).then_some(())
    });
    assert_eq!(serving.seen.iter().filter(|line| failed(line)).count(), 1);
}

#[test]
fn prometheus_has_the_names_of_upstream_and_ours_and_its_mapping_file_works() {
    let folder = Folder::with_rules(RULES);
    let prometheus = |folder| {
        start(folder)
            .env("USE_STATSD", "false")
            .env("USE_PROMETHEUS", "true")
            .env("PROMETHEUS_ADDR", "127.0.0.1:0")
            .env("PROMETHEUS_PATH", "/stats")
    };
    let mut serving = prometheus(&folder).serving();
    check(&mut serving, "ada");
    let page = serving.get("metrics", "/stats").body;
    let line = r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 1"#;
    assert!(page.lines().any(|other| other == line), "{page}");
    assert!(page.contains("\ntidegate_requests_total{"), "{page}");

    let mapping = r#"mappings: [{match: "ratelimit.service.rate_limit.*.*.total_hits", name: hits, labels: {rule: "$1/$2"}}]"#;
    folder.write("mapping.yaml", mapping);
    let mut serving = prometheus(&folder).env("PROMETHEUS_MAPPER_YAML", "mapping.yaml").serving();
    check(&mut serving, "ada");
    let page = serving.get("metrics", "/stats").body;
    assert!(page.lines().any(|line| line == r#"hits{rule="shop/user"} 1"#), "{page}");

    folder.write("mapping.yaml", "mappings: [{match: a b, name: hits}]");
    let (status, said) =
        prometheus(&folder).env("PROMETHEUS_MAPPER_YAML", "mapping.yaml").failing();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("mapping.yaml") && said.contains("`a b` is not a pattern"), "{said}");
}

#[test]
fn variables_without_an_effect_are_warned_of_at_every_log_level() {
    let folder = Folder::with_rules(RULES);
    let mut serving = start(&folder).env("LOG_LEVEL", "info").env("REDIS_POOL_SIZE", "3").serving();
    let named = |line: &serde_json::Value| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("REDIS_POOL_SIZE has no effect"))
    };
    assert_eq!(serving.wait_for(named)["level"], "WARN");
    let (status, said) = start(&folder)
        .env("LOG_LEVEL", "error")
        .env("REDIS_POOL_SIZE", "3")
        // Ends it after the notes.
        .args(["--grpc", "192.0.2.1:1"])
        .failing();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.contains("\"level\":\"WARN\"") && said.contains("REDIS_POOL_SIZE has no effect"),
        "{said}"
    );
}

#[test]
fn two_sinks_at_once_stop_the_start_as_in_upstream() {
    let folder = Folder::with_rules(RULES);
    let (status, said) =
        start(&folder).env("USE_STATSD", "true").env("USE_PROMETHEUS", "true").failing();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("USE_STATSD and USE_PROMETHEUS exclude each other"), "{said}");
}
