//! `/api/limits`: every limit with its counts, and one limit with its history.

use std::collections::HashMap;

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_engine::{Clock, CounterStore, LimitId, Mode, Snapshot};
use tidegate_history::{LimitView, SpanCounts};

use super::answer::{self, Answer, Problem};
use super::csv::CsvTable;
use super::findings_page;
use super::query::Query;
use super::service::Inner;

/// Limits of one page.
const PAGE: usize = 50;
/// Points of the small chart of a limit: two minutes each.
const SPARK_POINTS: usize = 30;
const SPARK_STEP: u64 = 120;

/// One limit in the list.
#[derive(Debug, Serialize)]
struct LimitRow {
    id: String,
    domain: String,
    rule: String,
    limit: String,
    terms: String,
    mode: String,
    /// The mode in the rule file.
    written: String,
    last_hour: CountsJson,
    today: CountsJson,
    /// Refused hits, or those over a limit in shadow, of the last hour; empty for limits that are rarely hit.
    spark: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CountsJson {
    admitted: u32,
    soft: u32,
    near: u32,
    refused: u32,
    shadow: u32,
}

impl From<SpanCounts> for CountsJson {
    fn from(counts: SpanCounts) -> Self {
        let SpanCounts { admitted, soft, near, refused, shadow } = counts;
        CountsJson { admitted, soft, near, refused, shadow }
    }
}

/// The order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    RefusedShare,
    Refused,
    Hits,
    Name,
}

impl Order {
    const WORDS: [(&'static str, Order); 4] = [
        ("refused_share", Order::RefusedShare),
        ("refused", Order::Refused),
        ("hits", Order::Hits),
        ("name", Order::Name),
    ];

    fn parse(word: Option<&str>) -> Result<Self, Problem> {
        let Some(word) = word else { return Ok(Order::RefusedShare) };
        let found = Order::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, order)| *order).ok_or_else(|| {
            let words = Order::WORDS.map(|(word, _)| word).join(", ");
            Problem::new(StatusCode::BAD_REQUEST, format!("`sort` is one of {words}"))
        })
    }
}

/// What the list is sorted by, and where the limit is in the snapshot.
struct RankedLimit {
    refused: u64,
    hits: u64,
    name: String,
    limit: LimitId,
}

/// The list.
pub(super) fn list<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    query: Option<&str>,
) -> Result<Answer, Problem> {
    let query = Query::parse(query, &["sort", "find", "after", "format"])?;
    let order = Order::parse(query.get("sort"))?;
    let find = query.get("find").unwrap_or_default().to_lowercase();
    let after = usize::try_from(query.number("after", 0)?).unwrap_or(usize::MAX);
    let mut ranked = rank(door, &find);
    sort(&mut ranked, order);
    let snapshot = door.engine.snapshot();
    let switched = switched_modes(door);
    let total = ranked.len();
    if query.get("format") == Some("csv") {
        let rows = ranked.iter().filter_map(|one| row(door, &snapshot, &switched, one.limit));
        return Ok(answer::csv("limits.csv", table(rows)));
    }
    let page = ranked.iter().skip(after).take(PAGE);
    let rows: Vec<LimitRow> =
        page.filter_map(|one| row(door, &snapshot, &switched, one.limit)).collect();
    let next = after.saturating_add(rows.len());
    let summed = door.recorder.with(|history| history.limits_summed());
    Ok(answer::json(&json!({
        "total": total,
        "next": (next < total).then_some(next),
        "summed": summed,
        "limits": rows,
    })))
}

fn rank<S: CounterStore, C: Clock>(door: &Inner<S, C>, find: &str) -> Vec<RankedLimit> {
    let mut ranked = Vec::new();
    door.recorder.with(|history| {
        door.engine.for_each_tally(|snapshot, rule, limit, _| {
            let label = snapshot.limit_name(rule, limit);
            let name = format!("{} {} {label}", rule.domain(), rule.path());
            if !find.is_empty() && !name.to_lowercase().contains(find) {
                return;
            }
            let hour = history.limit(limit.identity).map(|view| view.last_hour).unwrap_or_default();
            let refused = u64::from(hour.refused) + u64::from(hour.shadow);
            ranked.push(RankedLimit { refused, hits: hour.hits(), name, limit: limit.id });
        });
    });
    ranked
}

fn sort(ranked: &mut [RankedLimit], order: Order) {
    // Shares are compared as products, so that no limit is lost to rounding.
    let share = |one: &RankedLimit, other: &RankedLimit| {
        let (left, right) = (
            u128::from(other.refused) * u128::from(one.hits.max(1)),
            u128::from(one.refused) * u128::from(other.hits.max(1)),
        );
        left.cmp(&right).then(other.hits.cmp(&one.hits))
    };
    ranked.sort_by(|one, other| {
        let by = match order {
            Order::RefusedShare => share(one, other),
            Order::Refused => other.refused.cmp(&one.refused),
            Order::Hits => other.hits.cmp(&one.hits),
            Order::Name => std::cmp::Ordering::Equal,
        };
        by.then_with(|| one.name.cmp(&other.name))
    });
}

