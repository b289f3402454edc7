//! A report as JSON: all metrics over the seeds, and the seconds of the first seed.

use serde_json::{Map, Value, json};
use tidegate_overload::Category;

use super::super::contender::Contender;
use super::super::goals::Goal;
use super::super::metric::Metric;
use super::super::record::Second;
use super::super::report::{ContenderResult, Report, Round};

pub(crate) fn render(report: &Report) -> String {
    let value = json!({
        "command": report.command,
        "rounds": report.rounds.iter().map(round).collect::<Vec<Value>>(),
        "fleet": report.fleet.map(|fleet| json!({
            "grant_back_after_s": fleet.grant_back_after,
            "slots_back_after_s": fleet.slots_back_after,
            "over_admission": fleet.over_admission,
            "admitted_before": fleet.admitted_before,
            "admitted_in_outage": fleet.admitted_in_outage,
        })),
        "goals": report.goals.iter().map(goal).collect::<Vec<Value>>(),
    });
    format!("{value}\n")
}

fn round(round: &Round) -> Value {
    json!({
        "scenario": round.scenario.name(),
        "number": round.scenario.number(),
        "capacity": round.capacity,
        "standings": round.standings.iter().map(standing).collect::<Vec<Value>>(),
    })
}

fn standing(standing: &ContenderResult) -> Value {
    let mut metrics = Map::new();
    for metric in Metric::ALL {
        if let Some(spread) = standing.spread(metric) {
            let value = json!({"median": spread.median, "worst": spread.worst});
            metrics.insert(metric.name().to_owned(), value);
        }
    }
    json!({
        "contender": standing.contender.name(),
        "tuned": standing.tuned,
        "metrics": metrics,
        "seconds": seconds(&standing.seconds),
    })
}

/// One list for each column, so that the names are not repeated every second.
fn seconds(seconds: &[Second]) -> Value {
    let counts = |of: fn(&Second) -> [u32; 4]| {
        let mut columns = Map::new();
        for category in Category::ALL {
            let column: Vec<u32> =
                seconds.iter().map(|second| of(second)[category.rank()]).collect();
            columns.insert(category.name().to_owned(), json!(column));
        }
        Value::Object(columns)
    };
    let millis = |of: fn(&Second) -> u64| {
        seconds.iter().map(|second| rounded(of(second) as f64 / 1e6)).collect::<Vec<f64>>()
    };
    json!({
        "offered": counts(|second| second.offered),
        "admitted": counts(|second| second.admitted),
        "refused": counts(|second| second.refused),
        "good": counts(|second| second.good),
        "critical_p50_ms": millis(|second| second.critical_p50),
        "critical_p99_ms": millis(|second| second.critical_p99),
        "level": seconds.iter().map(|second| rounded(second.controls.level)).collect::<Vec<f64>>(),
        "limit": seconds.iter().map(|second| rounded(second.controls.limit)).collect::<Vec<f64>>(),
    })
}

/// Rounded to thousandths, which keeps the file small.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn goal(goal: &Goal) -> Value {
    json!({
        "scenario": goal.scenario.number(),
        "metric": goal.metric.name(),
        "versus": goal.versus.map(Contender::name),
        "ours": goal.ours,
        "worst": goal.worst,
        "theirs": goal.theirs,
        "reached": goal.reached,
        "wanted": goal.wanted,
        "met": goal.is_met(),
    })
}
