//! A real etcd server.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::eventually;
use crate::http::exchange;
use crate::port::Port;
use crate::process::Process;

/// A running etcd of one node, without TLS and without users.
#[derive(Debug)]
pub struct EtcdServer {
    process: Process,
    files: TempDir,
    // Last: they are given back when the process has ended.
    port: Port,
    peers: Port,
}

impl EtcdServer {
    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let (port, peers) = (Port::claim(), Port::claim());
        let process = run(files.path(), &port, &peers);
        let mut server = EtcdServer { process, files, port, peers };
        server.wait();
        server
    }

    /// The port of its clients.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Calls its JSON gateway; `path` begins behind `/v3/`.
    #[track_caller]
    pub fn call(&self, path: &str, body: &str) -> String {
        let (status, answer) = exchange(self.port(), "POST", &format!("/v3/{path}"), body).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Kills it, as a crash would.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again after [`EtcdServer::kill`], and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process = run(self.files.path(), &self.port, &self.peers);
        self.wait();
    }

    #[track_caller]
    fn wait(&mut self) {
        eventually("that etcd answers", || {
            assert!(!self.process.has_ended(), "etcd does not start");
            let health = exchange(self.port.number(), "GET", "/health", "").ok()?;
            health.1.contains("true").then_some(())
        });
    }
}

fn run(files: &Path, port: &Port, peers: &Port) -> Process {
    let client = format!("http://127.0.0.1:{}", port.number());
    let peer = format!("http://127.0.0.1:{}", peers.number());
    let mut command = Command::new(program());
    command.arg("--data-dir").arg(files.join("data"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    Process::start(&mut command, &files.join("log"))
}

#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn program() -> PathBuf {
    std::env::var_os("TIDEGATE_ETCD").map_or_else(|| "/usr/bin/etcd".into(), PathBuf::from)
}
