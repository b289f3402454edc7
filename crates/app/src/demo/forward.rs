//! `tidegate demo forward`: the import of the rate limiting pattern, by the real program.
//!
//! Starts a throttled service, and `tidegate forward serve` as a process of its own with a queue on disk. Imports the
//! records with a progress bar, then lets a naive client do the same, and compares both. Interrupted or killed and
//! started again, it continues with what was stored.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_forwarder::{Cost, Dimension, PlanInput, Target, TargetLimit, TargetLimits, plan};
use tidegate_throttled_service::{ArrivalSummary, BaselineReport, NaiveClient, run_over_http};
use tokio::time::{Instant, sleep};

use super::throttled;
use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::forward::{
    ForwardClient, JobView, LimitTerms, ProgressBar, import_file, part, show_count, show_seconds,
};
use crate::output::{Cell, Output, Table, style};

/// The names of the example's target, type and files.
const DOCUMENT: &str = "forward.yaml";
const RECORDS: &str = "records.ndjson";
const LOG: &str = "forward.log";
/// Names the job of a run that has not finished.
const UNFINISHED: &str = "unfinished-job";
/// How often the progress is asked for.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long the forwarder may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// The arguments of `tidegate demo forward`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForwardDemoArgs {
    /// How many records are imported.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    records: u64,
    /// The units that a record costs.
    #[arg(long, value_name = "UNITS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    units: u64,
    /// The units that the service accepts in any second.
    #[arg(long, value_name = "UNITS", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    limit: u64,
    /// Where the queue, the document and the log are; a run that was interrupted continues from here.
    #[arg(long, value_name = "DIR", default_value = "target/forward")]
    dir: PathBuf,
    /// Kill the forwarder with SIGKILL in the middle, and start it again.
    #[arg(long)]
    kill: bool,
}

/// What the import did.
#[derive(Debug)]
struct ImportFigures {
    took: Duration,
    job: JobView,
    /// When a quarter was delivered: the time left by the forecast.
    forecast: Option<(Duration, f64)>,
}

pub(crate) fn run(args: &ForwardDemoArgs, out: &mut Output) -> Result<Exit, Failure> {
    let runtime = client_runtime()?;
    runtime.block_on(async {
        let limit =
            LimitTerms { dimension: Dimension::Units, amount: args.limit, window_ms: 1_000 };
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let service = throttled::start(any, &[limit], Duration::ZERO)?;
        let job = prepare(args, service.address(), out)?;
        let mut forwarder = ForwarderProcess::start(&args.dir, None).await?;
        writeln!(
            out,
            "tidegate forward serve: process {}, http://{}",
            forwarder.child.id(),
            forwarder.address
        )?;
        out.flush()?;
        let figures = import(args, &job, &mut forwarder, out).await?;
        forwarder.stop().await?;
        fs::remove_file(args.dir.join(UNFINISHED)).map_err(unusable(&args.dir))?;
        let ours = throttled::summary(&service, Dimension::Units);
        service.stop().await;

        writeln!(
            out,
            "\nthe naive client sends everything at once, and what was refused a second later …"
        )?;
        out.flush()?;
        let service = throttled::start(any, &[limit], Duration::ZERO)?;
        let records = usize::try_from(args.records).unwrap_or(usize::MAX);
        let mut client = NaiveClient::new(records);
        let naive = run_over_http(&mut client, service.address(), args.units).await;
        let naive = naive.map_err(|error| Complaint::new(error.to_string(), "try again"))?;
        service.stop().await;
        compare(args, &figures, &ours, &naive, out)?;
        Ok(Exit::of_check(figures.job.dead == 0 && figures.job.delivered == args.records))
    })
}

fn unusable(dir: &Path) -> impl Fn(io::Error) -> Complaint {
    let dir = dir.display().to_string();
    move |error| Complaint::new(format!("`{dir}` cannot be used: {error}"), "give another `--dir`")
}

