//! `tidegate demo throttled`: a service with limits, to try the forwarder against.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tidegate_document::parse_duration;
use tidegate_forwarder::{Dimension, TargetLimit};
use tidegate_throttled_service::{
    ArrivalSummary, Latency, LimitKind, ServiceLimit, ThrottledService, ThrottledServiceSettings,
};
use tokio::signal::ctrl_c;

use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::forward::{LimitTerms, show_count, show_limit};
use crate::output::Output;

/// The arguments of `tidegate demo throttled`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ThrottledArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9200")]
    listen: SocketAddr,
    /// A limit, such as `operations=100/1s`; can be given several times.
    #[arg(long = "limit", value_name = "LIMIT", default_value = "units=20000/1s")]
    limits: Vec<LimitTerms>,
    /// How long half of its answers take at least, such as `20ms`.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    latency: Duration,
}

/// The log of the service in a few figures, in the dimension of its first limit.
pub(super) fn summary(service: &ThrottledService, dimension: Dimension) -> ArrivalSummary {
    service.log().summary(dimension)
}

/// Starts a service that judges by the last second, minute or whatever the limit's window is.
pub(super) fn start(
    listen: SocketAddr,
    limits: &[LimitTerms],
    latency: Duration,
) -> Result<ThrottledService, Complaint> {
    let limits = limits.iter().map(|terms| {
        let LimitTerms { dimension, amount, window_ms } = *terms;
        ServiceLimit {
            limit: TargetLimit { dimension, amount, window_ms },
            kind: LimitKind::SlidingLog,
        }
    });
    let spread = if latency.is_zero() { 0.0 } else { 0.3 };
    let settings = ThrottledServiceSettings {
        listen,
        delay_after: Latency { median: latency, spread },
        ..ThrottledServiceSettings::new(limits.collect())
    };
    ThrottledService::start(settings).map_err(|error| {
        let help = "choose another address, or stop the program that uses it";
        Complaint::new(error.to_string(), help)
    })
}

pub(crate) fn run(args: &ThrottledArgs, out: &mut Output) -> Result<Exit, Failure> {
    let runtime = client_runtime()?;
    runtime.block_on(async {
        let service = start(args.listen, &args.limits, args.latency)?;
        let limits: Vec<String> = args
            .limits
            .iter()
            .map(|limit| show_limit(limit.dimension, limit.amount, limit.window_ms))
            .collect();
        writeln!(out, "http://{} accepts {}", service.address(), limits.join(", "))?;
        writeln!(out, "a request costs what its field `X-Units` says, or 1 unit; Ctrl-C ends it")?;
        out.flush()?;
        ctrl_c().await?;
        let dimension = args.limits.first().map_or(Dimension::Units, |limit| limit.dimension);
        let summary = summary(&service, dimension);
        let [arrivals, accepted, throttled, twice] =
            [summary.arrivals, summary.accepted, summary.throttled, summary.duplicates]
                .map(|count| show_count(count as u64));
        writeln!(out, "\n{arrivals} requests: {accepted} accepted, {throttled} throttled")?;
        writeln!(out, "accepted twice under one id: {twice}")?;
        writeln!(out, "busiest second: {}", show_count(summary.busiest_second))?;
        Ok(Exit::Fine)
    })
}
