//! `tidegate forward enqueue`: stores records durably, with a progress bar.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::bar::{ProgressBar, part};
use super::client::{CallError, ForwardClient, ServerArgs};
use super::job::{self, JobView};
use super::records::{LineFormat, RecordBatch, RecordDefaults, RecordReader};
use super::terms::show_count;
use crate::cli::Format;
use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Clean, Output, write_json};

/// How often a batch is sent again when the forwarder cannot be reached.
const TRIES_MAX: u32 = 10;
/// The first pause between two tries; it doubles.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The arguments of `forward enqueue`.
#[derive(Debug, Args)]
pub(crate) struct EnqueueArgs {
    /// The file with a record on each line, or `-` for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// The record type. Not needed if the forwarder has only one.
    #[arg(long = "type", value_name = "NAME")]
    record_type: Option<String>,
    /// The job that the records belong to: letters, digits, `-`, `_` and `.`.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Each line is the body of a record, not a record.
    #[arg(long)]
    bodies: bool,
    /// The cost of records that do not name theirs.
    #[arg(long, value_name = "UNITS")]
    cost: Option<u64>,
    /// The tenant of records that do not name theirs.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The class of records that do not name theirs.
    #[arg(long, value_name = "CLASS", value_parser = ["urgent", "normal", "low", "bulk"])]
    class: Option<String>,
    /// Records of one request.
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Wait until the job is finished, and show its progress.
    #[arg(long, requires = "job")]
    follow: bool,
    /// Give up when the queue has been full for this many seconds; without it, wait until there is room.
    #[arg(long, value_name = "SECONDS")]
    full_max: Option<u64>,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// How to write the result.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// The answer to a batch.
#[derive(Debug, Deserialize)]
struct BatchAnswer {
    accepted: u64,
    duplicates: u64,
    #[serde(default)]
    dropped_fields: Vec<String>,
}

/// What was stored.
#[derive(Debug, Default, Serialize)]
pub(crate) struct EnqueueReport {
    pub(crate) accepted: u64,
    pub(crate) duplicates: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped_fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobView>,
}

pub(crate) fn run(args: &EnqueueArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let defaults = RecordDefaults {
        cost: args.cost,
        tenant: args.tenant.clone(),
        class: args.class.clone(),
        // Without a job the key only keeps a repeated request of this run from storing a batch twice.
        dedup_prefix: Some(
            args.job
                .clone()
                .unwrap_or_else(|| format!("run-{:016x}", RandomState::new().hash_one("enqueue"))),
        ),
    };
    let format = if args.bodies { LineFormat::Bodies } else { LineFormat::Records };
    let mut reader = RecordReader::open(&args.file, format, defaults, args.batch)?;
    let runtime = client_runtime()?;
    let mut import = Import {
        client: &client,
        query: query(args),
        full_max: args.full_max.map(Duration::from_secs),
        bar: ProgressBar::new(args.quiet),
        report: EnqueueReport::default(),
    };
    runtime.block_on(import.run(&mut reader))?;
    let mut report = import.report;
    if let (true, Some(job)) = (args.follow, &args.job) {
        let mut bar = ProgressBar::new(args.quiet);
        let view = runtime.block_on(job::follow(&client, job, &mut bar))?;
        report.job = Some(view);
    }
    match args.format {
        Format::Json => write_json(out, &report)?,
        Format::Text => report.write(out)?,
    }
    Ok(Exit::of_check(report.job.is_none_or(|job| job.dead == 0)))
}

/// Stores the records of a file as a job, with a progress bar.
pub(crate) async fn import_file(
    client: &ForwardClient,
    path: &Path,
    record_type: &str,
    job: &str,
) -> Result<EnqueueReport, Complaint> {
    let dedup_prefix = Some(job.to_owned());
    let defaults = RecordDefaults { dedup_prefix, ..RecordDefaults::default() };
    let mut reader = RecordReader::open(path, LineFormat::Records, defaults, 500)?;
    let mut import = Import {
        client,
        query: format!("?type={record_type}&job={job}"),
        full_max: None,
        bar: ProgressBar::new(false),
        report: EnqueueReport::default(),
    };
    import.run(&mut reader).await?;
    Ok(import.report)
}

fn query(args: &EnqueueArgs) -> String {
    let parts = [("type", &args.record_type), ("job", &args.job)];
    let parts = parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let query: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
    if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
}

/// A running import.
struct Import<'c> {
    client: &'c ForwardClient,
    query: String,
    full_max: Option<Duration>,
    bar: ProgressBar,
    report: EnqueueReport,
}

