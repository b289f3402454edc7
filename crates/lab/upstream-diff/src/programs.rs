//! Starts both programs on the same files and environment.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tidegate_test_servers::eventually;
use tidegate_test_servers::port::Port;
use tidegate_test_servers::server::Server;

use crate::ask::{Client, http};

/// Where Tidegate keeps counters; upstream always uses a Redis of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A Redis of its own.
    Redis,
    /// Memory.
    Memory,
}

/// The programs, and a Redis for each.
#[derive(Debug)]
pub struct Programs {
    upstream: PathBuf,
    tidegate: PathBuf,
    redis: [Server; 2],
}

/// One program that runs.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    child: Child,
    log: PathBuf,
    pub(crate) http: u16,
    pub(crate) debug: u16,
    pub(crate) grpc: u16,
    pub(crate) client: Client,
    _ports: [Port; 3],
}

/// Both programs on the same rules.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) upstream: RunningProgram,
    pub(crate) tidegate: RunningProgram,
    _folder: TempDir,
}

/// A rule file: its name and its text.
pub(crate) type RuleFile<'f> = (&'f str, &'f str);
/// Environment variables.
pub(crate) type Variables<'v> = [(&'v str, &'v str)];

impl Programs {
    /// Finds both programs and starts a Redis for each.
    ///
    /// # Errors
    /// When a program is missing; the message says how to get it.
    pub fn find() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        #[expect(clippy::disallowed_methods, reason = "this program is started by hand")]
        let given = env::var_os("TIDEGATE_UPSTREAM").map(PathBuf::from);
        let upstream = given.unwrap_or_else(|| root.join("target/tools/ratelimit"));
        let help = "tools/install-upstream builds it, and needs Go";
        ensure!(upstream.is_file(), "there is no {}: {help}", upstream.display());
        let this = env::current_exe().context("cannot find this program")?;
        let tidegate = this.with_file_name("tidegate");
        let help = "cargo build -p tidegate-app builds it";
        ensure!(tidegate.is_file(), "there is no {}: {help}", tidegate.display());
        Ok(Programs { upstream, tidegate, redis: [Server::redis(), Server::redis()] })
    }

    /// Starts both; counters begin at zero.
    ///
    /// # Errors
    /// When one does not start.
    pub(crate) fn start(
        &self,
        files: &[RuleFile<'_>],
        variables: &Variables<'_>,
        backend: Backend,
    ) -> anyhow::Result<Pair> {
        for redis in &self.redis {
            redis.ask(&["FLUSHALL"]);
        }
        let folder = TempDir::new()?;
        let config = folder.path().join("runtime/ratelimit/config");
        fs::create_dir_all(&config)?;
        for (name, text) in files {
            fs::write(config.join(name), text)?;
        }
        let [of_upstream, of_tidegate] = &self.redis;
        let upstream = Command::new(&self.upstream);
        let mut tidegate = Command::new(&self.tidegate);
        tidegate.args(["serve", "--compat"]);
        let of_tidegate = (backend == Backend::Redis).then_some(of_tidegate);
        let upstream =
            RunningProgram::start(upstream, &folder, "upstream", Some(of_upstream), variables)?;
        // Its statistics are read at its debug port; the listener for statsd belongs to upstream.
        let is_shared = |variable: &&(&str, &str)| variable.0 != "USE_STATSD";
        let shared: Vec<(&str, &str)> = variables.iter().filter(is_shared).copied().collect();
        let tidegate = RunningProgram::start(tidegate, &folder, "tidegate", of_tidegate, &shared)?;
        Ok(Pair { upstream, tidegate, _folder: folder })
    }
}

impl RunningProgram {
    fn start(
        mut command: Command,
        folder: &TempDir,
        name: &str,
        redis: Option<&Server>,
        variables: &Variables<'_>,
    ) -> anyhow::Result<Self> {
        let log = folder.path().join(name);
        let ports = [Port::claim(), Port::claim(), Port::claim()];
        let [http, grpc, debug] = ports.each_ref().map(Port::number);
        let file = File::create(&log)?;
        let root = folder.path().join("runtime").display().to_string();
        command
            .env_clear()
            .env("RUNTIME_ROOT", folder.path().join("runtime"))
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .env("LOG_LEVEL", "info")
            .env("USE_STATSD", "false")
            .env("HOST", "127.0.0.1")
            .env("GRPC_HOST", "127.0.0.1")
            .env("DEBUG_HOST", "127.0.0.1")
            .env("PORT", http.to_string())
            .env("GRPC_PORT", grpc.to_string())
            .env("DEBUG_PORT", debug.to_string());
        if let Some(redis) = redis {
            command
                .env("REDIS_SOCKET_TYPE", "tcp")
                .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
        }
        command
            .envs(variables.iter().map(|(name, value)| (*name, value.replace("{root}", &root))))
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file);
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        let client = Client::new(grpc, http)?;
        Ok(RunningProgram { child, log, http, debug, grpc, client, _ports: ports })
    }

    /// Waits until it answers, or has ended.
    pub(crate) fn wait(&mut self) {
        eventually("an answer or the end", || {
            let ended = self.has_ended();
            let ready = || {
                let answers = http(self.http, "GET", "/healthcheck", "").is_ok();
                let debug = http(self.debug, "GET", "/rlconfig", "").is_ok();
                answers && debug && std::net::TcpStream::connect(("127.0.0.1", self.grpc)).is_ok()
            };
            (ended || ready()).then_some(())
        });
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines that it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A page of the debug port.
    pub(crate) fn debug_page(&self, path: &str) -> anyhow::Result<String> {
        Ok(http(self.debug, "GET", path, "")?.body)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    /// Waits until both answer, or have ended.
    pub(crate) fn wait(&mut self) {
        self.upstream.wait();
        self.tidegate.wait();
    }
}
