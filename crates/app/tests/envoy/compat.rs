//! A migration: the rules, the environment and the Envoy of envoyproxy/ratelimit
//! as they are, with Tidegate in its place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::bootstrap::header;
use crate::eventually;
use crate::proxy::Proxy;
use crate::tidegate::Launch;

/// The kinds of rules that the documentation of envoyproxy/ratelimit shows: by
/// the two clusters, by path, without a limit, and one limit in place of another.
const RULES: &str = "
domain: rl
descriptors:
  - key: category
    value: account
    rate_limit:
      replaces:
        - name: mock
      unit: year
      requests_per_unit: 3
  - key: source_cluster
    value: proxy
    descriptors:
      - key: destination_cluster
        value: service
        rate_limit:
          name: mock
          unit: year
          requests_per_unit: 2
  - key: path
    rate_limit:
      unit: year
      requests_per_unit: 1
  - key: path
    value: /open
    rate_limit:
      unlimited: true
  - key: user
    rate_limit:
      unit: YEAR
      requests_per_unit: 3
";

/// The environment of a deployment, with ports that are free here.
fn deployed(runtime: &Path) -> Launch {
    Launch::bare()
        .argument("--compat")
        .variable("USE_STATSD", "false")
        .variable("REDIS_SOCKET_TYPE", "tcp")
        .variable("LOG_LEVEL", "info")
        .variable("RUNTIME_ROOT", &runtime.display().to_string())
        .variable("RUNTIME_SUBDIRECTORY", "ratelimit")
        .variable("GRPC_HOST", "127.0.0.1")
        .variable("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
}

/// Puts rules below a directory as the runtime of envoyproxy/ratelimit has them.
fn lay_out(version: &Path, rules: &str) {
    let directory = version.join("ratelimit/config");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("rl.yaml"), rules).unwrap();
}

fn clusters() -> Value {
    json!([{"source_cluster": {}}, {"destination_cluster": {}}])
}

#[test]
fn rules_and_environment_of_a_deployment_work_as_they_are() {
    let runtime = tempfile::tempdir().unwrap();
    let root = runtime.path().join("current");
    lay_out(&runtime.path().join("one"), RULES);
    symlink("one", &root).unwrap();
    let tidegate = deployed(&root).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"domain": "rl"});
        setup.rate_limits = json!([
            {"actions": clusters()},
            {"actions": [header("x-category", "category")]},
        ]);
    });
    assert_eq!(envoy.get().statuses(3), [200, 200, 429]);
    // This limit stands in for the other, which is used up.
    let account = envoy.get().with("x-category", "account");
    let first = account.send();
    assert_eq!((first.status, first.field("ratelimit-limit")), (200, Some("3")));
    assert_eq!(account.statuses(3), [200, 200, 429]);

    // Rules change as they do there: the root is a link that is swapped.
    lay_out(&runtime.path().join("two"), &RULES.replace("unit: 2", "unit: 5"));
    symlink("two", runtime.path().join("next")).unwrap();
    fs::rename(runtime.path().join("next"), &root).unwrap();
    eventually("the new limit", || {
        (envoy.get().send().field("ratelimit-limit") == Some("5")).then_some(())
    });
}

#[test]
fn a_refused_request_is_charged_to_every_limit_as_it_was() {
    let runtime = tempfile::tempdir().unwrap();
    lay_out(runtime.path(), RULES);
    let tidegate = deployed(runtime.path()).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"domain": "rl"});
        setup.rate_limits = json!([
            {"actions": [header("x-path", "path")]},
            {"actions": [header("x-user", "user")]},
        ]);
    });
    let login = envoy.get_as("ada").with("x-path", "/login");
    assert_eq!(login.statuses(3), [200, 429, 429]);
    // The refusals used up what this user had.
    assert_eq!(envoy.get_as("ada").status(), 429);
    assert_eq!(envoy.get_as("bob").status(), 200);
    assert_eq!(envoy.get().with("x-path", "/open").statuses(3), [200; 3]);
}
