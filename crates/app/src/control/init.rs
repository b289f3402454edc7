//! Making, copying and restoring a control plane. These commands work on the data directory, without a service.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tidegate_engine::{Clock, SystemClock};
use tidegate_plane::{
    AuditEvent, CellClass, CellSettings, KeyFiles, PlaneError, RulesDatabase, back_up, new_token,
};

use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;

/// All roles of people.
const ADMIN_ROLES: &str = "read+change+approve+operate+admin";

/// Where the database is.
#[derive(Clone, Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The directory for the database and the keys.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_CONTROL_DATA", default_value = "control-data")]
    pub(crate) data_dir: PathBuf,
    /// A PostgreSQL server that several control nodes share, instead of the database in the directory:
    /// postgres://user:password@host/database. The tables are in the schema `tidegate_control`.
    #[arg(long, value_name = "URL", env = "TIDEGATE_CONTROL_DATABASE", hide_env_values = true)]
    pub(crate) database: Option<String>,
}

impl DatabaseArgs {
    pub(crate) async fn open(&self) -> Result<RulesDatabase, Failure> {
        let opened = match &self.database {
            None => RulesDatabase::open(&self.data_dir).await,
            Some(url) => RulesDatabase::connect(url, "tidegate_control").await,
        };
        opened.map_err(|error| {
            Complaint::new(error.to_string(), "check `--data-dir` and `--database`").into()
        })
    }

    pub(crate) fn keys(&self) -> KeyFiles {
        KeyFiles::of(&self.data_dir)
    }
}

/// How to make a control plane.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The name of the cell.
    #[arg(long, default_value = "main")]
    cell: String,
    /// How many clients it holds: small (10,000), medium (100,000) or large (1,000,000).
    #[arg(long, default_value = "small")]
    class: CellClass,
    /// Milliseconds between two snapshots; 5,000, 10,000 or 30,000 by the class unless given.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    beat: Option<u64>,
    /// How many people other than the author approve a draft; 0 allows changes without drafts.
    #[arg(long, default_value_t = 0)]
    approvals: u64,
    /// Does nothing if there is a control plane already.
    #[arg(long)]
    if_missing: bool,
    /// Writes the first token to this file instead of printing it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Writes the join file for servers here.
    #[arg(long, value_name = "FILE", default_value = "join.json")]
    join: PathBuf,
    /// Where servers read snapshots: the address of the service, or a directory.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    url: String,
}

/// What to copy.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The data directory of the control plane; it may be in use.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_CONTROL_DATA", default_value = "control-data")]
    data_dir: PathBuf,
    /// The new directory for the copy. It holds the keys too.
    destination: PathBuf,
}

/// What to restore.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup.
    backup: PathBuf,
    /// The new data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Why; the audit shows it.
    #[arg(long)]
    why: String,
}

/// The failure of an operation of the control plane.
pub(super) fn failed(error: &PlaneError) -> Failure {
    Complaint::new(error.to_string(), "correct this, and repeat the command").into()
}

pub(super) fn now_millis() -> u64 {
    SystemClock::default().now().as_millis()
}

/// Writes a file that only its owner may read; it must not exist.
pub(super) fn write_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let message = format!("`{}` cannot be written: {error}", path.display());
        Complaint::new(message, "choose a path at which there is no file").into()
    })
}

fn event(action: &'static str, object: &str, why: &str) -> AuditEvent {
    let (actor, object) = ("command line".to_owned(), object.to_owned());
    AuditEvent { actor, action, object, outcome: "applied".to_owned(), why: why.to_owned() }
}

async fn add_token(database: &RulesDatabase, name: &str, roles: &str) -> Result<String, Failure> {
    let made = new_token(name, roles, "", "", "init", now_millis());
    let (secret, token) = made.map_err(|error| failed(&error))?;
    let event = event("add token", &format!("token `{name}` with the roles {roles}"), "init");
    database.add_token(token, event).await.map_err(|error| failed(&error))?;
    Ok(secret)
}

