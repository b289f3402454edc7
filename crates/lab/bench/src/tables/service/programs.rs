//! The programs under test: where they are and how they are started.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::contender::{Contender, ContenderName};
use crate::peer;
use crate::rule_text::user_rules;
use crate::server::{Door, Server};
use crate::tables::Tools;

const THROTTLECRAB: &str = "throttlecrab-server";
const THROTTLECRAB_VERSION: &str = "0.4.40";
/// A compiler for `.proto` files in Rust; throttlecrab's build wants one.
const PROTOX: &str = "protox";
const PROTOX_VERSION: &str = "0.10.0";

/// Programs ready to start.
#[derive(Debug)]
pub(super) struct Programs {
    tidegate: PathBuf,
    peer: PathBuf,
    throttlecrab: anyhow::Result<PathBuf>,
    upstream: PathBuf,
    /// Rule files, removed with this value.
    folder: TempDir,
}

impl Programs {
    /// Finds our programs, installs throttlecrab if needed and writes so many rules.
    ///
    /// # Errors
    /// When our own programs are not built; a peer may be missing.
    pub(super) fn prepare(rules: u64, tools: &Tools) -> anyhow::Result<Self> {
        let this = env::current_exe().context("cannot find this program")?;
        let folder = TempDir::new().context("cannot create a folder for the rules")?;
        let rules = user_rules(rules);
        fs::write(folder.path().join("rules.yaml"), &rules)?;
        // Where envoyproxy/ratelimit looks for rules.
        let config = folder.path().join("upstream").join("config");
        fs::create_dir_all(&config)?;
        fs::write(config.join("rules.yaml"), rules)?;
        Ok(Programs {
            tidegate: beside(&this, "tidegate")?,
            peer: beside(&this, "tidegate-bench-peer")?,
            throttlecrab: throttlecrab(&this),
            upstream: tools.upstream.clone(),
            folder,
        })
    }

    /// Tidegate with the rules, all doors on free ports.
    pub(super) fn tidegate(&self) -> Command {
        let mut command = Command::new(&self.tidegate);
        command.arg("serve").arg("--rules").arg(self.folder.path().join("rules.yaml"));
        for door in ["--grpc", "--http", "--debug-listen"] {
            command.args([door, "127.0.0.1:0"]);
        }
        command.args(["--log-format", "json"]);
        command
    }

    /// Starts all servers.
    ///
    /// # Errors
    /// When Tidegate or one of our own peers does not start.
    pub(super) fn start_all(&self) -> anyhow::Result<Servers> {
        let mut servers = Servers {
            tidegate: Server::start(self.tidegate(), &[Door::Grpc, Door::Http])?,
            bare_tonic: self.start_peer(peer::PeerName::BareTonic, Door::Grpc)?,
            bare_axum: self.start_peer(peer::PeerName::BareAxum, Door::Http)?,
            limitador: self.start_peer(peer::PeerName::Limitador, Door::Grpc)?,
            throttlecrab: None,
            tidegate_redis: None,
            upstream: None,
            missing: Vec::new(),
        };
        match self.start_throttlecrab() {
            Ok(server) => servers.throttlecrab = Some(server),
            Err(error) => servers.missing.push(error),
        }
        match self.start_tidegate_with_redis() {
            Ok(started) => servers.tidegate_redis = Some(started),
            Err(error) => servers.missing.push(error.context("tidegate over Redis did not start")),
        }
        match self.start_upstream() {
            Ok(started) => servers.upstream = Some(started),
            Err(error) => servers.missing.push(error.context("envoyproxy/ratelimit did not start")),
        }
        Ok(servers)
    }

    /// Tidegate with the same rules, exact over a Redis of its own.
    fn start_tidegate_with_redis(&self) -> anyhow::Result<WithRedis> {
        let redis = start_redis(self.folder.path())?;
        let mut command = self.tidegate();
        command.args(["--set", &format!("store.redis.url=redis://{}", redis.door(Door::Redis)?)]);
        // The generator keeps the server busy: waits for Redis are long and must not time out.
        command.args(["--set", "store.redis.deadline=5s"]);
        Ok(WithRedis { server: Server::start(command, &[Door::Grpc])?, redis })
    }

    /// envoyproxy/ratelimit with the same rules and a Redis of its own.
    fn start_upstream(&self) -> anyhow::Result<WithRedis> {
        let redis = start_redis(self.folder.path())?;
        let server = start_upstream(&self.upstream, self.folder.path(), redis.door(Door::Redis)?)?;
        Ok(WithRedis { server, redis })
    }

    fn start_peer(&self, name: peer::PeerName, door: Door) -> anyhow::Result<Server> {
        let mut command = Command::new(&self.peer);
        command.arg(name.to_string());
        Server::start(command, &[door])
    }

    fn start_throttlecrab(&self) -> anyhow::Result<Server> {
        let program = self.throttlecrab.as_ref();
        let program = program.map_err(|error| anyhow::anyhow!("{error:#}"))?;
        Server::start_at(Command::new(program), Door::Grpc, |address| {
            let [host, port] = [address.ip().to_string(), address.port().to_string()];
            let arguments =
                ["--grpc", "--grpc-host", &host, "--grpc-port", &port, "--log-level", "warn"];
            Ok(arguments.map(str::to_owned).into())
        })
    }
}