/// The modes that are set at run time, by the identity of the limit.
fn switched_modes<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> HashMap<u64, Mode> {
    let mut switched = HashMap::new();
    door.engine.for_each_switch(|_, _, limit, mode| _ = switched.insert(limit.identity, mode));
    switched
}

fn row<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    snapshot: &Snapshot,
    switched: &HashMap<u64, Mode>,
    id: LimitId,
) -> Option<LimitRow> {
    let limit = snapshot.limit(id)?;
    let rule = snapshot.rule(limit.rule)?;
    let terms = door.parts.limit_terms.map(|terms| terms(limit)).unwrap_or_default();
    let mode = switched.get(&limit.identity).copied().unwrap_or(limit.mode);
    let (last_hour, today, spark) = door.recorder.with(|history| {
        let Some(view) = history.limit(limit.identity) else { return Default::default() };
        let today = view.days.first().copied().unwrap_or_default();
        (view.last_hour, today, spark(&view))
    });
    Some(LimitRow {
        id: format!("{:016x}", limit.identity),
        domain: rule.domain().to_owned(),
        rule: rule.path().to_owned(),
        limit: snapshot.limit_name(rule, limit).into_owned(),
        terms,
        mode: mode.to_string(),
        written: limit.mode.to_string(),
        last_hour: last_hour.into(),
        today: today.into(),
        spark,
    })
}

/// Hits over the limit in steps of two minutes.
fn spark(view: &LimitView<'_>) -> Vec<u64> {
    let steps = view.fine();
    let Some(last) = steps.last() else { return Vec::new() };
    let end = last.at / SPARK_STEP;
    let mut points = vec![0_u64; SPARK_POINTS];
    for step in &steps {
        let back = usize::try_from(end - step.at / SPARK_STEP).unwrap_or(usize::MAX);
        let index = SPARK_POINTS.checked_sub(back.saturating_add(1));
        if let Some(point) = index.and_then(|index| points.get_mut(index)) {
            *point += u64::from(step.counts.refused) + u64::from(step.counts.shadow);
        }
    }
    points
}

fn table(rows: impl Iterator<Item = LimitRow>) -> String {
    let mut table = CsvTable::new(&[
        "domain",
        "rule",
        "limit",
        "terms",
        "mode",
        "admitted_hour",
        "refused_hour",
        "shadow_hour",
        "admitted_today",
        "refused_today",
        "shadow_today",
    ]);
    for row in rows {
        let LimitRow { domain, rule, limit, terms, mode, last_hour, today, .. } = row;
        let counts = [
            last_hour.admitted,
            last_hour.refused,
            last_hour.shadow,
            today.admitted,
            today.refused,
            today.shadow,
        ];
        let mut cells = vec![domain, rule, limit, terms, mode];
        cells.extend(counts.map(|count| count.to_string()));
        table.row(&cells);
    }
    table.finish()
}

/// One limit: its days, its last hour, and its most refused callers.
pub(super) fn one<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    id: &str,
) -> Result<Answer, Problem> {
    let gone = || {
        let detail = "there is no limit with this id; the rules may have changed";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let identity = u64::from_str_radix(id, 16).map_err(|_| gone())?;
    let snapshot = door.engine.snapshot();
    let limit = snapshot.limits().iter().find(|limit| limit.identity == identity);
    let limit = limit.ok_or_else(gone)?;
    let row = row(door, &snapshot, &switched_modes(door), limit.id).ok_or_else(gone)?;
    let callers = door.callers_of(&row.domain, &row.rule, &row.limit);
    let history =
        door.recorder.with(|history| history.limit(identity).map(|view| history_json(&view)));
    let judged = findings_page::of_limit(door, identity);
    let mut page = serde_json::to_value(&row).unwrap_or_default();
    if let Value::Object(page) = &mut page {
        let (demand, findings) = judged.map(|(evidence, found)| (evidence.demand, found)).unzip();
        page.insert("demand".to_owned(), serde_json::to_value(demand).unwrap_or_default());
        page.insert("findings".to_owned(), serde_json::to_value(findings).unwrap_or_default());
        page.insert("history".to_owned(), history.unwrap_or_default());
        page.insert("callers".to_owned(), serde_json::to_value(callers).unwrap_or_default());
    }
    Ok(answer::json(&page))
}

fn history_json(view: &LimitView<'_>) -> Value {
    let fine = view.fine();
    let column = |of: fn(&SpanCounts) -> u32| -> Vec<u32> {
        fine.iter().map(|step| of(&step.counts)).collect()
    };
    json!({
        "first_seen_ms": view.first_seen * 1_000,
        "shadow_since_ms": view.shadow_since.map(|since| since * 1_000),
        "days": view.days.map(CountsJson::from),
        "hours": view.hours.map(CountsJson::from),
        "step": 10,
        "times": fine.iter().map(|step| step.at).collect::<Vec<u64>>(),
        "admitted": column(|counts| counts.admitted),
        "refused": column(|counts| counts.refused),
        "shadow": column(|counts| counts.shadow),
    })
}