pub(super) fn run(args: &InitArgs, out: &mut Output) -> Result<Exit, Failure> {
    client_runtime()?.block_on(init(args, out))
}

/// Checks that nothing is overwritten.
fn check_paths(args: &InitArgs) -> Result<(), Failure> {
    for path in [Some(&args.join), args.token_file.as_ref()].into_iter().flatten() {
        if path.exists() {
            let message = format!("`{}` is there already", path.display());
            return Err(Complaint::new(message, "choose another path, or remove the file").into());
        }
    }
    Ok(())
}

async fn init(args: &InitArgs, out: &mut Output) -> Result<Exit, Failure> {
    let database = args.database.open().await?;
    if CellSettings::load(&database).await.map_err(|error| failed(&error))?.is_some() {
        if args.if_missing {
            return Ok(Exit::Fine);
        }
        let message = format!("{} is a control plane already", database.location());
        return Err(Complaint::new(message, "start it with `tidegate control serve`").into());
    }
    check_paths(args)?;
    let mut cell = CellSettings::new(args.cell.clone(), args.class);
    cell.beat_millis = args.beat.unwrap_or(cell.beat_millis);
    cell.approvals = args.approvals;
    let keys = args.database.keys().create().map_err(|error| failed(&error))?;
    let admin = add_token(&database, "admin", ADMIN_ROLES).await?;
    let node = add_token(&database, "nodes", "node").await?;
    let join = json!({
        "url": args.url,
        "cell": cell.name,
        "keys": [keys.signing.public_key().to_string()],
        "epoch_key": keys.epoch.public_key().to_string(),
        "token": node,
    });
    write_secret(&args.join, &format!("{join:#}\n"))?;
    // Last: a database with settings is initialized.
    cell.store(&database).await.map_err(|error| failed(&error))?;
    writeln!(
        out,
        "cell:   {} ({}, a snapshot every {} ms)",
        cell.name, cell.class, cell.beat_millis
    )?;
    writeln!(out, "keys:   {}", args.database.keys().path().display())?;
    writeln!(
        out,
        "        move `epoch.key` to a safe place: it is needed only to start a new epoch"
    )?;
    writeln!(out, "join:   {}", args.join.display())?;
    match &args.token_file {
        Some(path) => {
            write_secret(path, &format!("{admin}\n"))?;
            writeln!(out, "token:  in {}", path.display())?;
        }
        None => writeln!(out, "token:  {admin}")?,
    }
    Ok(Exit::Fine)
}

pub(super) fn backup(args: &BackupArgs, out: &mut Output) -> Result<Exit, Failure> {
    back_up(&args.data_dir, &args.destination).map_err(|error| failed(&error))?;
    writeln!(out, "copied to {}; it holds the keys: keep it safe", args.destination.display())?;
    Ok(Exit::Fine)
}

pub(super) fn restore(args: &RestoreArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.data_dir.exists() && fs::read_dir(&args.data_dir)?.next().is_some() {
        let message = format!("`{}` is not empty", args.data_dir.display());
        return Err(Complaint::new(message, "choose a new directory").into());
    }
    back_up(&args.backup, &args.data_dir).map_err(|error| failed(&error))?;
    client_runtime()?.block_on(async {
        let database = RulesDatabase::open(&args.data_dir).await.map_err(|error| failed(&error))?;
        let check = database.verify_audit().await.map_err(|error| failed(&error))?;
        if let Some((row, problem)) = check.broken {
            let message = format!("row {row} of the audit: {problem}");
            return Err(Complaint::new(message, "restore an older backup").into());
        }
        let event = event("restore", "the database from a backup", &args.why);
        let epoch = database.start_epoch(0, event, now_millis()).await;
        let epoch = epoch.map_err(|error| failed(&error))?;
        let version = database.version().await.map_err(|error| failed(&error))?;
        writeln!(out, "version {version} in {}, epoch {epoch}", args.data_dir.display())?;
        writeln!(out, "before it serves: `tidegate control keys certify --epoch {epoch}`, so that servers follow")?;
        Ok(Exit::Fine)
    })
}

/// The real clock, for the service.
pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}
