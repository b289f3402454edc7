//! The example that users start from: its files as they are, but for the ports.

use std::fs;
use std::path::Path;

use crate::proxy::Proxy;
use crate::tidegate::{Launch, Place};
use crate::upstream::Upstream;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Puts other text in a place that is there once.
#[track_caller]
fn instead(text: &str, of: &str, put: &str) -> String {
    assert_eq!(text.matches(of).count(), 1, "{of} is not there once");
    text.replace(of, put)
}

#[test]
fn the_example_limits_as_it_says() {
    let tidegate = Launch::with(&example("rules.yaml")).start();
    let Place::Tcp(address) = tidegate.place() else { panic!("{tidegate:?}") };
    let upstream = Upstream::start();
    let bootstrap = example("envoy.yaml");
    let bootstrap =
        instead(&bootstrap, "port_value: 8081", &format!("port_value: {}", address.port()));
    let bootstrap = instead(&bootstrap, "port_value: 10000", "port_value: 0");
    let bootstrap = instead(&bootstrap, "port_value: 9901", "port_value: 0");
    // The service that comes with it answers on a port of its own; here it is another.
    let bootstrap =
        instead(&bootstrap, "port_value: 10001} # the demo", "port_value: 0} # the demo");
    let bootstrap =
        instead(&bootstrap, "port_value: 10001", &format!("port_value: {}", upstream.port()));
    // Envoy is patient on a busy machine.
    let bootstrap = instead(&bootstrap, "timeout: 0.1s", "timeout: 30s");
    let envoy = Proxy::start_with(upstream, &bootstrap);
    let login = envoy.get_path("/login").with("x-user", "ada");
    assert_eq!(login.statuses(4), [200, 200, 200, 429]);
    let answer = envoy.get_path("/").with("x-user", "ada").send();
    assert_eq!(answer.status, 200);
    assert!(answer.field("x-ratelimit-limit").is_some(), "{answer:?}");
}
