//! `tidegate forward`: the forwarder as a program, and the commands of its operators.
//!
//! `serve` and `work` run lanes of the crate `tidegate-forwarder`; `plan` computes; all other commands are clients of
//! the HTTP API of a running forwarder.

mod bar;
mod change;
mod client;
mod dead;
mod enqueue;
mod job;
mod plan;
mod records;
mod serve;
mod status;
mod stores;
mod terms;

pub(crate) use bar::{ProgressBar, part};
pub(crate) use client::ForwardClient;
pub(crate) use enqueue::import_file;
pub(crate) use job::JobView;
pub(crate) use terms::{LimitTerms, show_count, show_limit, show_seconds};

use clap::Subcommand;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// What a forwarder does, and what can be done with a running one.
#[derive(Debug, Subcommand)]
pub(crate) enum ForwardCommand {
    /// Accept records, keep them durably, and send them at the pace of their targets.
    ///
    /// The document names the throttled services with their limits, and the types of records. Without `forward.queue`
    /// records are kept in `data_dir`, which one process owns. SIGTERM lets attempts in flight finish and returns all
    /// other records to the queue; SIGHUP reads the access tokens again.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::ForwardServeArgs),
    /// Only send records: one more process for queues and targets that others share.
    ///
    /// Needs a queue that processes share (`forward.queue` in PostgreSQL or Redis). The processes do not know each
    /// other: leases in a store that all of them reach divide the capacity of each target.
    #[command(after_help = WORK_EXAMPLES)]
    Work(serve::ForwardServeArgs),
    /// Say how long records would take, and which limit decides. Asks no server.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(plan::PlanArgs),
    /// Store records from a file or standard input, with a progress bar.
    ///
    /// Each line is a JSON object with a `body`, and optionally `cost`, `tenant`, `class`, `key`, `dedup`, `delay`,
    /// `ttl`, `headers`, `method` and `url`. When the command returns, the records are durable. With `--job` a record
    /// without `dedup` gets a key from the job, its line number and its text, so that an interrupted import can be
    /// repeated: what is stored already counts as a duplicate.
    #[command(after_help = ENQUEUE_EXAMPLES)]
    Enqueue(enqueue::EnqueueArgs),
    /// Show every record type: what waits, the rate, the forecast and its cause.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(status::StatusArgs),
    /// Show the progress of a job, once or until it is finished.
    #[command(after_help = JOB_EXAMPLES)]
    Job(job::JobArgs),
    /// Show who holds which share of each target.
    #[command(after_help = LEASES_EXAMPLES)]
    Leases(status::LeasesArgs),
    /// Show or replace the limits of a target.
    #[command(after_help = LIMIT_EXAMPLES)]
    Limit {
        #[command(subcommand)]
        command: change::LimitCommand,
    },
    /// Accept records of a type, and send none until it is resumed. Applies to the process that is asked.
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(change::ModeArgs),
    /// Send the records of a type again after `pause` or `drain`.
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(change::ModeArgs),
    /// Send the records of a type that are there, and accept no more of it.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(change::DrainArgs),
    /// Look at records that are not delivered any more; enqueue them again, or delete them.
    #[command(after_help = DEAD_EXAMPLES)]
    Dead {
        #[command(subcommand)]
        command: dead::DeadCommand,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  tidegate forward serve --forward forward.yaml --set data_dir=/var/lib/tidegate
  tidegate forward serve --config tidegate.yaml
  TIDEGATE_FORWARD_QUEUE=postgres://tidegate@db/queue tidegate forward serve --forward forward.yaml
  tidegate config schema forward > forward.schema.json    # for editors

Exit codes: 0 stopped, 1 the configuration or the document has problems, 2 it could not start.";

const WORK_EXAMPLES: &str = "\
Examples:
  tidegate forward work --config tidegate.yaml
  tidegate forward work --config tidegate.yaml --type orders --type invoices
  tidegate forward work --forward forward.yaml --set forward.queue=redis://redis:6379 \\
      --set forward.worker_listen=127.0.0.1:8091

Exit codes: 0 stopped, 1 the configuration or the document has problems, 2 it could not start.";

const PLAN_EXAMPLES: &str = "\
Examples:
  tidegate forward plan --forward forward.yaml --type records --records 10000 --cost 10
  tidegate forward plan --forward forward.yaml --type records --file records.ndjson
  tidegate forward plan --forward forward.yaml --records 10000 --within 30m    # for CI

Exit codes: 0 here is the plan, 1 it takes longer than --within or the document has problems, 2 unusable.";

const ENQUEUE_EXAMPLES: &str = "\
Examples:
  tidegate forward enqueue records.ndjson --type orders --job import --follow
  echo '{\"body\": {\"order\": 1}, \"cost\": 10}' | tidegate forward enqueue --type orders
  tidegate forward enqueue lines.txt --bodies --cost 10 --job import    # each line is a body

Exit codes: 0 every record is durable (with --follow: and delivered), 1 records of the job are dead letters,
2 a record was refused, the input is unusable or the forwarder cannot be reached; the message says what is durable.";

const STATUS_EXAMPLES: &str = "\
Examples:
  tidegate forward status
  tidegate forward status --watch
  tidegate forward status --server forwarder:8090 --token-file token --format json
  tidegate forward status --fail-if dead --fail-if stalled    # for CI and probes

Exit codes: 0 here it is, 1 a condition of --fail-if holds, 2 the forwarder cannot be reached.";

const JOB_EXAMPLES: &str = "\
Examples:
  tidegate forward job import
  tidegate forward job import --wait && echo delivered
  tidegate forward job import --format json | jq .forecast.seconds

Exit codes: 0 no record of it is dead (with --wait: and all are delivered), 1 some are dead letters, 2 unusable.";

const LEASES_EXAMPLES: &str = "\
Examples:
  tidegate forward leases
  tidegate forward leases --format json | jq '.leases[] | .slots'";

const LIMIT_EXAMPLES: &str = "\
Examples:
  tidegate forward limit show
  tidegate forward limit set database --limit units=10000/1s --dry-run
  tidegate forward limit set database --limit operations=20/1s --limit bytes=2GiB/1m";

const PAUSE_EXAMPLES: &str = "\
Examples:
  tidegate forward pause orders
  tidegate forward pause orders --server worker-1:8091 --server worker-2:8091";

const RESUME_EXAMPLES: &str = "\
Examples:
  tidegate forward resume orders
  tidegate forward resume orders --server worker-1:8091 --server worker-2:8091";

const DRAIN_EXAMPLES: &str = "\
Examples:
  tidegate forward drain orders
  tidegate forward drain orders --wait    # returns when nothing of the type waits";

const DEAD_EXAMPLES: &str = "\
Examples:
  tidegate forward dead list orders
  tidegate forward dead show orders 01JCWZ2M5S0000V7Q4XZ00000A
  tidegate forward dead redrive orders --rate 50          # says what it would do
  tidegate forward dead redrive orders --rate 50 --yes    # does it
  tidegate forward dead purge orders --yes";

pub(crate) fn run(command: ForwardCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        ForwardCommand::Serve(args) => serve::run(&args, serve::ProcessRole::Serve),
        ForwardCommand::Work(args) => serve::run(&args, serve::ProcessRole::Work),
        ForwardCommand::Plan(args) => plan::run(&args, out),
        ForwardCommand::Enqueue(args) => enqueue::run(&args, out),
        ForwardCommand::Status(args) => status::run(&args, out),
        ForwardCommand::Job(args) => job::run(&args, out),
        ForwardCommand::Leases(args) => status::run_leases(&args, out),
        ForwardCommand::Limit { command } => change::run_limit(&command, out),
        ForwardCommand::Pause(args) => change::run_mode("pause", &args, out),
        ForwardCommand::Resume(args) => change::run_mode("resume", &args, out),
        ForwardCommand::Drain(args) => change::run_drain(&args, out),
        ForwardCommand::Dead { command } => dead::run(&command, out),
    }
}
