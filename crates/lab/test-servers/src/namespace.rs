//! Two network namespaces joined by a cable, for tests that change packet filters.
//!
//! Nothing outside the two is touched, and both are deleted when the pair is dropped. Needs root and `ip`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The server's address.
pub const SERVER: &str = "10.77.0.1";

/// The first of the client's addresses; the whole network 10.77.0.0/16 may be its.
pub const CLIENT: &str = "10.77.0.2";

static PAIRS: AtomicU32 = AtomicU32::new(0);

/// A server's and a client's network namespace.
#[derive(Debug)]
pub struct NamespacePair {
    server: String,
    client: String,
}

impl NamespacePair {
    /// Makes both. `None`, with a line on standard error, where that is not possible.
    pub fn or_skip(test: &str, programs: &[&str]) -> Option<Self> {
        match Self::new(programs) {
            Ok(pair) => Some(pair),
            Err(reason) => {
                // Not `eprintln!`, which tests swallow.
                let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {reason}");
                None
            }
        }
    }

    fn new(programs: &[&str]) -> Result<Self, String> {
        for program in programs {
            let found = Command::new(program).arg("--version").output();
            found.map_err(|error| format!("there is no {program}: {error}"))?;
        }
        let number = PAIRS.fetch_add(1, Relaxed);
        let name = |side: &str| format!("tidegate-{}-{number}-{side}", std::process::id());
        let pair = NamespacePair { server: name("s"), client: name("c") };
        let (server, client) = (pair.server.as_str(), pair.client.as_str());
        // The end of a cable is moved in under a name that the host does not have.
        let (near, far) = (format!("tg{number}s{}", std::process::id() % 10_000), "tgc");
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&[
            "-n", server, "link", "add", &near, "type", "veth", "peer", "name", far, "netns",
            client,
        ])?;
        for (side, link, address) in [(server, near.as_str(), SERVER), (client, far, CLIENT)] {
            ip(&["-n", side, "link", "set", "lo", "up"])?;
            ip(&["-n", side, "link", "set", link, "up"])?;
            ip(&["-n", side, "address", "add", &format!("{address}/16"), "dev", link])?;
        }
        // Every address of the network is the client's, so that it can flood from many.
        ip(&["-n", client, "route", "add", "local", "10.77.64.0/18", "dev", "lo"])?;
        ip(&["-n", server, "route", "add", "10.77.64.0/18", "via", CLIENT])?;
        Ok(pair)
    }

    /// A command that runs in the server's namespace.
    pub fn on_server(&self, program: impl AsRef<OsStr>) -> Command {
        inside(&self.server, program)
    }

    /// A command that runs in the client's namespace.
    pub fn on_client(&self, program: impl AsRef<OsStr>) -> Command {
        inside(&self.client, program)
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for side in [&self.client, &self.server] {
            let _ = ip(&["netns", "delete", side]);
        }
    }
}

fn inside(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

fn ip(args: &[&str]) -> Result<Output, String> {
    let output = Command::new("ip").args(args).output();
    let output = output.map_err(|error| format!("there is no ip: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("ip {}: {said}", args.join(" ")))
}
