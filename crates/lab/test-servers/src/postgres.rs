//! A real PostgreSQL server.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::getuid;
use tempfile::TempDir;

use crate::eventually;
use crate::port::Port;
use crate::process::Process;

/// A running server. Its superuser is `tidegate`, without a password, on loopback.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    files: TempDir,
    // Last: it is given back when the process has ended.
    port: Port,
}

static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());

impl PostgresServer {
    /// Creates a database cluster and starts it.
    #[track_caller]
    pub fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        if let Some((user, group)) = other_user() {
            chown(files.path(), Some(user), Some(group)).unwrap();
        }
        let mut initdb = command("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--username=tidegate", "--pgdata"]);
        initdb.arg(files.path().join("data")).current_dir(files.path());
        let made = initdb.output().unwrap_or_else(|error| panic!("{initdb:?}: {error}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = Port::claim();
        let process = run(files.path(), &port);
        let mut server = PostgresServer { process, files, port };
        server.wait();
        server
    }

    /// A server that the tests of this process share. It ends with its last user.
    #[track_caller]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(PostgresServer::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its connection string.
    pub fn url(&self) -> String {
        format!("postgres://tidegate@127.0.0.1:{}/postgres", self.port.number())
    }

    /// Ends it as a crash would: no checkpoint, no goodbye to its clients.
    #[track_caller]
    pub fn kill(&mut self) {
        // Children that lose their parent end by themselves; a new parent waits for them.
        self.process.kill();
    }

    /// Starts it again after [`PostgresServer::kill`], and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        let lock = self.files.path().join("data/postmaster.pid");
        eventually("that the killed server's children have ended", || {
            let _ = fs::remove_file(&lock);
            self.process = run(self.files.path(), &self.port);
            self.is_up().then_some(())
        });
    }

    #[track_caller]
    fn wait(&mut self) {
        assert!(self.is_up(), "PostgreSQL does not start");
    }

    /// Waits until it answers, or has ended.
    #[track_caller]
    fn is_up(&mut self) -> bool {
        let port = self.port.number().to_string();
        eventually("that PostgreSQL answers or ends", || {
            if self.process.has_ended() {
                return Some(false);
            }
            let mut ready = command("pg_isready");
            ready.args(["--quiet", "--host=127.0.0.1", "--port", &port]);
            ready.status().unwrap().success().then_some(true)
        })
    }
}

fn run(files: &Path, port: &Port) -> Process {
    let mut command = command("postgres");
    command.arg("-D").arg(files.join("data")).arg("-k").arg(files).current_dir(files);
    // A killed process loses nothing that it wrote: without syncs the tests take a tenth of the time.
    let port = format!("port={}", port.number());
    let settings = ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=200", &port];
    for setting in settings {
        command.args(["-c", setting]);
    }
    Process::start(&mut command, &files.join("log"))
}

/// PostgreSQL refuses to run as root; then it runs as its own user, or else as nobody.
fn other_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).unwrap())
}

fn command(program: &str) -> Command {
    let mut command = Command::new(programs().join(program));
    command.env_clear();
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

/// Where the distribution puts the newest version, or where the environment says it is.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("TIDEGATE_POSTGRES") {
        return directory.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let newest = programs.filter(|path| path.join("initdb").is_file()).max();
    newest.expect(
        "PostgreSQL is missing: run `make tools`, or set TIDEGATE_POSTGRES to its bin directory",
    )
}
