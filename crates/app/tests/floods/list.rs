//! The list of floods: from refused connections to the kernel, and whole again after every loss.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_test_servers::namespace::{NamespacePair, SERVER};

use crate::{CONNECT, binary, printed};

const PATIENCE: Duration = Duration::from_secs(60);

/// Opens connections as fast as it can until its input ends, and is reset.
const FLOOD: &str = "
import socket, sys, select
server, port, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
while not select.select([sys.stdin], [], [], 0)[0]:
    client = socket.socket()
    client.settimeout(0.05)
    client.bind((source, 0))
    try:
        client.connect((server, port))
        client.recv(1)
    except OSError:
        pass
    client.close()
";

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in its namespace with a list of floods.
struct FloodedServer {
    folder: TempDir,
    port: u16,
    _server: Running,
}

impl FloodedServer {
    fn start(pair: &NamespacePair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("rules.yaml"), "domain: d\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]\n").unwrap();
        let mut command = pair.on_server(binary());
        command.args([
            "serve",
            "--log-format",
            "json",
            "--workers",
            "1",
            "--rules",
            &path("rules.yaml"),
        ]);
        command.args(["--http", &format!("{SERVER}:8080"), "--grpc", &format!("{SERVER}:0")]);
        command.args(["--debug-listen", "127.0.0.1:0"]);
        for set in [
            "switches.connection=enforce",
            "connections.rate=1",
            "connections.burst=2",
            "floods.list=enforce",
            "floods.rate=5",
            "floods.seconds=2",
        ] {
            command.args(["--set", set]);
        }
        command.arg("--set").arg(format!("floods.socket={}", path("floods.sock")));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut lines = String::new();
        while !lines.contains("\"door\":\"debug\"") {
            assert!(log.read_line(&mut lines).unwrap() > 0, "it ended:\n{lines}");
        }
        thread::spawn(move || log.read_to_end(&mut Vec::new()));
        let port = SocketAddr::from(([10, 77, 0, 1], 8080)).port();
        FloodedServer { folder, port, _server: Running(child) }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("floods.sock")
    }
}

fn guard(pair: &NamespacePair, socket: &Path) -> Running {
    let mut command = pair.on_server(binary());
    command.arg("guard").arg("--socket").arg(socket).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// The list in the kernel, once it has what is looked for.
#[track_caller]
fn kernel_list(pair: &NamespacePair, what: &str, holds: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let output = pair.on_server("nft").args(["list", "ruleset"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if holds(&text) {
            return text;
        }
        assert!(Instant::now() < end, "{what} did not happen:\n{text}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_flood_reaches_the_kernel_heals_after_every_loss_and_leaves_others_alone() {
    let Some(pair) = NamespacePair::or_skip("the list of floods", &["nft"]) else { return };
    printed(pair.on_server("nft").args(["add", "table", "inet", "other"]));
    let server = FloodedServer::start(&pair);
    let guarding = guard(&pair, &server.socket());
    let flooding = "10.77.100.66";
    let mut flood = pair.on_client("python3");
    flood.args(["-c", FLOOD, SERVER, &server.port.to_string(), flooding]).stdin(Stdio::piped());
    let mut flood = Running(flood.spawn().unwrap());

    let listed = kernel_list(&pair, "the listing", |text| text.contains(flooding));
    assert!(listed.contains("timeout 1m") && !listed.contains("timeout 2m"), "{listed}");
    assert!(listed.contains("table inet other"), "{listed}");
    drop(flood.0.stdin.take());
    flood.0.wait().unwrap();
    // Others are served, and the flooding address is not.
    let mut connect = pair.on_client("python3");
    connect.args(["-c", CONNECT, SERVER, &server.port.to_string(), "1", "10.77.100.1", flooding]);
    assert_eq!(printed(&mut connect), "1 0\n");

    printed(pair.on_server("nft").args(["delete", "table", "inet", "tidegate_list"]));
    kernel_list(&pair, "the return of a deleted table", |text| text.contains(flooding));
    printed(pair.on_server("nft").args(["flush", "set", "inet", "tidegate_list", "hosts4"]));
    drop(guarding);
    let _guarding = guard(&pair, &server.socket());
    kernel_list(&pair, "the list of a new guard", |text| text.contains(flooding));
}

#[test]
fn the_socket_is_for_the_user_of_the_server_only() {
    let Some(pair) = NamespacePair::or_skip("the socket of the list", &["nft"]) else { return };
    let server = FloodedServer::start(&pair);
    let read = "
import os, socket, sys
if len(sys.argv) > 2: os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
print(client.recv(13).decode())
";
    let ask = |more: &[&str]| {
        Command::new("python3").args(["-c", read]).arg(server.socket()).args(more).output().unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&ask(&[]).stdout), "tidegate-list\n");
    // Its file keeps others out; with a lax mode the server does.
    for mode in ["600", "777"] {
        printed(Command::new("chmod").arg("755").arg(server.folder.path()));
        printed(Command::new("chmod").arg(mode).arg(server.socket()));
        let other = ask(&["other"]);
        assert!(!String::from_utf8_lossy(&other.stdout).contains("tidegate"), "{mode}");
    }
}
