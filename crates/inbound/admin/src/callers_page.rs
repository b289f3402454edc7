//! `/api/callers`: who is refused most, by which limit, and what each has left.

use serde::Serialize;
use serde_json::json;
use tidegate_engine::{Clock, CounterStore, Descriptor, Entry, Request, Verb};

use super::answer::{self, Answer, Problem};
use super::csv::CsvTable;
use super::observations::{RefusedKey, TopRow};
use super::query::Query;
use super::service::Inner;

/// Callers whose counters are read for one page.
const PEEKS_MAX: usize = 25;

/// One caller.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CallerRow {
    /// Refusals; too many by at most `error`.
    refusals: u64,
    error: u64,
    domain: String,
    rule: String,
    limit: String,
    shadow: bool,
    /// The entries of its descriptor; hashed if the configuration says so.
    caller: String,
    /// Its descriptor, to try; not if callers are hashed.
    entries: Option<Vec<(String, String)>>,
    /// What its limit has left now.
    remaining: Option<u64>,
    quota: Option<u64>,
}

impl<S: CounterStore, C: Clock> Inner<S, C> {
    /// The most refused callers of the last hour, or since the last one that began.
    fn caller_rows(&self) -> Vec<CallerRow> {
        let reading = self.parts.observations.recent();
        reading.keys.into_iter().filter_map(|row| self.caller_row(row)).collect()
    }

    fn caller_row(&self, row: TopRow<RefusedKey>) -> Option<CallerRow> {
        let TopRow { refusals, error, label: RefusedKey { by, key, entries } } = row;
        let caller = self.show_caller(&key)?;
        // Only plain values can be tried.
        let entries = entries.filter(|_| caller == key);
        Some(CallerRow {
            refusals,
            error,
            domain: by.domain,
            rule: by.rule,
            limit: by.limit,
            shadow: by.shadow,
            caller,
            entries,
            remaining: None,
            quota: None,
        })
    }

    /// The most refused callers of one limit.
    pub(super) fn callers_of(&self, domain: &str, rule: &str, limit: &str) -> Vec<CallerRow> {
        let mut rows = self.caller_rows();
        rows.retain(|row| row.domain == domain && row.rule == rule && row.limit == limit);
        rows
    }

    /// A caller as the configuration shows it; [`None`] if not at all.
    pub(super) fn show_caller(&self, caller: &str) -> Option<String> {
        match &self.parts.show_caller {
            Some(show) => show(caller),
            None => Some(caller.to_owned()),
        }
    }

    /// Reads what a caller has left, without charging anything.
    async fn peek(&self, row: &mut CallerRow) {
        let Some(entries) = &row.entries else { return };
        let entries: Vec<Entry<'_>> =
            entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let descriptors = [Descriptor::new(&entries)];
        let verdict = self.engine.apply(Verb::Peek, &Request::new(&row.domain, &descriptors)).await;
        let ruling = verdict.rulings().iter().find(|ruling| {
            verdict.rule(ruling).is_some_and(|rule| rule.path() == row.rule)
                && super::observations::limit_label(&verdict, ruling) == row.limit
        });
        row.remaining = ruling.map(|ruling| ruling.decision.remaining);
        row.quota = ruling.map(|ruling| ruling.decision.limit);
    }
}

/// The page.
pub(super) async fn list<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    query: Option<&str>,
) -> Result<Answer, Problem> {
    let query = Query::parse(query, &["find", "format"])?;
    let find = query.get("find").unwrap_or_default().to_lowercase();
    let mut rows = door.caller_rows();
    rows.retain(|row| {
        let text = format!("{} {} {} {}", row.caller, row.domain, row.rule, row.limit);
        find.is_empty() || text.to_lowercase().contains(&find)
    });
    for row in rows.iter_mut().take(PEEKS_MAX) {
        door.peek(row).await;
    }
    if query.get("format") == Some("csv") {
        return Ok(answer::csv("callers.csv", table(&rows)));
    }
    let since = door.parts.observations.recent_since();
    Ok(answer::json(&json!({ "since_ms": since.map(|since| since.as_millis()), "callers": rows })))
}

fn table(rows: &[CallerRow]) -> String {
    let columns = ["caller", "domain", "rule", "limit", "shadow", "refusals", "error", "remaining"];
    let mut table = CsvTable::new(&columns);
    for row in rows {
        let remaining = row.remaining.map(|remaining| remaining.to_string()).unwrap_or_default();
        table.row(&[
            &row.caller,
            &row.domain,
            &row.rule,
            &row.limit,
            &row.shadow.to_string(),
            &row.refusals.to_string(),
            &row.error.to_string(),
            &remaining,
        ]);
    }
    table.finish()
}
