//! `tidegate control`: the control plane. `init` and `serve` run one; the other commands ask a running one over HTTP.

mod client;
mod files;
mod history;
mod init;
mod nodes;
mod operate;
mod rows;
mod serve;
mod view;

use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use client::ControlServerArgs;

/// The commands of the control plane.
#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Make a control plane: database, keys, the first token, a join file for servers.
    #[command(after_help = INIT_EXAMPLES)]
    Init(init::InitArgs),
    /// Serve the rules database over HTTP, and publish a signed snapshot on every beat.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::ControlServeArgs),
    /// Say what `apply` would change.
    ///
    /// A directory has `rules/`, `plans/`, `clients/` and `rows/`, as `export` writes them. A directory without these
    /// folders is taken for rule files.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(files::DiffArgs),
    /// Make the database as a directory is, in one version.
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(files::ApplyArgs),
    /// Write documents, plans, clients and rows as files. Applying them changes nothing.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(files::DatabaseExportArgs),
    /// List versions: who changed what, when and why.
    #[command(after_help = "Examples:\n  tidegate control history --limit 5")]
    History(history::HistoryArgs),
    /// Show what a version changed, or the differences between two.
    #[command(
        after_help = "Examples:\n  tidegate control show 42\n  tidegate control show 42 --since 40"
    )]
    Show(history::ShowArgs),
    /// Bring back the content of a version, as a new version.
    ///
    /// Switches and API keys stay as they are.
    #[command(
        after_help = "Examples:\n  tidegate control rollback --why 'acme is refused'\n  tidegate control rollback --to 41 --why 'acme is refused'"
    )]
    Rollback(history::RollbackArgs),
    /// Give single clients other limits.
    #[command(after_help = OVERRIDE_EXAMPLES)]
    Override {
        #[command(subcommand)]
        command: rows::OverrideCommand,
    },
    /// Read rows from a CSV file: value, terms and, if wanted, until when.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(rows::ImportArgs),
    /// Switch rules off, to shadow mode, or back, on all servers.
    #[command(after_help = SWITCH_EXAMPLES)]
    Switch {
        #[command(subcommand)]
        command: operate::SwitchCommand,
    },
    /// Show what servers run.
    #[command(after_help = "Examples:\n  tidegate control nodes")]
    Nodes(nodes::NodesArgs),
    /// Wait until servers run a version.
    #[command(after_help = WAIT_EXAMPLES)]
    Wait(nodes::WaitArgs),
    /// Show the cell, the newest version and the publisher.
    #[command(after_help = "Examples:\n  tidegate control status")]
    Status(ControlServerArgs),
    /// Propose changes that somebody else approves.
    #[command(
        after_help = "Examples:\n  tidegate control draft list\n  tidegate control draft review contract 'as agreed' --approve\n  tidegate control draft publish contract"
    )]
    Draft {
        #[command(subcommand)]
        command: operate::DraftCommand,
    },
    /// Read and verify the audit.
    #[command(
        after_help = "Examples:\n  tidegate control audit list --limit 20\n  tidegate control audit verify"
    )]
    Audit {
        #[command(subcommand)]
        command: operate::AuditCommand,
    },
    /// Manage API keys of the gateway, and the key that signs snapshots.
    #[command(
        after_help = "Examples:\n  tidegate control keys new acme gold --why 'new contract'\n  tidegate control keys revoke 87cbebfe --why leaked"
    )]
    Keys {
        #[command(subcommand)]
        command: operate::ControlKeysCommand,
    },
    /// Manage the tokens of the service.
    #[command(
        after_help = "Examples:\n  tidegate control token add ci read+change --owner billing\n  tidegate control token revoke ci"
    )]
    Token {
        #[command(subcommand)]
        command: operate::TokenCommand,
    },
    /// Overrule guards of the publisher for the next version.
    #[command(after_help = "Examples:\n  tidegate control allow shrunk --why 'we left a tenant'")]
    Allow(operate::AllowArgs),
    /// Start a new epoch, so that servers accept an older database or a new key.
    #[command(after_help = "Examples:\n  tidegate control epoch --why 'restored from a backup'")]
    Epoch(operate::EpochArgs),
    /// Copy the data directory of a control plane while it runs.
    #[command(after_help = "Examples:\n  tidegate control backup /backup/tidegate-control")]
    Backup(init::BackupArgs),
    /// Make a data directory from a backup, and start a new epoch in it.
    #[command(
        after_help = "Examples:\n  tidegate control restore --data-dir control /backup/tidegate-control --why 'lost disk'"
    )]
    Restore(init::RestoreArgs),
}

