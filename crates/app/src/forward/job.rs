//! `tidegate forward job`: the progress of a job.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::bar::{ProgressBar, part};
use super::client::{ForwardClient, ServerArgs};
use super::terms::{show_count, show_seconds};
use crate::cli::Format;
use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Clean, Output, write_json};

/// How often the progress is asked for.
const INTERVAL: Duration = Duration::from_millis(250);
/// For how long a forwarder that is followed may be away, such as for a restart.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// The arguments of `forward job`.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The name of the job.
    name: String,
    /// Wait until it is finished, with a progress bar.
    #[arg(long)]
    wait: bool,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// How to write the result.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// A forecast, as the API writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ForecastTerms {
    pub(crate) state: String,
    pub(crate) cause: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) between: Option<[f64; 2]>,
    pub(crate) summary: String,
}

impl ForecastTerms {
    /// The forecast in a few words.
    pub(crate) fn words(&self) -> String {
        match (self.seconds, self.between) {
            (Some(seconds), Some([low, high])) => format!(
                "clears in {} ({} to {})",
                show_seconds(seconds),
                show_seconds(low),
                show_seconds(high)
            ),
            _ => self.state.clone(),
        }
    }
}

/// A job, as the API writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobView {
    pub(crate) job: String,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) waiting: u64,
    pub(crate) waiting_cost: u64,
    pub(crate) dead: u64,
    pub(crate) purged: u64,
    pub(crate) finished: bool,
    pub(crate) forecast: ForecastTerms,
}

impl JobView {
    pub(crate) fn write(&self, out: &mut Output) -> Result<(), Failure> {
        let [accepted, delivered, waiting, dead] =
            [self.accepted, self.delivered, self.waiting, self.dead].map(show_count);
        writeln!(
            out,
            "job {}: {delivered} of {accepted} delivered, {waiting} waiting, {dead} dead",
            Clean(&self.job)
        )?;
        writeln!(out, "{}", Clean(&self.forecast.summary))?;
        if self.dead > 0 {
            writeln!(out, "`tidegate forward dead list` shows dead letters with their reasons")?;
        }
        Ok(())
    }
}

pub(crate) fn run(args: &JobArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let runtime = client_runtime()?;
    let view = if args.wait {
        let mut bar = ProgressBar::new(args.quiet);
        runtime.block_on(follow(&client, &args.name, &mut bar))?
    } else {
        let found = runtime.block_on(client.get::<JobView>(&path(&args.name)));
        found.map_err(|error| client.complaint(&error))?
    };
    match args.format {
        Format::Json => write_json(out, &view)?,
        Format::Text => view.write(out)?,
    }
    Ok(Exit::of_check(view.dead == 0))
}

fn path(job: &str) -> String {
    format!("/v1/jobs/{job}")
}

/// Shows the progress until the job is finished. A forwarder may restart meanwhile.
pub(crate) async fn follow(
    client: &ForwardClient,
    job: &str,
    bar: &mut ProgressBar,
) -> Result<JobView, Complaint> {
    let mut away_since: Option<Instant> = None;
    loop {
        match client.get::<JobView>(&path(job)).await {
            Ok(view) => {
                away_since = None;
                let text = format!(
                    "{} of {} delivered, {} ({})",
                    show_count(view.delivered),
                    show_count(view.accepted),
                    view.forecast.words(),
                    view.forecast.cause
                );
                let done = Some(part(view.accepted.saturating_sub(view.waiting), view.accepted));
                if view.finished {
                    bar.finish(done, &text);
                    return Ok(view);
                }
                bar.draw(done, &text);
            }
            Err(error) => {
                let since = *away_since.get_or_insert_with(Instant::now);
                let may_return = error.status.is_none_or(|status| status == 503);
                if !may_return || since.elapsed() >= AWAY_MAX {
                    return Err(client.complaint(&error));
                }
                bar.draw(None, &format!("the forwarder is away: {}", Clean(&error.detail)));
            }
        }
        sleep(INTERVAL).await;
    }
}
