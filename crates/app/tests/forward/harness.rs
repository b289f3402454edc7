//! A throttled service, a document for it, and the client commands.

#![expect(clippy::disallowed_methods, reason = "waits for real processes, in real time")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_throttled_service::{
    ArrivalLog, LimitKind, ServiceLimit, ThrottledService, ThrottledServiceSettings,
};

use crate::process::{Folder, PATIENCE, Serving, Start, binary};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A service that accepts this many operations in any second, a folder with a document for it.
pub(crate) struct Bench {
    pub(crate) folder: Folder,
    pub(crate) service: ThrottledService,
}

impl Bench {
    pub(crate) fn new(per_second: u64) -> Self {
        Self::with_type(per_second, "")
    }

    /// With more keys of the type `orders`, each line indented by four spaces.
    pub(crate) fn with_type(per_second: u64, keys: &str) -> Self {
        let limit = tidegate_forwarder::TargetLimit::per_second(
            tidegate_forwarder::Dimension::Operations,
            per_second,
        );
        let limits = vec![ServiceLimit { limit, kind: LimitKind::SlidingLog }];
        let service = ThrottledService::start(ThrottledServiceSettings::new(limits));
        let service = service.expect("a service");
        let folder = Folder::with_rules("");
        let document = format!(
            "targets:\n  - name: shop\n    limits: [{{operations: {per_second}, per: 1s}}]\n\
             types:\n  - name: orders\n    target: shop\n    slot_lease: 2s\n{keys}    http: {{url: 'http://{}/orders', networks: [127.0.0.1]}}\n",
            service.address()
        );
        folder.write("forward.yaml", &document);
        Bench { folder, service }
    }

    /// A process, not started yet.
    pub(crate) fn start(&self, role: &str) -> Start<'_> {
        bare(&self.folder, role).args(["--forward", "forward.yaml"])
    }

    /// `forward serve` with its queue in the folder.
    pub(crate) fn serve(&self) -> Serving {
        self.start("serve").args(["--set", "data_dir=data"]).serving()
    }

    /// Runs a client command against a forwarder.
    pub(crate) fn run(&self, serving: &mut Serving, words: &[&str], stdin: &str) -> Ran {
        let server = serving.address("forward");
        self.run_at(&server, words, stdin)
    }

    pub(crate) fn run_at(&self, server: &str, words: &[&str], stdin: &str) -> Ran {
        let mut child = Command::new(binary())
            .env_clear()
            .current_dir(self.folder.path("."))
            .arg("forward")
            .args(words)
            .args(["--server", server])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut input = child.stdin.take().expect("piped");
        let text = stdin.to_owned();
        // A thread of its own: the command may write before it has read everything.
        let writer = thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("written");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ran {
            code: output.status.code().expect("it ended by itself"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The arrivals at the service so far.
    pub(crate) fn log(&self) -> ArrivalLog {
        self.service.log()
    }

    /// The ids that the service accepted, each once.
    pub(crate) fn accepted(&self) -> usize {
        let log = self.log();
        let mut ids: Vec<_> = log
            .arrivals()
            .iter()
            .filter(|arrival| arrival.is_accepted())
            .filter_map(|arrival| arrival.id.clone())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }
}

/// `forward serve` or `forward work` without a document.
pub(crate) fn bare<'f>(folder: &'f Folder, role: &str) -> Start<'f> {
    let start =
        Start::command(&binary(), folder, &["forward", role], ("message", "sending records"));
    start.args(["--forward-listen", "127.0.0.1:0"])
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// What it printed, if it ended with this code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let printed = self.with(code);
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }
}

/// Records, one on each line.
pub(crate) fn records(count: usize) -> String {
    (1..=count).map(|number| format!("{{\"body\": \"record {number}\"}}\n")).collect()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came about: {what}");
        thread::sleep(LOOK);
    }
}
