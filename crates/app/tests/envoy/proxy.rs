//! A real Envoy in front of a service, asking Tidegate.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::bootstrap::Setup;
use crate::client::Ask;
use crate::process::Process;
use crate::tidegate::Tidegate;
use crate::upstream::Upstream;

/// A running Envoy.
#[derive(Debug)]
pub(crate) struct Proxy {
    _process: Process,
    _upstream: Upstream,
    _files: TempDir,
    admin: SocketAddr,
    entry: SocketAddr,
}

impl Proxy {
    /// Asks this Tidegate about the user of each request.
    #[track_caller]
    pub(crate) fn asking(tidegate: &Tidegate) -> Self {
        Proxy::start(&Setup::new(tidegate.place()))
    }

    /// Asks this Tidegate, with other settings.
    #[track_caller]
    pub(crate) fn asking_with(tidegate: &Tidegate, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::new(tidegate.place());
        change(&mut setup);
        Proxy::start(&setup)
    }

    #[track_caller]
    fn start(setup: &Setup) -> Self {
        let upstream = Upstream::start();
        let bootstrap = setup.bootstrap(upstream.port()).to_string();
        // Every JSON text is a YAML text.
        Proxy::start_with(upstream, &bootstrap)
    }

    /// With a bootstrap in YAML, whose listener for clients is called `entry`.
    #[track_caller]
    pub(crate) fn start_with(upstream: Upstream, bootstrap: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str| files.path().join(name);
        fs::write(path("envoy.yaml"), bootstrap).unwrap();
        let mut command = Command::new(executable());
        // Without hot restart, several Envoys on one machine do not know of each other.
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "info"]);
        command.arg("--config-path").arg(path("envoy.yaml"));
        command.arg("--admin-address-path").arg(path("admin"));
        command.env_clear();
        let process = Process::start("envoy", &mut command);
        process.waits_for("that it starts its workers", |line| {
            line.contains("starting workers").then_some(())
        });
        let admin = fs::read_to_string(path("admin")).unwrap().trim().parse().unwrap();
        let entry = entry(admin);
        Proxy { _process: process, _upstream: upstream, _files: files, admin, entry }
    }

    /// A GET of the root.
    pub(crate) fn get(&self) -> Ask {
        self.get_path("/")
    }

    /// A GET of this path.
    pub(crate) fn get_path(&self, path: &str) -> Ask {
        Ask::get(self.entry, path)
    }

    /// A GET of the root by this user.
    pub(crate) fn get_as(&self, user: &str) -> Ask {
        self.get().with("x-user", user)
    }

    /// One of Envoy's counters. Those that never grew are not there.
    #[track_caller]
    pub(crate) fn count_of(&self, name: &str) -> u64 {
        let text = Ask::get(self.admin, &format!("/stats?filter=^{name}$")).send().body;
        let value = text.trim().rsplit_once(": ").map(|(_, value)| value.parse().unwrap());
        value.unwrap_or(0)
    }

    /// How often Envoy's rate limit filter came to this end: `ok`, `over_limit`,
    /// `error` or `failure_mode_allowed`.
    #[track_caller]
    pub(crate) fn asked(&self, end: &str) -> u64 {
        self.count_of(&format!("cluster.service.ratelimit.{end}"))
    }

    /// Whether Envoy's health checks of Tidegate say that it is well.
    #[track_caller]
    pub(crate) fn finds_tidegate_healthy(&self) -> bool {
        let clusters = Ask::get(self.admin, "/clusters?format=json").send().body;
        let clusters: Value = serde_json::from_str(&clusters).unwrap();
        let clusters = clusters["cluster_statuses"].as_array().unwrap();
        let tidegate = clusters.iter().find(|cluster| cluster["name"] == "tidegate").unwrap();
        let health = &tidegate["host_statuses"][0]["health_status"];
        health["eds_health_status"] == "HEALTHY" && health["failed_active_health_check"] != true
    }
}

/// Where clients of the listener `entry` connect to.
#[track_caller]
fn entry(admin: SocketAddr) -> SocketAddr {
    let listeners = Ask::get(admin, "/listeners?format=json").send().body;
    let listeners: Value = serde_json::from_str(&listeners).unwrap();
    let listeners = listeners["listener_statuses"].as_array().unwrap();
    let entry = listeners.iter().find(|listener| listener["name"] == "entry").unwrap();
    let address = &entry["local_address"]["socket_address"];
    let (host, port) = (address["address"].as_str(), &address["port_value"]);
    format!("{}:{port}", host.unwrap()).parse().unwrap()
}

/// Where `tools/install-envoy` puts it, or where the environment says it is.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn executable() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/envoy");
    let path = std::env::var_os("TIDEGATE_ENVOY").map_or(installed, PathBuf::from);
    assert!(
        path.is_file(),
        "{} is missing: run `make tools`, or set TIDEGATE_ENVOY to the path of an Envoy",
        path.display()
    );
    path
}
