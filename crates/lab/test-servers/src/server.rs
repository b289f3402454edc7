//! One real server: Redis or Valkey, plain or with TLS, users, a socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::authority::{Authority, text};
use crate::eventually;
use crate::port::Port;
use crate::process::Process;
use crate::resp::{Client, Reply};

/// How many ports are tried; another program may take one before the server does.
const STARTS_MAX: usize = 5;

/// The server's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Setup {
    flavour: Flavour,
    sentinel: bool,
    settings: Vec<(String, Vec<String>)>,
    login: Vec<String>,
    second_port: Option<&'static str>,
    unix_socket: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    process: Process,
    files: TempDir,
    // Last: they are given back when the process has ended.
    port: Port,
    second_port: Port,
}

impl Setup {
    /// A plain server.
    pub fn new(flavour: Flavour) -> Self {
        Setup {
            flavour,
            sentinel: false,
            settings: Vec::new(),
            login: Vec::new(),
            second_port: None,
            unix_socket: false,
        }
    }

    /// A plain Redis.
    pub fn redis() -> Self {
        Setup::new(Flavour::Redis)
    }

    /// A plain Valkey.
    pub fn valkey() -> Self {
        Setup::new(Flavour::Valkey)
    }

    /// One line of the server's own configuration.
    pub fn with(mut self, name: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        self.settings.push((name.to_owned(), values));
        self
    }

    /// Requires this password from connections without a user name.
    pub fn with_password(mut self, password: &str) -> Self {
        self.login = vec![password.to_owned()];
        self.with("requirepass", &[password])
    }

    /// Adds a user with these rights; the default user stays.
    pub fn with_user(self, name: &str, password: &str, rights: &[&str]) -> Self {
        let password = format!(">{password}");
        let words: Vec<&str> = [name, "on", &password].iter().chain(rights).copied().collect();
        self.with("user", &words)
    }

    /// Speaks TLS on a second port, with a certificate for 127.0.0.1.
    pub fn with_tls(mut self, authority: &Authority) -> Self {
        let pair = authority.signs("127.0.0.1");
        self.second_port = Some("tls-port");
        self.with("tls-cert-file", &[&text(&pair.certificate)])
            .with("tls-key-file", &[&text(&pair.key)])
            .with("tls-ca-cert-file", &[&text(&authority.roots())])
            .with("tls-auth-clients", &["no"])
    }

    /// Listens on a Unix socket too.
    pub fn with_unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Is a node of a cluster, which knows no other node yet.
    pub fn being_cluster_node(mut self) -> Self {
        self.second_port = Some("cluster-port");
        self.with("cluster-enabled", &["yes"]).with("cluster-node-timeout", &["500"])
    }

    /// Is a sentinel.
    pub fn being_sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Server {
        for _ in 0..STARTS_MAX {
            if let Some(server) = self.try_start(Port::claim(), Port::claim()) {
                return server;
            }
        }
        panic!("{:?} does not start", self.flavour);
    }

    /// Starts it on these ports; `None` if one of them is in use.
    #[track_caller]
    pub fn try_start(&self, port: Port, second_port: Port) -> Option<Server> {
        let files = tempfile::tempdir().unwrap();
        let process = self.run(files.path(), port.number(), second_port.number());
        let mut server = Server { setup: self.clone(), process, files, port, second_port };
        server.is_up().then_some(server)
    }

    fn run(&self, files: &Path, port: u16, second_port: u16) -> Process {
        let configuration = files.join("server.conf");
        // A sentinel writes what it learns into its configuration, and reads it when it starts again.
        if !configuration.is_file() {
            fs::write(&configuration, self.configuration(files, port, second_port)).unwrap();
        }
        let mut command = Command::new(executable(self.flavour));
        command.arg(&configuration);
        if self.sentinel {
            command.arg("--sentinel");
        }
        Process::start(&mut command, &files.join("log"))
    }

