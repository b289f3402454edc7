//! `/api/changes`: the audit of changes at run time.

use serde_json::json;
use tidegate_engine::{Clock, CounterStore};

use super::answer::{self, Answer, Problem};
use super::audit::AuditEntry;
use super::csv::CsvTable;
use super::query::Query;
use super::service::Inner;

/// Changes of one page.
const PAGE: usize = 200;

/// The page.
pub(super) fn list<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    query: Option<&str>,
) -> Result<Answer, Problem> {
    let query = Query::parse(query, &["after", "format"])?;
    let after = query.number("after", 0)?;
    if query.get("format") == Some("csv") {
        return Ok(answer::csv("changes.csv", table(&door.audit.newest(after, usize::MAX))));
    }
    let mut changes = door.audit.newest(after, PAGE);
    for change in &mut changes {
        change.undo = door.audit.undo_of(change);
    }
    Ok(answer::json(&json!({ "changes": changes })))
}

fn table(entries: &[AuditEntry]) -> String {
    let columns =
        ["id", "at_ms", "by", "peer", "kind", "what", "before", "after", "reason", "until_ms"];
    let mut table = CsvTable::new(&columns);
    for entry in entries {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        table.row(&[
            entry.id.to_string(),
            entry.at_ms.to_string(),
            text(&entry.by),
            entry.peer.map(|peer| peer.to_string()).unwrap_or_default(),
            entry.kind.clone().into_owned(),
            entry.what.clone(),
            text(&entry.before),
            text(&entry.after),
            text(&entry.reason),
            entry.until_ms.map(|until| until.to_string()).unwrap_or_default(),
        ]);
    }
    table.finish()
}