/// Writes the document and the records. Returns the job: that of an unfinished run if there is one.
fn prepare(
    args: &ForwardDemoArgs,
    service: SocketAddr,
    out: &mut Output,
) -> Result<String, Failure> {
    let dir = &args.dir;
    let unusable = unusable(dir);
    fs::create_dir_all(dir).map_err(&unusable)?;
    fs::write(dir.join(DOCUMENT), document(args, service)).map_err(&unusable)?;
    let mut file = io::BufWriter::new(File::create(dir.join(RECORDS)).map_err(&unusable)?);
    for number in 1..=args.records {
        writeln!(
            file,
            "{{\"body\": \"record {number}\", \"cost\": {units}, \"headers\": {{\"x-units\": \"{units}\"}}}}",
            units = args.units
        )
        .map_err(&unusable)?;
    }
    file.flush().map_err(&unusable)?;
    let marker = dir.join(UNFINISHED);
    match fs::read_to_string(&marker) {
        Ok(job) if !job.trim().is_empty() => {
            writeln!(out, "continues {}, which was interrupted", job.trim())?;
            Ok(job.trim().to_owned())
        }
        _ => {
            let job = format!("import-{:08x}", RandomState::new().hash_one("job") >> 32);
            fs::write(&marker, &job).map_err(&unusable)?;
            Ok(job)
        }
    }
}

fn document(args: &ForwardDemoArgs, service: SocketAddr) -> String {
    let limit = args.limit;
    format!(
        "targets:\n  - name: database\n    limits: [{{units: {limit}, per: 1s}}]\n\
         types:\n  - name: records\n    target: database\n    http: {{url: 'http://{service}/records', networks: [127.0.0.1]}}\n"
    )
}

/// A running `tidegate forward serve`. Killed when it is dropped.
#[derive(Debug)]
struct ForwarderProcess {
    child: Child,
    address: String,
}

impl ForwarderProcess {
    /// Starts it, and waits until it listens.
    async fn start(dir: &Path, address: Option<&str>) -> Result<Self, Complaint> {
        let failed = |message: String| {
            let help = format!("`{}` says more", dir.join(LOG).display());
            Complaint::new(message, help)
        };
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let log = File::create(dir.join(LOG)).map_err(unusable(dir))?;
        let data_dir = format!("data_dir={}", dir.join("data").display());
        let mut child = Command::new(program)
            .args(["forward", "serve", "--log-format", "json", "--set", &data_dir, "--forward"])
            .arg(dir.join(DOCUMENT))
            .args(["--forward-listen", address.unwrap_or("127.0.0.1:0")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| failed(format!("the forwarder cannot be started: {error}")))?;
        let began = Instant::now();
        loop {
            if let Some(address) = listening(&dir.join(LOG)) {
                return Ok(ForwarderProcess { child, address });
            }
            let ended = child.try_wait().ok().flatten();
            if let Some(status) = ended {
                let last = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
                let last = last.lines().find(|line| line.starts_with("error:"));
                let reason = last.map(|line| format!(": {line}")).unwrap_or_default();
                return Err(failed(format!("the forwarder ended with {status}{reason}")));
            }
            if began.elapsed() >= PATIENCE {
                let _ = child.kill();
                return Err(failed("the forwarder does not start".to_owned()));
            }
            sleep(INTERVAL).await;
        }
    }

    /// Kills it, as a crash would.
    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it, and waits until it has given everything back.
    async fn stop(mut self) -> Result<(), Complaint> {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return Ok(());
            }
            sleep(INTERVAL).await;
        }
        Err(Complaint::new("the forwarder does not stop", "look at its log"))
    }
}

impl Drop for ForwarderProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The address in the log, once the forwarder listens.
fn listening(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| line["message"] == "listening");
    Some(found.next()?["address"].as_str()?.to_owned())
}

