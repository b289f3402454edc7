//! `tidegate forward plan`: how long records would take, computed from the document.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidegate_document::parse_duration;
use tidegate_forwarder::{Cost, ForwardDocument, Plan, PlanInput, Target, TypePlan, plan};

use super::records::{LineFormat, RecordDefaults, RecordReader};
use super::terms::{show_count, show_limit, show_seconds};
use crate::cli::Format;
use crate::config::{self, ConfigArgs};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Output, write_json};

/// The arguments of `forward plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The record type. Not needed if the document has only one.
    #[arg(long = "type", value_name = "NAME")]
    record_type: Option<String>,
    /// How many records.
    #[arg(long, value_name = "COUNT", required_unless_present = "file", conflicts_with = "file")]
    records: Option<u64>,
    /// Count the records of this file instead, with their costs; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Each line of the file is the body of a record.
    #[arg(long, requires = "file")]
    bodies: bool,
    /// The cost of a record, in units.
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    cost: u64,
    /// The payload bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 0, conflicts_with = "file")]
    bytes: u64,
    /// How long a request takes, such as `20ms`.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    latency: Duration,
    /// Exit with 1 if it takes longer than this, such as `30m`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    within: Option<Duration>,
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The records of a plan.
#[derive(Clone, Copy, Debug)]
struct Load {
    records: u64,
    /// The cost of all of them.
    total: Cost,
}

/// A plan. This is the JSON document too.
#[derive(Debug, Serialize)]
struct PlanView {
    record_type: String,
    target: String,
    sends: u64,
    units: u64,
    seconds: f64,
    records_per_second: f64,
    /// The limit that decides; none if the maximum of requests in flight does.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<String>,
}

pub(crate) fn run(args: &PlanArgs, out: &mut Output) -> Result<Exit, Failure> {
    let input = config::load::input(&args.config)?;
    let loaded = config::resolve(&input).map_err(Failure::Config)?;
    let document = config::forward::of(&loaded.config)?;
    let chosen = choose(&document, args.record_type.as_deref())?;
    let Some(target) = document.target_of(chosen) else {
        return Err(Complaint::new("the type has no target", "give it a `target`").into());
    };
    let load = load(args)?;
    let view = PlanView::of(chosen, target, load, args.latency);
    match args.format {
        Format::Json => write_json(out, &view)?,
        Format::Text => view.write(out)?,
    }
    let fits = args.within.is_none_or(|most| view.seconds <= most.as_secs_f64());
    Ok(Exit::of_check(fits))
}

fn choose<'d>(
    document: &'d ForwardDocument,
    name: Option<&str>,
) -> Result<&'d TypePlan, Complaint> {
    let names: Vec<&str> =
        document.types.iter().map(|plan| plan.settings.record_type.as_str()).collect();
    match (name, document.types.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => {
            let help = format!("give `--type`, one of: {}", names.join(", "));
            Err(Complaint::new("the document has several record types", help))
        }
        (Some(name), types) => {
            let found = types.iter().find(|plan| plan.settings.record_type == name);
            found.ok_or_else(|| {
                let message = format!("the document has no record type `{name}`");
                Complaint::new(message, format!("it has: {}", names.join(", ")))
            })
        }
    }
}

fn load(args: &PlanArgs) -> Result<Load, Complaint> {
    let Some(path) = &args.file else {
        let records = args.records.unwrap_or(0);
        let units = args.cost.saturating_mul(records);
        let bytes = args.bytes.saturating_mul(records);
        return Ok(Load { records, total: Cost { operations: records, bytes, units } });
    };
    let defaults = RecordDefaults { cost: Some(args.cost), ..RecordDefaults::default() };
    let format = if args.bodies { LineFormat::Bodies } else { LineFormat::Records };
    let mut reader = RecordReader::open(path, format, defaults, 1_000)?;
    let mut total = Cost { operations: 0, bytes: 0, units: 0 };
    while let Some(batch) = reader.next_batch()? {
        let cost = Cost { operations: batch.records, bytes: batch.bytes, units: batch.cost };
        total = total.plus(cost);
    }
    Ok(Load { records: total.operations, total })
}

impl PlanView {
    fn of(chosen: &TypePlan, target: &Target, load: Load, latency: Duration) -> Self {
        // A plan is for equal records: each has the mean cost, rounded up.
        let mean = |total: u64| total.div_ceil(load.records.max(1));
        let cost =
            Cost { operations: 1, bytes: mean(load.total.bytes), units: mean(load.total.units) };
        let Plan { sends, binding, duration, rate } = plan(&PlanInput {
            limits: &target.limits,
            utilisation_ppm: target.utilisation_ppm,
            records: load.records,
            cost,
            in_flight_max: chosen.settings.in_flight_max,
            latency,
        });
        PlanView {
            record_type: chosen.settings.record_type.clone(),
            target: target.name.clone(),
            sends,
            units: load.total.units,
            seconds: duration.as_secs_f64(),
            records_per_second: rate,
            bound_by: binding
                .map(|limit| show_limit(limit.dimension, limit.amount, limit.window_ms)),
        }
    }

    fn write(&self, out: &mut Output) -> Result<(), Failure> {
        let (sends, units) = (show_count(self.sends), show_count(self.units));
        let time = show_seconds(self.seconds);
        writeln!(out, "{sends} records of {}, {units} units: {time}", self.record_type)?;
        let bound = match &self.bound_by {
            Some(limit) => format!("the limit of {limit}"),
            None => "the maximum of requests in flight".to_owned(),
        };
        writeln!(
            out,
            "{:.1} records a second to {}, bound by {bound}",
            self.records_per_second, self.target
        )?;
        Ok(())
    }
}
