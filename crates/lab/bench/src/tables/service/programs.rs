//! The programs that are measured: where they are and how they are started.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::contender::{Contender, Who};
use crate::peer;
use crate::rule_text::user_rules;
use crate::server::{Door, Server};

const THROTTLECRAB: &str = "throttlecrab-server";
const THROTTLECRAB_VERSION: &str = "0.4.40";
/// A compiler for `.proto` files in Rust; throttlecrab's build wants one.
const PROTOX: &str = "protox";
const PROTOX_VERSION: &str = "0.10.0";

/// Programs that are ready to be started.
#[derive(Debug)]
pub(super) struct Programs {
    tidegate: PathBuf,
    peer: PathBuf,
    throttlecrab: anyhow::Result<PathBuf>,
    /// Holds the rule file, and goes with it.
    folder: TempDir,
}

impl Programs {
    /// Finds our programs, has the peers installed and writes so many rules.
    ///
    /// # Errors
    /// When our own programs are not built; a peer may be missing.
    pub(super) fn prepare(rules: u64) -> anyhow::Result<Self> {
        let this = env::current_exe().context("cannot find this program")?;
        let folder = TempDir::new().context("cannot make a folder for the rules")?;
        fs::write(folder.path().join("rules.yaml"), user_rules(rules))?;
        Ok(Programs {
            tidegate: beside(&this, "tidegate")?,
            peer: beside(&this, "tidegate-bench-peer")?,
            throttlecrab: throttlecrab(&this),
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

    /// Starts everybody.
    ///
    /// # Errors
    /// When Tidegate or one of our own peers does not start.
    pub(super) fn start_all(&self) -> anyhow::Result<Servers> {
        let mut servers = Servers {
            tidegate: Server::start(self.tidegate(), &[Door::Grpc, Door::Http])?,
            bare_tonic: self.start_peer(peer::Name::BareTonic, Door::Grpc)?,
            bare_axum: self.start_peer(peer::Name::BareAxum, Door::Http)?,
            limitador: self.start_peer(peer::Name::Limitador, Door::Grpc)?,
            throttlecrab: None,
            missing: Vec::new(),
        };
        match self.start_throttlecrab() {
            Ok(server) => servers.throttlecrab = Some(server),
            Err(error) => servers.missing.push(error),
        }
        Ok(servers)
    }

    fn start_peer(&self, name: peer::Name, door: Door) -> anyhow::Result<Server> {
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

/// Everybody, running.
#[derive(Debug)]
pub(super) struct Servers {
    tidegate: Server,
    bare_tonic: Server,
    bare_axum: Server,
    limitador: Server,
    throttlecrab: Option<Server>,
    /// Why somebody is not there.
    pub(super) missing: Vec<anyhow::Error>,
}

impl Servers {
    /// Everybody under every load that is compared. Those that are compared
    /// with each other follow each other.
    ///
    /// # Errors
    /// When there is nothing to ask, which would be a fault of the questions.
    pub(super) fn contenders(&self) -> anyhow::Result<Vec<Contender<'_>>> {
        let whos = [
            (Who::BareTonic, Some(&self.bare_tonic)),
            (Who::Tidegate, Some(&self.tidegate)),
            (Who::TidegateWide, Some(&self.tidegate)),
            (Who::Limitador, Some(&self.limitador)),
            (Who::Throttlecrab, self.throttlecrab.as_ref()),
            (Who::BareAxum, Some(&self.bare_axum)),
            (Who::TidegateHttp, Some(&self.tidegate)),
        ];
        let there = whos.into_iter().filter_map(|(who, server)| Some((who, server?)));
        there.map(|(who, server)| Contender::new(who, server)).collect()
    }
}

/// A program of ours, which is built to where this one is.
pub(in crate::tables) fn beside(this: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let program = this.with_file_name(name);
    ensure!(program.is_file(), "{name} is not built; `make bench` builds everything");
    Ok(program)
}

/// Throttlecrab's server, installed first if it is not there. It is built with
/// the settings that we are built with, which its published build does not have.
fn throttlecrab(this: &Path) -> anyhow::Result<PathBuf> {
    let target = this.parent().and_then(Path::parent).context("this program is in no folder")?;
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
