//! Runs the cases of the accepted differences.

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidegate_test_servers::eventually;

use crate::ask::Ask;
use crate::broken::outcome;
use crate::differences::{Case, CaseView, DIFFERENCES};
use crate::programs::{Pair, Programs, RunningProgram};
use crate::statsd::Statsd;

/// How long the end of a process, or the absence of an end, is waited for.
const MOMENT: Duration = Duration::from_millis(1_000);

/// Runs every case. Returns those that do not show what the list says.
///
/// # Errors
/// When a program cannot be started.
pub fn show_all(programs: &Programs) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut wrong = Vec::new();
    for difference in DIFFERENCES {
        let (upstream, tidegate) = runtime.block_on(show(programs, &difference.case))?;
        if (difference.upstream, difference.tidegate) != (&upstream, &tidegate) {
            let what = difference.what;
            wrong.push(format!("{what}\n  upstream: {upstream}\n  tidegate: {tidegate}"));
        }
    }
    Ok(wrong)
}

/// What both do in a case.
async fn show(programs: &Programs, case: &Case) -> anyhow::Result<(String, String)> {
    let statsd = Statsd::start()?;
    let port = statsd.port.to_string();
    let mut variables = case.variables.to_vec();
    if let CaseView::Statistic(_) = case.shown {
        variables.extend([
            ("USE_STATSD", "true"),
            ("STATSD_HOST", "127.0.0.1"),
            ("STATSD_PORT", &port),
            ("STATS_FLUSH_INTERVAL", "200ms"),
        ]);
    }
    let text = format!("domain: case\ndescriptors:\n{}\n", case.rules);
    let mut pair = programs.start(&[(case.file, &text)], &variables, case.backend)?;
    if let CaseView::Load = case.shown {
        let strip = |text: String| match text.split_once(".yaml: ") {
            Some((_, text)) => text.to_owned(),
            None => text,
        };
        return Ok((strip(outcome(&mut pair.upstream)), strip(outcome(&mut pair.tidegate))));
    }
    pair.wait();
    let (mut of_upstream, mut of_tidegate) = (Value::Null, Value::Null);
    for ask in case.asks {
        let ask = Ask::parse("case", ask);
        of_upstream = pair.upstream.client.grpc(&ask).await;
        of_tidegate = pair.tidegate.client.grpc(&ask).await;
    }
    let Pair { upstream, tidegate, .. } = &mut pair;
    Ok(match case.shown {
        CaseView::Load | CaseView::Code => {
            (code(upstream, &of_upstream), code(tidegate, &of_tidegate))
        }
        CaseView::Member(pointer) => {
            let member = |answer: &Value| {
                answer.pointer(pointer).map_or("absent".to_owned(), ToString::to_string)
            };
            (member(&of_upstream), member(&of_tidegate))
        }
        CaseView::Statistic(name) => {
            let sent = || statsd.read().get(name).copied();
            let sent = eventually("the statistic", sent);
            let page = tidegate.debug_page("/stats")?;
            let ours = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            (sent.to_string(), ours.unwrap_or_default().to_owned())
        }
        CaseView::StatsPage => {
            let shown = |running: &RunningProgram| {
                let page = running.debug_page("/stats").unwrap_or_default();
                let has_limits = page.contains("ratelimit.service.rate_limit.case.a.total_hits");
                if has_limits { "with limits" } else { "without limits" }.to_owned()
            };
            (shown(upstream), shown(tidegate))
        }
        CaseView::HangUp => (hang_up(upstream), hang_up(tidegate)),
    })
}

/// The code of an answer, or its error.
fn code(running: &mut RunningProgram, answer: &Value) -> String {
    if let Some(error) = answer.pointer("/error/0") {
        thread::park_timeout(MOMENT);
        return if running.has_ended() {
            "the process ends".to_owned()
        } else {
            format!("error {error}")
        };
    }
    let name = match answer.get("overall").and_then(Value::as_i64) {
        Some(1) => "OK",
        Some(2) => "OVER_LIMIT",
        _ => "UNKNOWN",
    };
    name.to_owned()
}

fn hang_up(running: &mut RunningProgram) -> String {
    let id = running.id().to_string();
    let _ = Command::new("kill").args(["-HUP", &id]).status();
    thread::park_timeout(MOMENT);
    if running.has_ended() { "ends" } else { "goes on" }.to_owned()
}
