//! The real `tidegate serve`, on ports of its own and with rules of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::Process;

/// Where a door is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What to start Tidegate with. Keeps its files, so that it can be started again.
#[derive(Debug)]
#[must_use]
pub(crate) struct Launch {
    files: TempDir,
    grpc: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A running Tidegate.
#[derive(Debug)]
pub(crate) struct Tidegate {
    process: Process,
    launch: Launch,
    place: Place,
}

impl Launch {
    /// With these rules.
    pub(crate) fn with(rules: &str) -> Self {
        let mut launch = Launch::bare();
        let path = launch.files.path().join("rules.yaml");
        fs::write(&path, rules).unwrap();
        launch.arguments.extend(["--rules".to_owned(), path.display().to_string()]);
        launch
    }

    /// Without rules; somebody has to say where they are.
    pub(crate) fn bare() -> Self {
        let grpc = "127.0.0.1:0".to_owned();
        let files = tempfile::tempdir().unwrap();
        Launch { files, grpc, arguments: Vec::new(), environment: Vec::new() }
    }

    /// A directory that lasts as long as this.
    pub(crate) fn directory(&self) -> &Path {
        self.files.path()
    }

    /// Listens there for Envoy.
    pub(crate) fn listening(mut self, grpc: &str) -> Self {
        grpc.clone_into(&mut self.grpc);
        self
    }

    /// Listens on a Unix socket for Envoy.
    pub(crate) fn listening_on_socket(self) -> Self {
        let path = self.files.path().join("grpc.sock");
        self.listening(&format!("unix:{}", path.display()))
    }

    /// With one more argument.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// With a field of the configuration.
    pub(crate) fn set(self, field: &str, value: &str) -> Self {
        self.argument("--set").argument(&format!("{field}={value}"))
    }

    /// With a variable of the environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it, and waits until it listens for Envoy.
    #[track_caller]
    pub(crate) fn start(self) -> Tidegate {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--log-format", "json", "--http", "127.0.0.1:0"]);
        command.args(["--debug-listen", "127.0.0.1:0", "--grpc", &self.grpc]);
        command.args(&self.arguments);
        command.env_clear().envs(self.environment.iter().cloned());
        command.current_dir(self.files.path());
        let process = Process::start("tidegate", &mut command);
        let place = process.waits_for("where it listens for gRPC", listens_for_grpc);
        Tidegate { process, launch: self, place }
    }
}

impl Tidegate {
    /// Where Envoy finds it.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    /// A directory that lasts as long as this.
    pub(crate) fn directory(&self) -> &Path {
        self.launch.directory()
    }

    /// Replaces the rules atomically.
    pub(crate) fn change_rules(&self, rules: &str) {
        let new = self.directory().join("new");
        fs::write(&new, rules).unwrap();
        fs::rename(&new, self.directory().join("rules.yaml")).unwrap();
    }

    /// Waits until it has logged something with this text.
    #[track_caller]
    pub(crate) fn waits_for_complaint(&self, text: &str) {
        self.process.waits_for(text, |line| line.contains(text).then_some(()));
    }

    /// Stops it as a supervisor would. What comes back starts it again in the same place.
    #[track_caller]
    pub(crate) fn stop(mut self) -> (ExitStatus, Launch) {
        let status = self.process.stop();
        let launch = match &self.place {
            Place::Tcp(address) => self.launch.listening(&address.to_string()),
            Place::Unix(_) => self.launch,
        };
        (status, launch)
    }
}

/// The place in the line that says that the gRPC door listens.
fn listens_for_grpc(line: &str) -> Option<Place> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["message"] != "listening" || line["door"] != "grpc" {
        return None;
    }
    let address = line["address"].as_str()?;
    match address.strip_prefix("unix:") {
        Some(path) => Some(Place::Unix(PathBuf::from(path))),
        None => Some(Place::Tcp(address.parse().ok()?)),
    }
}
