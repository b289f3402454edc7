//! The real binary, started for one test and ended with it.

#![expect(clippy::disallowed_methods, reason = "waits for a real process, in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take: the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Log lines that wait to be read.
const LINES_MAX: usize = 10_000;

pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {name: calls, requests_per_unit: 2, unit: hour}
";

/// The binary that was built with this program: cargo names it to tests; for an example it lies one
/// folder above.
pub(crate) fn binary() -> PathBuf {
    let beside = || {
        let own = std::env::current_exe().expect("a program has a path");
        own.ancestors().nth(2).expect("a folder above").join("tidegate")
    };
    option_env!("CARGO_BIN_EXE_tidegate").map_or_else(beside, PathBuf::from)
}

/// A folder with rules, and whatever else a test puts there.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn with_rules(text: &str) -> Self {
        let folder = Folder { folder: tempfile::tempdir().expect("a folder") };
        folder.write("rules.yaml", text);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        // Replaced as editors do, so that no half of it is ever read.
        let aside = self.path(".aside");
        fs::write(&aside, text).expect("written");
        fs::rename(&aside, self.path(name)).expect("renamed");
    }
}

/// How to start the binary.
pub(crate) struct Start<'f> {
    folder: &'f Folder,
    command: Command,
    /// The member and the value of the line that is logged last.
    ready: (&'static str, &'static str),
}

impl<'f> Start<'f> {
    /// On free ports, with the folder's rules, and nothing from outside.
    pub(crate) fn new(folder: &'f Folder) -> Self {
        let rules = folder.path("rules.yaml");
        Self::bare(folder).args(["--rules".as_ref(), rules.as_os_str()])
    }

    /// The same without rules.
    pub(crate) fn bare(folder: &'f Folder) -> Self {
        Self::of(&binary(), folder)
    }

    /// Without rules, another binary than the one that was just built.
    pub(crate) fn of(binary: &Path, folder: &'f Folder) -> Self {
        let mut start = Self::command(binary, folder, &["serve"], ("door", "debug"));
        for door in ["--grpc", "--http", "--debug-listen"] {
            start.command.args([door, "127.0.0.1:0"]);
        }
        start
    }

    /// A command that serves, with nothing from outside. `ready` is a member of the line that it logs last.
    pub(crate) fn command(
        binary: &Path,
        folder: &'f Folder,
        words: &[&str],
        ready: (&'static str, &'static str),
    ) -> Self {
        let mut command = Command::new(binary);
        command.env_clear().current_dir(folder.folder.path()).args(words);
        command.args(["--log-format", "json", "--workers", "2"]);
        Start { folder, command, ready }
    }

    pub(crate) fn args<A: AsRef<std::ffi::OsStr>>(
        mut self,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it, and waits until the last door is open.
    pub(crate) fn serving(mut self) -> Serving {
        let _ = self.folder;
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (send, lines) = sync_channel(LINES_MAX);
        let stderr = child.stderr.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut serving = Serving { child, lines, seen: Vec::new() };
        let (member, value) = self.ready;
        serving.wait_for(|line| line[member] == value);
        serving
    }

    /// Runs it to its end; for starts that fail.
    pub(crate) fn failing(mut self) -> (ExitStatus, String) {
        let output = self.command.output().expect("the binary starts");
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The binary, serving. Killed when dropped.
pub(crate) struct Serving {
    child: Child,
    lines: Receiver<String>,
    /// What it logged so far.
    pub(crate) seen: Vec<Value>,
}

impl Serving {
    /// Waits for a line of the log.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(seen) = self.seen.iter().find(|line| wanted(line)) {
            return seen.clone();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let line: Value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("the line never came; these did: {:#?}", self.seen)
                }
            }
        }
    }

    /// Where a door listens.
    pub(crate) fn address(&mut self, door: &str) -> String {
        let line = self.wait_for(|line| line["message"] == "listening" && line["door"] == door);
        line["address"].as_str().expect("an address").to_owned()
    }

    pub(crate) fn get(&mut self, door: &str, path: &str) -> Answer {
        self.ask(door, "GET", path, &[], "")
    }

    pub(crate) fn ask(
        &mut self,
        door: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let address = self.address(door);
        let mut headers = headers.to_vec();
        // These doors answer to known names only.
        if ["debug", "forward"].contains(&door) && !headers.iter().any(|(name, _)| *name == "host")
        {
            headers.push(("host", "localhost"));
        }
        let stream = TcpStream::connect(address).expect("it accepts");
        exchange(stream, method, path, &headers, body)
    }

    /// Asks for a user of the shop.
    pub(crate) fn check(&mut self, user: &str) -> Answer {
        let entries = json!([{"key": "user", "value": user}]);
        let body = json!({"domain": "shop", "descriptors": [{"entries": entries}]});
        let headers = [("content-type", "application/json")];
        self.ask("http", "POST", "/v1/check", &headers, &body.to_string())
    }

    /// Waits until an answer is as wanted.
    pub(crate) fn until(&mut self, mut ask: impl FnMut(&mut Self) -> Option<()>) {
        let deadline = Instant::now() + PATIENCE;
        while ask(self).is_none() {
            assert!(Instant::now() < deadline, "it never came about; logged: {:#?}", self.seen);
            thread::yield_now();
        }
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "{kill}");
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end; logged: {:#?}", self.seen);
            thread::yield_now();
        };
        let mut printed = String::new();
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut printed).expect("text");
        (status, printed)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One request and its answer on a connection that closes after it.
pub(crate) fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let length = body.len();
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request.push_str("host: test\r\n");
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("\r\n{body}"));
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

/// Whether anything listens there.
pub(crate) fn is_open(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Writes a file and the folders above it.
pub(crate) fn write_below(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder above")).expect("folders");
    fs::write(path, text).expect("written");
}
