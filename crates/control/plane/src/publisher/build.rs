//! Reads a version and makes the content of a snapshot of it.

use std::collections::BTreeMap;

use tidegate_row_table::{Minute, NewRow, Rows, TableName};
use tidegate_snapshot_file::{
    DocumentText, RulesPart, SnapshotContent, SwitchSetting, SwitchTarget,
};

use super::guard::ContentCounts;
use crate::cell::CellSettings;
use crate::content::{check_rules, split_collection};
use crate::database::{PAGE_MAX, PageQuery, RulesDatabase};
use crate::entry::{Entry, EntryKind};
use crate::error::{InputProblem, PlaneError};

/// The content of a snapshot.
#[derive(Debug)]
pub struct BuiltContent {
    /// Rules, rows, keys, switches.
    pub content: SnapshotContent,
    /// How much there is.
    pub counts: ContentCounts,
}

/// Terms and end of a row.
type RowTerms = (String, Option<u64>);

/// Reads everything of a version, and builds a content of it. `now` is in milliseconds since the epoch.
pub(super) async fn build_content(
    database: &RulesDatabase,
    cell: &CellSettings,
    version: u64,
    hash_key: u64,
    now: u64,
) -> Result<BuiltContent, PlaneError> {
    let texts = database.rule_texts(version).await?;
    let seconds = now / 1_000;
    let rows = read_rows(database, version, seconds).await?;
    let row_count: usize = rows.values().map(BTreeMap::len).sum();
    let (keys, key_count) = read_keys(database, version, seconds).await?;
    let switches = read_switches(database, version, seconds).await?;
    let rows = place_rows(&rows, cell, hash_key)?;
    check_rules(&texts, &rows).map_err(PlaneError::Invalid)?;
    let document =
        |(name, text): &(String, String)| DocumentText { name: name.clone(), text: text.clone() };
    let documents: Vec<DocumentText> = texts.files().iter().map(document).collect();
    let counts = ContentCounts {
        documents: documents.len() as u64,
        rows: row_count as u64,
        keys: key_count,
    };
    let rules = RulesPart { documents, terms: rows.terms };
    Ok(BuiltContent {
        content: SnapshotContent { rules, keys, switches, table: rows.table },
        counts,
    })
}

/// Calls `each` with every entry of a kind that has not ended.
async fn read_all(
    database: &RulesDatabase,
    kind: EntryKind,
    version: u64,
    seconds: u64,
    mut each: impl FnMut(Entry) -> Result<(), PlaneError>,
) -> Result<(), PlaneError> {
    let mut after = (String::new(), String::new());
    loop {
        let query = PageQuery { kind, collection: None, after, version, limit: PAGE_MAX };
        let page = database.page(query).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = (last.key.collection.clone(), last.key.name.clone());
        let ended = |entry: &Entry| entry.until.is_some_and(|until| until <= seconds);
        page.into_iter().filter(|entry| !ended(entry)).try_for_each(&mut each)?;
    }
}

/// The rows of each table: a client has the row of its plan unless it has one of its own.
async fn read_rows(
    database: &RulesDatabase,
    version: u64,
    seconds: u64,
) -> Result<BTreeMap<String, BTreeMap<String, RowTerms>>, PlaneError> {
    let mut tables: BTreeMap<String, BTreeMap<String, RowTerms>> = BTreeMap::new();
    for (kind, field) in [(EntryKind::Client, "plan"), (EntryKind::Row, "terms")] {
        let add = |entry: Entry| {
            let terms = entry.text(field);
            // The service checked it; a database that was edited by hand must not publish blanks.
            if terms.trim().is_empty() {
                let problem = InputProblem::new(entry.key.to_string(), "the terms are blank");
                return Err(PlaneError::Invalid(vec![problem]));
            }
            let table = tables.entry(entry.key.collection).or_default();
            table.insert(entry.key.name, (terms, entry.until));
            Ok(())
        };
        read_all(database, kind, version, seconds, add).await?;
    }
    Ok(tables)
}

fn place_rows(
    tables: &BTreeMap<String, BTreeMap<String, RowTerms>>,
    cell: &CellSettings,
    hash_key: u64,
) -> Result<Rows, PlaneError> {
    let mut names = Vec::with_capacity(tables.len());
    for collection in tables.keys() {
        let (domain, table) = split_collection(collection)
            .ok_or_else(|| PlaneError::invalid(collection.as_str(), "expected DOMAIN/TABLE"))?;
        names.push(TableName { domain: domain.to_owned(), table: table.to_owned() });
    }
    let mut rows = Vec::new();
    for (name, table) in names.iter().zip(tables.values()) {
        rows.extend(table.iter().map(|(value, (terms, until))| NewRow {
            table: name,
            value,
            terms,
            until: until.map(Minute::from_seconds),
        }));
    }
    let capacity = cell.class.rows_max();
    Rows::build(capacity, hash_key, &rows).map_err(|error| PlaneError::Full(error.to_string()))
}

/// The API keys as the lines of a key file.
async fn read_keys(
    database: &RulesDatabase,
    version: u64,
    seconds: u64,
) -> Result<(String, u64), PlaneError> {
    let (mut lines, mut count) = (String::new(), 0);
    let add = |entry: Entry| {
        let line = format!("{} {} {}\n", entry.key.name, entry.text("owner"), entry.text("plan"));
        lines.push_str(&line);
        count += 1;
        Ok(())
    };
    read_all(database, EntryKind::Key, version, seconds, add).await?;
    Ok((lines, count))
}

async fn read_switches(
    database: &RulesDatabase,
    version: u64,
    seconds: u64,
) -> Result<Vec<SwitchSetting>, PlaneError> {
    let mut switches = Vec::new();
    let add = |entry: Entry| {
        let target: SwitchTarget = serde_json::from_value(entry.value())
            .map_err(|error| PlaneError::invalid(entry.key.to_string(), error.to_string()))?;
        let mode = entry.text("mode");
        let (until, set_by, why) = (entry.until, entry.set_by, entry.why);
        switches.push(SwitchSetting { target, mode, until, set_by, why });
        Ok(())
    };
    read_all(database, EntryKind::Switch, version, seconds, add).await?;
    Ok(switches)
}