/// A reason.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhyArgs {
    /// Why; the history and the audit show it.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) why: String,
}

const INIT_EXAMPLES: &str = "\
Examples:
  tidegate control init --data-dir /var/lib/tidegate-control --join join.json
  tidegate control init --data-dir control --cell eu --class large --token-file admin.token

The token is printed once. Exit codes: 0 made, 2 it could not be made.";

const SERVE_EXAMPLES: &str = "\
Examples:
  tidegate control serve --data-dir /var/lib/tidegate-control
  tidegate control serve --data-dir control --publish /srv/snapshots
  tidegate control serve --data-dir control --publish s3://limits/eu --listen 0.0.0.0:8082 \\
      --tls-certificate cert.pem --tls-key key.pem

Exit codes: 0 stopped, 2 it could not start.";

const DIFF_EXAMPLES: &str = "\
Examples:
  tidegate control diff limits/
  tidegate control diff limits/ --exit-code        for CI: 1 if anything differs

Exit codes: 0 here is the difference, 1 with --exit-code if there is one, 2 unusable input.";

const APPLY_EXAMPLES: &str = "\
Examples:
  tidegate control apply limits/ --why 'new contract of acme'
  tidegate control apply limits/ --prune --why 'as in git'     removes what the directory lacks
  tidegate control apply rules/ --why 'from the rule files'

Exit codes: 0 it is as the directory says, 1 the rules have problems, 2 unusable input.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  tidegate control export limits/
  tidegate control export before/ --at 41";

const OVERRIDE_EXAMPLES: &str = "\
Examples:
  tidegate control override set api/clients acme rate=500 --why 'new contract'
  tidegate control override set api/clients acme unlimited --until 2027-01-31T18:00:00Z
  tidegate control override rm api/clients acme
  tidegate control override list api/clients --prefix ac";

const IMPORT_EXAMPLES: &str = "\
Examples:
  tidegate control import api/clients clients.csv --why 'from the billing system'

The first line has the names of the columns: value,terms or value,terms,until. A column `why` is not kept.
Each 10,000 rows are a version; an import that was interrupted can be repeated.";

const SWITCH_EXAMPLES: &str = "\
Examples:
  tidegate control switch set all shadow --why 'incident 42'
  tidegate control switch set limit:api:user 'enforce 5%' --why 'a careful start' --until 2027-01-31
  tidegate control switch rm all --why 'over'";

const WAIT_EXAMPLES: &str = "\
Examples:
  tidegate control wait --version 42 --nodes 99% --timeout 120

Exit codes: 0 they run it, 1 the time is over, 2 the service cannot be asked.";

pub(crate) fn run(command: ControlCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        ControlCommand::Init(args) => init::run(&args, out),
        ControlCommand::Serve(args) => serve::run(&args, out),
        ControlCommand::Diff(args) => files::diff(&args, out),
        ControlCommand::Apply(args) => files::apply(&args, out),
        ControlCommand::Export(args) => files::export(&args, out),
        ControlCommand::History(args) => history::list(&args, out),
        ControlCommand::Show(args) => history::show(&args, out),
        ControlCommand::Rollback(args) => history::rollback(&args, out),
        ControlCommand::Override { command } => rows::run(command, out),
        ControlCommand::Import(args) => rows::import(&args, out),
        ControlCommand::Switch { command } => operate::switch(command, out),
        ControlCommand::Nodes(args) => nodes::list(&args, out),
        ControlCommand::Wait(args) => nodes::wait(&args, out),
        ControlCommand::Status(server) => operate::status(&server, out),
        ControlCommand::Draft { command } => operate::draft(command, out),
        ControlCommand::Audit { command } => operate::audit(command, out),
        ControlCommand::Keys { command } => operate::keys(command, out),
        ControlCommand::Token { command } => operate::token(command, out),
        ControlCommand::Allow(args) => operate::allow(&args, out),
        ControlCommand::Epoch(args) => operate::epoch(&args, out),
        ControlCommand::Backup(args) => init::backup(&args, out),
        ControlCommand::Restore(args) => init::restore(&args, out),
    }
}
