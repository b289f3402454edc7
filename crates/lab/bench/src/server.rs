//! A server in a process of its own, for as long as this value lives.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::stopwatch::Stopwatch;

/// The longest time to start.
const START_MAX: Duration = Duration::from_secs(30);
/// The interval between attempts to connect.
const BEAT: Duration = Duration::from_millis(2);
/// Lines buffered while a server starts.
const LINES_MAX: usize = 64;

/// A door, by its name in the line of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    Grpc,
    Http,
    Redis,
}

impl Door {
    const fn name(self) -> &'static str {
        match self {
            Door::Grpc => "grpc",
            Door::Http => "http",
            Door::Redis => "redis",
        }
    }
}

/// A running server. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    doors: BTreeMap<Door, SocketAddr>,
}

impl Server {
    /// Starts a server that prints the address of each door as a line of JSON, and waits for these
    /// doors.
    ///
    /// # Errors
    /// When it does not start or prints no address.
    pub(crate) fn start(mut command: Command, wanted: &[Door]) -> anyhow::Result<Self> {
        let mut child = spawn(&mut command)?;
        let stderr = child.stderr.take().context("the server has no output")?;
        let (sender, lines) = mpsc::sync_channel(LINES_MAX);
        thread::spawn(move || read(stderr, &sender));
        let mut server = Server { child, doors: BTreeMap::new() };
        let mut output = Vec::new();
        let stopwatch = Stopwatch::start();
        while !wanted.iter().all(|door| server.doors.contains_key(door)) {
            let left = START_MAX.saturating_sub(stopwatch.elapsed());
            let Ok(line) = lines.recv_timeout(left) else {
                bail!("{command:?} does not listen; it said:\n{}", output.join("\n"));
            };
            if let Some((door, address)) = listening(&line) {
                server.doors.insert(door, address);
            }
            output.push(line);
        }
        Ok(server)
    }

    /// Starts a server on a free port, with the arguments that `listen_on` returns for it.
    ///
    /// # Errors
    /// When it does not start or does not listen.
    pub(crate) fn start_at(
        mut command: Command,
        door: Door,
        listen_on: impl FnOnce(SocketAddr) -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut child = spawn(command.args(listen_on(address)?))?;
        let stderr = child.stderr.take().context("the server has no output")?;
        let (sender, lines) = mpsc::sync_channel(LINES_MAX);
        thread::spawn(move || read(stderr, &sender));
        drop(lines);
        let mut server = Server { child, doors: BTreeMap::from([(door, address)]) };
        let stopwatch = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ended with {status}");
            }
            if stopwatch.elapsed() > START_MAX {
                bail!("{command:?} does not listen");
            }
            thread::park_timeout(BEAT);
        }
        Ok(server)
    }

    /// The address of a door.
    ///
    /// # Errors
    /// When the server has no such door.
    pub(crate) fn door(&self, door: Door) -> anyhow::Result<SocketAddr> {
        let address = self.doors.get(&door).copied();
        address.with_context(|| format!("the server has no door {:?}", door.name()))
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

/// Reads all output of a server, so that its writes never block, and sends lines to the receiver.
fn read(output: impl Read, lines: &SyncSender<String>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The receiver may be gone or full; the line is dropped then.
        let _ = lines.try_send(line);
    }
}

/// The line that a server prints when a door is open.
#[derive(Deserialize)]
struct ListeningLine {
    message: String,
    door: String,
    address: SocketAddr,
}

fn listening(line: &str) -> Option<(Door, SocketAddr)> {
    let parsed: ListeningLine = serde_json::from_str(line).ok()?;
    let doors = [Door::Grpc, Door::Http];
    let door = doors.into_iter().find(|door| door.name() == parsed.door)?;
    (parsed.message == "listening").then_some((door, parsed.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that writes this to standard error and keeps running.
    fn saying(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$0\" >&2; exec tail -f /dev/null", text]);
        command
    }

    #[test]
    fn a_server_is_where_it_says_it_is() {
        let line =
            r#"{"level":"INFO","message":"listening","door":"grpc","address":"127.0.0.1:7"}"#;
        let server = Server::start(saying(line), &[Door::Grpc]).unwrap();
        assert_eq!(server.door(Door::Grpc).unwrap(), "127.0.0.1:7".parse().unwrap());
        assert!(server.door(Door::Http).is_err());
    }

    #[test]
    fn a_server_that_ends_early_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such rules >&2"]);
        let error = Server::start(command, &[Door::Grpc]).unwrap_err().to_string();
        assert!(error.ends_with("does not listen; it said:\nno such rules"), "{error}");
    }

    #[test]
    fn a_server_ends_with_its_value() {
        let line = r#"{"message":"listening","door":"http","address":"127.0.0.1:7"}"#;
        let server = Server::start(saying(line), &[Door::Http]).unwrap();
        let process = server.process();
        drop(server);
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
    }

    #[test]
    fn other_lines_name_no_door() {
        assert_eq!(listening("starting"), None);
        assert_eq!(listening(r#"{"message":"gone","door":"grpc","address":"127.0.0.1:7"}"#), None);
        assert_eq!(
            listening(r#"{"message":"listening","door":"debug","address":"127.0.0.1:7"}"#),
            None
        );
    }
}