impl Import<'_> {
    async fn run(&mut self, reader: &mut RecordReader) -> Result<(), Complaint> {
        let began = Instant::now();
        let bytes = reader.bytes;
        while let Some(batch) = reader.next_batch()? {
            let read = batch.read;
            let answer = self.store(batch).await?;
            self.report.accepted += answer.accepted;
            self.report.duplicates += answer.duplicates;
            for field in answer.dropped_fields {
                if !self.report.dropped_fields.contains(&field) {
                    self.report.dropped_fields.push(field);
                }
            }
            let text = self.stored();
            self.bar.draw(bytes.map(|bytes| part(read, bytes)), &text);
        }
        self.report.seconds = began.elapsed().as_secs_f64();
        let text = self.stored();
        self.bar.finish(bytes.map(|_| 1.0), &text);
        Ok(())
    }

    fn stored(&self) -> String {
        let stored = self.report.accepted + self.report.duplicates;
        format!("{} records are durable", show_count(stored))
    }

    /// Stores a batch, however long the forwarder is away or full.
    async fn store(&mut self, batch: RecordBatch) -> Result<BatchAnswer, Complaint> {
        let mut tries = 0;
        let mut full_since = None;
        loop {
            let error = match self.client.post_records(&self.query, batch.lines.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let wait = match (error.status, error.retry_after) {
                // A full queue says when there is room.
                (Some(429 | 503), Some(wait)) => {
                    let since = *full_since.get_or_insert_with(Instant::now);
                    if self.full_max.is_some_and(|most| since.elapsed() >= most) {
                        return Err(self.stopped(&batch, &error));
                    }
                    self.bar.draw(None, &format!("waits for room: {}", Clean(&error.detail)));
                    wait.min(PAUSE_MAX)
                }
                (None | Some(408 | 502 | 503 | 504), _) if tries < TRIES_MAX => {
                    tries += 1;
                    self.bar.draw(None, &format!("tries again: {}", Clean(&error.detail)));
                    PAUSE.saturating_mul(1 << tries.min(6)).min(PAUSE_MAX)
                }
                _ => return Err(self.stopped(&batch, &error)),
            };
            sleep(wait).await;
        }
    }

    /// What was stored before the batch that failed.
    fn stopped(&self, batch: &RecordBatch, error: &CallError) -> Complaint {
        let Complaint { message, help } = self.client.complaint(error);
        let stored = show_count(self.report.accepted + self.report.duplicates);
        let message =
            format!("{message}; {stored} records before line {} are durable", batch.first_line);
        Complaint::new(message, help)
    }
}

impl EnqueueReport {
    fn write(&self, out: &mut Output) -> Result<(), Failure> {
        let duplicates = match self.duplicates {
            0 => String::new(),
            some => format!(", {} were stored before", show_count(some)),
        };
        let accepted = show_count(self.accepted);
        writeln!(out, "{accepted} records stored in {:.2} s{duplicates}", self.seconds)?;
        if !self.dropped_fields.is_empty() {
            let fields = self.dropped_fields.join(", ");
            writeln!(
                out,
                "dropped header fields with credentials: {} (`kept_secrets` keeps them)",
                Clean(fields)
            )?;
        }
        if let Some(job) = &self.job {
            job.write(out)?;
        }
        Ok(())
    }
}
