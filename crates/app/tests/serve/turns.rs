//! Turns in a leaky bucket, at the gateway of `tidegate serve`.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::json;

use crate::gateway::{as_user, start};
use crate::process::{Folder, Serving};
use crate::upstream::Upstream;

/// Turns that do not come while a test runs.
const HOURLY: &str = "
domain: gateway
descriptors:
  - key: user
    limits:
      - {name: drip, algorithm: leaky_bucket, requests_per_unit: 1, unit: hour, queue: 10}
";

/// A request that waits for its turn. Dropping it is the client's leaving.
fn waits(serving: &mut Serving) -> TcpStream {
    let mut stream = TcpStream::connect(serving.address("gateway")).expect("it accepts");
    stream.write_all(b"GET /x HTTP/1.1\r\nhost: test\r\nx-user: ada\r\n\r\n").expect("sent");
    until_shown(serving, "tidegate_gateway_waiting_requests 1");
    stream
}

/// Waits until a metric has a value.
fn until_shown(serving: &mut Serving, line: &str) {
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        metrics.lines().any(|shown| shown == line).then_some(())
    });
}

#[test]
fn a_turn_is_waited_for_within_wait_max_and_is_the_next_ones_when_its_client_goes() {
    let upstream = Upstream::start();
    let folder = Folder::with_rules(HOURLY);
    // One turn is near enough, and a second is not.
    folder.write("gateway.yaml", &upstream.document("delay: {wait_max: 90m}\n"));
    let mut serving = start(&folder).serving();
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    for gone in 1..=2 {
        let waiting = waits(&mut serving);
        let refused = as_user(&mut serving, "ada");
        assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("rate_limited")));
        drop(waiting);
        let line =
            format!("tidegate_gateway_requests_total{{route=\"all\",outcome=\"gone\"}} {gone}");
        until_shown(&mut serving, &line);
        until_shown(&mut serving, "tidegate_gateway_waiting_requests 0");
    }
    let top = serving.get("debug", "/top").body;
    assert!(top.starts_with("2 refusals by limits") && top.contains("gateway user #drip"), "{top}");
}