async fn import(
    args: &ForwardDemoArgs,
    job: &str,
    forwarder: &mut ForwarderProcess,
    out: &mut Output,
) -> Result<ImportFigures, Failure> {
    let client = ForwardClient::local(&forwarder.address)?;
    let began = Instant::now();
    let report = import_file(&client, &args.dir.join(RECORDS), "records", job).await?;
    let again = match report.duplicates {
        0 => String::new(),
        some => format!("; {} were stored by an earlier run", show_count(some)),
    };
    writeln!(
        out,
        "{} records are durable after {:.2} s{again}",
        show_count(report.accepted + report.duplicates),
        began.elapsed().as_secs_f64()
    )?;
    out.flush()?;
    let mut bar = ProgressBar::new(false);
    let (mut forecast, mut killed) = (None, !args.kill);
    loop {
        let view: JobView = match client.get(&format!("/v1/jobs/{job}")).await {
            Ok(view) => view,
            Err(error) => return Err(client.complaint(&error).into()),
        };
        let done = part(view.delivered, view.accepted);
        let text = format!(
            "{} of {}, {}",
            show_count(view.delivered),
            show_count(view.accepted),
            view.forecast.words()
        );
        if view.finished {
            bar.finish(Some(done), &text);
            return Ok(ImportFigures { took: began.elapsed(), job: view, forecast });
        }
        bar.draw(Some(done), &text);
        if forecast.is_none() && done >= 0.25 {
            forecast = view.forecast.seconds.map(|seconds| (began.elapsed(), seconds));
        }
        if !killed && done >= 0.5 {
            killed = true;
            forwarder.kill();
            bar.finish(Some(done), &text);
            writeln!(
                out,
                "killed the forwarder with SIGKILL at {} records",
                show_count(view.delivered)
            )?;
            let address = forwarder.address.clone();
            *forwarder = ForwarderProcess::start(&args.dir, Some(&address)).await?;
            writeln!(out, "started it again: process {}", forwarder.child.id())?;
            out.flush()?;
        }
        sleep(INTERVAL).await;
    }
}

fn compare(
    args: &ForwardDemoArgs,
    figures: &ImportFigures,
    ours: &ArrivalSummary,
    naive: &BaselineReport,
    out: &mut Output,
) -> Result<(), Failure> {
    writeln!(out)?;
    let mut table = Table::titled(&["", "sends", "throttled", "accepted", "time"]);
    let rows = [
        (
            "forwarder",
            ours.arrivals as u64,
            ours.throttled as u64,
            ours.accepted as u64,
            figures.took,
        ),
        ("naive client", naive.sends, naive.throttled, naive.accepted, naive.elapsed),
    ];
    for (name, sends, throttled, accepted, took) in rows {
        table.row([
            Cell::new(name).styled(style::STRONG),
            Cell::new(show_count(sends)).right(),
            Cell::new(show_count(throttled)).right(),
            Cell::new(show_count(accepted)).right(),
            Cell::new(format!("{:.2} s", took.as_secs_f64())).right(),
        ]);
    }
    table.write(out, "  ")?;
    let planned = planned(args);
    writeln!(out)?;
    writeln!(
        out,
        "planned: {}, it took {:.2} s",
        show_seconds(planned),
        figures.took.as_secs_f64()
    )?;
    if let Some((at, expected)) = figures.forecast.filter(|_| !args.kill) {
        let truth = figures.took.saturating_sub(at).as_secs_f64();
        if truth > 0.0 {
            let error = (expected - truth).abs() / truth * 100.0;
            writeln!(
                out,
                "forecast at a quarter: {expected:.2} s more, it took {truth:.2} s: {error:.1} % off"
            )?;
        }
    }
    let (busiest, limit) = (show_count(ours.busiest_second), show_count(args.limit));
    writeln!(out, "busiest second at the service: {busiest} of {limit} units")?;
    let lost = figures.job.accepted.saturating_sub(figures.job.delivered);
    writeln!(
        out,
        "lost: {}, sent twice: {}, dead: {}",
        show_count(lost),
        show_count(ours.duplicates as u64),
        show_count(figures.job.dead)
    )?;
    Ok(())
}

/// The time by the plan, in seconds.
fn planned(args: &ForwardDemoArgs) -> f64 {
    let limit = TargetLimit::per_second(Dimension::Units, args.limit);
    let Ok(limits) = TargetLimits::new(vec![limit]) else { return 0.0 };
    let target = Target::new("database", limits);
    let input = PlanInput {
        limits: &target.limits,
        utilisation_ppm: target.utilisation_ppm,
        records: args.records,
        cost: Cost { operations: 1, bytes: 0, units: args.units },
        in_flight_max: u32::MAX,
        latency: Duration::ZERO,
    };
    plan(&input).duration.as_secs_f64()
}
