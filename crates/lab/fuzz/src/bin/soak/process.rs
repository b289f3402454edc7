//! The service as a child process.

#![expect(clippy::disallowed_methods, reason = "waits for a real process, in real time")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::SoakFailure;
use crate::reload;

/// The memory budget of the counters.
pub(crate) const BUDGET: &str = "16MiB";

/// The longest start, and the longest stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Log lines that wait to be read while the doors are found.
const LINES_MAX: usize = 1_000;

/// Where the doors are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doors {
    pub(crate) http: String,
    pub(crate) grpc: String,
    pub(crate) debug: String,
}

/// The service. Killed when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    doors: Doors,
    folder: TempDir,
}

/// The release binary in the target folder that this one is in.
pub(crate) fn beside_this_one() -> Result<PathBuf, SoakFailure> {
    let this = std::env::current_exe().map_err(|error| SoakFailure::of("who am I", error))?;
    let target = this.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    Ok(target.join("release/tidegate"))
}

impl ServerProcess {
    pub(crate) fn start(binary: &Path) -> Result<Self, SoakFailure> {
        let folder = tempfile::tempdir().map_err(|error| SoakFailure::of("no folder", error))?;
        let rules = folder.path().join("rules.yaml");
        reload::write(&rules, &reload::good(0)).map_err(|error| SoakFailure::of("rules", error))?;
        let mut command = Command::new(binary);
        command.env_clear().current_dir(folder.path()).arg("serve").arg("--rules").arg(&rules);
        command.args(["--log-format", "json", "--log-level", "info", "--workers", "2"]);
        command.args(["--set", &format!("store.memory.budget={BUDGET}")]);
        command.args(["--set", "shutdown.grace=5s"]);
        for door in ["--grpc", "--http", "--debug-listen"] {
            command.args([door, "127.0.0.1:0"]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            SoakFailure::of(&format!("{} (build it first)", binary.display()), error)
        })?;
        let lines = read_lines(&mut child);
        let mut served = ServerProcess { child, doors: Doors::default(), folder };
        served.doors = find_doors(&lines)?;
        Ok(served)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) const fn doors(&self) -> &Doors {
        &self.doors
    }

    pub(crate) fn rules_path(&self) -> PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// Its memory in KiB; an error when the process has ended.
    pub(crate) fn resident_kib(&mut self) -> Result<u64, SoakFailure> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(SoakFailure::of("the process died", status));
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .map_err(|error| SoakFailure::of("/proc", error))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.ok_or_else(|| SoakFailure("/proc tells no memory".to_owned()))
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), SoakFailure> {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        kill.map_err(|error| SoakFailure::of("kill", error))?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Ok(Some(status)) => return judge(status),
                Err(error) => return Err(SoakFailure::of("the process", error)),
            }
        }
        Err(SoakFailure(format!("it does not stop within {PATIENCE:?}")))
    }
}

fn judge(status: ExitStatus) -> Result<(), SoakFailure> {
    if status.success() { Ok(()) } else { Err(SoakFailure::of("it stopped badly", status)) }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log to its end, so that writing never blocks the service.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (send, lines) = sync_channel(LINES_MAX);
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains("panicked") {
                    eprintln!("{line}");
                }
                // The receiver is gone once the doors are found.
                let _ = send.try_send(line);
            }
        });
    }
    lines
}

fn find_doors(lines: &Receiver<String>) -> Result<Doors, SoakFailure> {
    let mut doors = Doors::default();
    let deadline = Instant::now() + PATIENCE;
    while [&doors.http, &doors.grpc, &doors.debug].into_iter().any(String::is_empty) {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).map_err(|error| SoakFailure::of("no doors", error))?;
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = line["address"].as_str().unwrap_or_default().to_owned();
        match (line["message"].as_str(), line["door"].as_str()) {
            (Some("listening"), Some("http")) => doors.http = address,
            (Some("listening"), Some("grpc")) => doors.grpc = address,
            (Some("listening"), Some("debug")) => doors.debug = address,
            _ => {}
        }
    }
    Ok(doors)
}
