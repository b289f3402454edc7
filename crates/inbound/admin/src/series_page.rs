//! `/api/series`: the history of the service as columns.

use serde_json::json;
use tidegate_engine::{Clock, CounterStore};

use super::answer::{self, Answer, Problem};
use super::query::Query;
use super::service::Inner;

/// The span without `since`: a quarter of an hour.
const SPAN: u64 = 900;

/// The page. Times and values are columns, as chart libraries take them.
pub(super) fn columns<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    query: Option<&str>,
) -> Result<Answer, Problem> {
    let query = Query::parse(query, &["names", "since", "step"])?;
    let now = door.engine.clock().now().as_millis() / 1_000;
    let since = query.number("since", now.saturating_sub(SPAN))?;
    let step = query.number("step", 1)?;
    Ok(door.recorder.with(|history| {
        let all: Vec<&str> = history.series_names().collect();
        let names = query.get("names").map_or(all, |names| names.split(',').collect());
        let columns = history.series(&names, since, step);
        answer::json(&json!({
            "step": columns.step,
            "names": columns.names,
            "times": columns.times,
            "values": columns.values,
        }))
    }))
}