/// A server and the Redis that only it uses.
#[derive(Debug)]
struct WithRedis {
    server: Server,
    redis: Server,
}

/// All servers, running.
#[derive(Debug)]
pub(super) struct Servers {
    tidegate: Server,
    bare_tonic: Server,
    bare_axum: Server,
    limitador: Server,
    throttlecrab: Option<Server>,
    tidegate_redis: Option<WithRedis>,
    upstream: Option<WithRedis>,
    /// Why a server did not start.
    pub(super) missing: Vec<anyhow::Error>,
}

impl Servers {
    /// All servers under every load that is compared. Servers of one comparison follow each other.
    ///
    /// # Errors
    /// When the requests cannot be encoded.
    pub(super) fn contenders(&self) -> anyhow::Result<Vec<Contender<'_>>> {
        let whos = [
            (ContenderName::BareTonic, Some(&self.bare_tonic)),
            (ContenderName::Tidegate, Some(&self.tidegate)),
            (ContenderName::TidegateWide, Some(&self.tidegate)),
            (ContenderName::Limitador, Some(&self.limitador)),
            (ContenderName::Throttlecrab, self.throttlecrab.as_ref()),
            (ContenderName::BareAxum, Some(&self.bare_axum)),
            (ContenderName::TidegateHttp, Some(&self.tidegate)),
        ];
        let alone = whos.into_iter().filter_map(|(who, server)| Some((who, server?, None)));
        let with_redis = [
            (ContenderName::TidegateRedis, &self.tidegate_redis),
            (ContenderName::Upstream, &self.upstream),
        ];
        let with_redis = with_redis.into_iter().filter_map(|(who, started)| {
            let WithRedis { server, redis } = started.as_ref()?;
            Some((who, server, Some(redis)))
        });
        let all = alone.chain(with_redis);
        all.map(|(who, server, redis)| Contender::new(who, server, redis)).collect()
    }
}

/// A Redis without persistence.
///
/// # Errors
/// When there is none, or it does not listen.
pub(in crate::tables) fn start_redis(folder: &Path) -> anyhow::Result<Server> {
    let mut command = Command::new("redis-server");
    command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir"]);
    command.arg(folder);
    Server::start_at(command, Door::Redis, |address| {
        Ok(vec!["--port".to_owned(), address.port().to_string()])
    })
}

/// An envoyproxy/ratelimit with the rules in `upstream/config` of this folder.
///
/// # Errors
/// When it is not installed, or does not listen.
pub(in crate::tables) fn start_upstream(
    program: &Path,
    folder: &Path,
    redis: SocketAddr,
) -> anyhow::Result<Server> {
    ensure!(
        program.is_file(),
        "{} is missing; tools/install-upstream builds it, where Go is installed",
        program.display()
    );
    let root = folder.display().to_string();
    let [http, debug] = [free_port()?, free_port()?];
    // Through `env`, which becomes the program: the port is known only when it starts.
    Server::start_at(Command::new("env"), Door::Grpc, |address| {
        Ok(vec![
            format!("GRPC_PORT={}", address.port()),
            "GRPC_HOST=127.0.0.1".to_owned(),
            format!("PORT={http}"),
            "HOST=127.0.0.1".to_owned(),
            format!("DEBUG_PORT={debug}"),
            "DEBUG_HOST=127.0.0.1".to_owned(),
            "USE_STATSD=false".to_owned(),
            "LOG_LEVEL=error".to_owned(),
            format!("RUNTIME_ROOT={root}"),
            "RUNTIME_SUBDIRECTORY=upstream".to_owned(),
            "RUNTIME_WATCH_ROOT=false".to_owned(),
            "REDIS_SOCKET_TYPE=tcp".to_owned(),
            format!("REDIS_URL={redis}"),
            program.display().to_string(),
        ])
    })
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A program of ours, beside this one.
pub(in crate::tables) fn beside(this: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let program = this.with_file_name(name);
    ensure!(program.is_file(), "{name} is not built; `make bench` builds everything");
    Ok(program)
}

/// Throttlecrab's server, installed first if it is missing. Built with our own compiler settings,
/// which its published build does not have.
fn throttlecrab(this: &Path) -> anyhow::Result<PathBuf> {
    let target = this.parent().and_then(Path::parent).context("this program has no folder")?;
    let root = target.join("peers");
    let program = root.join("bin").join(THROTTLECRAB);
    if !program.is_file() {
        let protox = root.join("bin").join(PROTOX);
        if !protox.is_file() {
            let mut command = install(&root, PROTOX, PROTOX_VERSION);
            run(command.args(["--features", "bin"]))?;
        }
        let mut command = install(&root, THROTTLECRAB, THROTTLECRAB_VERSION);
        command.env("PROTOC", protox);
        command.env("CARGO_PROFILE_RELEASE_LTO", "fat");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        run(&mut command)?;
    }
    Ok(program)
}

fn install(root: &Path, name: &str, version: &str) -> Command {
    eprintln!("service: installing {name} {version}");
    let mut command = Command::new("cargo");
    command.args(["install", "--quiet", "--locked", name, "--version", version]).arg("--root");
    command.arg(root).arg("--target-dir").arg(root.join("build"));
    command
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.context("cannot run cargo")?;
    ensure!(status.success(), "{THROTTLECRAB} could not be installed: cargo ended with {status}");
    Ok(())
}