    fn configuration(&self, files: &Path, port: u16, second_port: u16) -> String {
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            "protected-mode no".to_owned(),
            format!("dir {}", text(files)),
        ];
        if !self.sentinel {
            lines.extend(["save \"\"", "repl-diskless-sync-delay 0"].map(str::to_owned));
        }
        if let Some(name) = self.second_port {
            lines.push(format!("{name} {second_port}"));
        }
        if self.unix_socket {
            lines.push(format!("unixsocket {}", text(&files.join("socket"))));
        }
        for (name, values) in &self.settings {
            let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
            lines.push(format!("{name} {}", quoted.join(" ")));
        }
        lines.join("\n") + "\n"
    }
}

impl Server {
    /// A plain Redis.
    #[track_caller]
    pub fn redis() -> Self {
        Setup::redis().start()
    }

    /// A plain Valkey.
    #[track_caller]
    pub fn valkey() -> Self {
        Setup::valkey().start()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port of TLS, or of the cluster bus.
    pub fn second_port(&self) -> u16 {
        self.second_port.number()
    }

    /// The path of its Unix socket.
    pub fn unix_socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends one command and gives the answer, which may be an error.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> Reply {
        self.try_ask(words).unwrap_or_else(|| panic!("no answer to {words:?}"))
    }

    /// Sends one command that has to succeed.
    #[track_caller]
    pub fn tell(&self, words: &[&str]) -> Reply {
        let reply = self.ask(words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        reply
    }

    /// Sends one command; `None` if there is no reply.
    pub fn try_ask(&self, words: &[&str]) -> Option<Reply> {
        let mut client = Client::connect(self.port()).ok()?;
        if let [password] = self.setup.login.as_slice() {
            client.ask(&["AUTH", password]).ok()?;
        }
        client.ask(words).ok()
    }

    /// A field of `INFO`, or of `CLUSTER INFO` with that as the section.
    pub fn info(&self, section: &[&str], field: &str) -> Option<String> {
        let text = self.try_ask(section)?.text()?;
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.map(|value| value.trim().to_owned())
    }

    /// Stops the process (`SIGSTOP`): the kernel accepts connections, but nothing answers.
    #[track_caller]
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Continues the stopped process.
    #[track_caller]
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Kills it, as a crash would.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same ports after [`Server::kill`], and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process = self.setup.run(self.files.path(), self.port(), self.second_port());
        assert!(self.is_up(), "it does not start again");
    }

    /// Starts it again with more settings, and does not wait until it answers.
    #[track_caller]
    pub fn restart_with(&mut self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.setup = self.setup.clone().with(name, &[value]);
        }
        fs::remove_file(self.files.path().join("server.conf")).unwrap();
        self.process = self.setup.run(self.files.path(), self.port(), self.second_port());
    }

    /// Waits until it answers, or has ended.
    #[track_caller]
    fn is_up(&mut self) -> bool {
        let id = self.process.id().to_string();
        eventually("that the server answers or ends", || {
            if self.process.has_ended() {
                return Some(false);
            }
            let is_ready = self.try_ask(&["PING"])? == Reply::Text("PONG".to_owned());
            // Another server may answer on the port, while ours exits because the port is in use.
            let is_ours = self.info(&["INFO", "server"], "process_id")? == id;
            (is_ready && is_ours).then_some(true)
        })
    }
}

/// The path from the environment, or the default one.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn executable(flavour: Flavour) -> PathBuf {
    let (variable, installed) = match flavour {
        Flavour::Redis => ("TIDEGATE_REDIS", PathBuf::from("redis-server")),
        Flavour::Valkey => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
            ("TIDEGATE_VALKEY", root.join("target/tools/valkey/valkey-server"))
        }
    };
    let path = std::env::var_os(variable).map_or(installed, PathBuf::from);
    if flavour == Flavour::Valkey {
        assert!(path.is_file(), "{} is missing: run `make tools`", path.display());
    }
    path
}
