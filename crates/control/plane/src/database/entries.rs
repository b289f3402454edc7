//! Entries: reading them as they are at a version, and changing them.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_row_table::{NewRow, Rows, TableName};

use super::audit::{self, AuditFields};
use super::session::{Row, Session, values};
use crate::change::{
    ApplyOutcome, Author, Change, ChangeAction, ChangeSet, Difference, Expectation, VersionView,
};
use crate::content::{RuleTexts, check_rules, split_collection};
use crate::entry::{Entry, EntryKey, EntryKind, EntryView, show_time};
use crate::error::PlaneError;

/// The most different terms of the rows of all tables.
pub const TERMS_MAX: u64 = 4_096;
/// Entries of one page.
pub const PAGE_MAX: u64 = 20_000;
/// Entries that a difference lists.
pub const DIFFERENCES_MAX: u64 = 100_000;

const COLUMNS: &str =
    "kind, collection, name, from_version, body, until_at, owner, set_by, set_at, why";
/// The entry is as it is at the version `$N`, given twice.
fn at_version(first: u8) -> String {
    format!("from_version <= ${first} AND (to_version IS NULL OR to_version > ${})", first + 1)
}

pub(super) fn entry(row: &Row) -> Result<Entry, PlaneError> {
    let word = row.text(0)?;
    let kind = EntryKind::from_word(&word)
        .ok_or_else(|| PlaneError::Damaged(format!("an entry is a `{word}`")))?;
    Ok(Entry {
        key: EntryKey { kind, collection: row.text(1)?, name: row.text(2)? },
        version: row.number(3)?,
        body: row.text(4)?,
        until: row.maybe_number(5)?,
        owner: row.text(6)?,
        set_by: row.text(7)?,
        set_at: row.number(8)?,
        why: row.text(9)?,
    })
}

/// The newest version.
pub(super) async fn newest(session: &mut Session) -> Result<u64, PlaneError> {
    session.query_one("SELECT version FROM heads WHERE id = $1", values![1]).await?.number(0)
}

/// An entry as it is at a version.
pub(super) async fn find(
    session: &mut Session,
    key: &EntryKey,
    version: u64,
) -> Result<Option<Entry>, PlaneError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM entries WHERE kind = $1 AND collection = $2 AND name = $3 AND {}",
        at_version(4)
    );
    let values = values![key.kind.as_str(), &key.collection, &key.name, version, version];
    session.query(&sql, values).await?.first().map(entry).transpose()
}

/// Which entries a page has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// Their kind.
    pub kind: EntryKind,
    /// Only this collection.
    pub collection: Option<String>,
    /// After this collection and name.
    pub after: (String, String),
    /// At this version.
    pub version: u64,
    /// As many at most.
    pub limit: u64,
}

/// A page of entries, ordered by collection and name.
pub(super) async fn page(
    session: &mut Session,
    query: &PageQuery,
) -> Result<Vec<Entry>, PlaneError> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let (after_collection, after_name) = &query.after;
    let (kind, version) = (query.kind.as_str(), query.version);
    let rows = match &query.collection {
        None => {
            let sql = format!(
                "SELECT {COLUMNS} FROM entries WHERE kind = $1 AND (collection, name) > ($2, $3) AND {} \
                 ORDER BY collection, name LIMIT $6",
                at_version(4)
            );
            let values = values![kind, after_collection, after_name, version, version, limit];
            session.query(&sql, values).await?
        }
        Some(collection) => {
            let sql = format!(
                "SELECT {COLUMNS} FROM entries WHERE kind = $1 AND collection = $2 AND name > $3 AND {} \
                 ORDER BY name LIMIT $6",
                at_version(4)
            );
            let values = values![kind, collection, after_name, version, version, limit];
            session.query(&sql, values).await?
        }
    };
    rows.iter().map(entry).collect()
}

/// A change with the entry that it meets.
struct PlannedChange {
    key: EntryKey,
    before: Option<Entry>,
    after: Option<Entry>,
}

/// Applies a set of changes: all of them, or none.
pub(super) async fn apply(
    session: &mut Session,
    set: &ChangeSet,
    rows_max: u64,
    now_millis: u64,
) -> Result<ApplyOutcome, PlaneError> {
    let mut problems = set.check();
    let version = lock(session).await?;
    if let Some(base) = set.base.filter(|base| *base != version) {
        return Err(PlaneError::OldBase { expected: base, found: version });
    }
    let next = version.saturating_add(1);
    let mut planned = Vec::new();
    for (index, change) in set.changes.iter().enumerate() {
        let before = find(session, &change.key, version).await?;
        match plan(change, before, index, set, next, now_millis) {
            Ok(Some(change)) => planned.push(change),
            Ok(None) => {}
            Err(PlaneError::Invalid(found)) => problems.extend(found),
            Err(error) => return Err(error),
        }
    }
    if !problems.is_empty() {
        return Err(PlaneError::Invalid(problems));
    }
    if planned.is_empty() {
        return Ok(ApplyOutcome { version, changed: 0 });
    }
    for change in &planned {
        store(session, change, next).await?;
    }
    let has_new_terms = count(session, &planned, rows_max).await?;
    if has_new_terms || planned.iter().any(|change| change.key.kind.is_compiled()) {
        let (texts, rows) = (rule_texts(session, next).await?, terms_in_use(session).await?);
        check_rules(&texts, &rows).map_err(PlaneError::Invalid)?;
    }
    record_version(session, set, &mut planned, next, now_millis).await?;
    Ok(ApplyOutcome { version: next, changed: planned.len() as u64 })
}

/// Notes the version, and its row in the audit.
async fn record_version(
    session: &mut Session,
    set: &ChangeSet,
    planned: &mut [PlannedChange],
    next: u64,
    now_millis: u64,
) -> Result<(), PlaneError> {
    let changed = planned.len() as u64;
    let digest = digest(planned);
    let values = values![
        next,
        &set.author.name,
        now_millis,
        &set.why,
        &set.ticket,
        changed,
        set.restored,
        digest.as_bytes().as_slice(),
    ];
    session.execute("INSERT INTO versions VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", values).await?;
    session.execute("UPDATE heads SET version = $1 WHERE id = $2", values![next, 1]).await?;
    let object = match &*planned {
        [only] => only.key.to_string(),
        several => format!("{} entries", several.len()),
    };
    let fields = AuditFields {
        actor: &set.author.name,
        action: if set.restored.is_some() { "restore" } else { "change" },
        object: &object,
        outcome: "applied",
        version: Some(next),
        why: &set.why,
        digest: digest.as_bytes(),
    };
    audit::append(session, &fields, now_millis).await
}

/// Takes the lock that all writers take. Returns the newest version.
async fn lock(session: &mut Session) -> Result<u64, PlaneError> {
    let sql = "UPDATE heads SET writes = writes + 1 WHERE id = $1 RETURNING version";
    session.query_one(sql, values![1]).await?.number(0)
}

/// What a change does to the entry that it meets; nothing if that is already as it is to be.
fn plan(
    change: &Change,
    before: Option<Entry>,
    index: usize,
    set: &ChangeSet,
    next: u64,
    now_millis: u64,
) -> Result<Option<PlannedChange>, PlaneError> {
    let key = &change.key;
    let after = match &change.action {
        ChangeAction::Remove => None,
        ChangeAction::Set { body, until, owner } => {
            let place = format!("changes[{index}]");
            let checked = key.kind.check(&place, &key.name, body);
            let body = checked.map_err(|problem| PlaneError::Invalid(vec![problem]))?;
            let inherited = before.as_ref().map_or(&set.author.owner, |before| &before.owner);
            Some(Entry {
                key: key.clone(),
                body,
                until: *until,
                owner: owner.as_ref().unwrap_or(inherited).clone(),
                version: next,
                set_by: set.author.name.clone(),
                set_at: now_millis,
                why: set.why.clone(),
            })
        }
    };
    // Before the expectation: a change that arrives twice is one change.
    let same = match (&before, &after) {
        (Some(before), Some(after)) => {
            (&before.body, before.until, &before.owner) == (&after.body, after.until, &after.owner)
        }
        (None, None) => change.expectation == Expectation::Anything,
        _ => false,
    };
    if same {
        return Ok(None);
    }
    if (&before, &after) == (&None, &None) {
        return Err(PlaneError::NotFound(key.to_string()));
    }
    let expected = match change.expectation {
        Expectation::Anything => true,
        Expectation::Absent => before.is_none(),
        Expectation::Version(version) => {
            before.as_ref().is_some_and(|before| before.version == version)
        }
    };
    if !expected {
        return Err(PlaneError::Stale { key: key.clone(), found: before.map(Box::new) });
    }
    check_owner(&set.author, key, [before.as_ref(), after.as_ref()])?;
    Ok(Some(PlannedChange { key: key.clone(), before, after }))
}

fn check_owner(
    author: &Author,
    key: &EntryKey,
    states: [Option<&Entry>; 2],
) -> Result<(), PlaneError> {
    let foreign = |entry: &&Entry| entry.owner != author.owner;
    let Some(found) = states.into_iter().flatten().find(foreign) else { return Ok(()) };
    if author.owner.is_empty() {
        return Ok(());
    }
    let owner = if found.owner.is_empty() { "nobody in particular" } else { &found.owner };
    Err(PlaneError::Forbidden(format!(
        "the token `{}` changes entries of {}, and {key} belongs to {owner}",
        author.name, author.owner
    )))
}

async fn store(session: &mut Session, change: &PlannedChange, next: u64) -> Result<(), PlaneError> {
    let (kind, collection, name) =
        (change.key.kind.as_str(), &change.key.collection, &change.key.name);
    if change.before.is_some() {
        let sql = "UPDATE entries SET to_version = $1 \
                   WHERE kind = $2 AND collection = $3 AND name = $4 AND to_version IS NULL";
        session.execute(sql, values![next, kind, collection, name]).await?;
    }
    if let Some(entry) = &change.after {
        let sql = "INSERT INTO entries VALUES ($1, $2, $3, $4, NULL, $5, $6, $7, $8, $9, $10)";
        let values = values![
            kind,
            collection,
            name,
            next,
            &entry.body,
            entry.until,
            &entry.owner,
            &entry.set_by,
            entry.set_at,
            &entry.why,
        ];
        session.execute(sql, values).await?;
    }
    Ok(())
}

/// Keeps the counts of entries, and refuses more than the maxima. Returns whether there are terms that no row had.
async fn count(
    session: &mut Session,
    planned: &[PlannedChange],
    rows_max: u64,
) -> Result<bool, PlaneError> {
    let mut deltas: BTreeMap<(EntryKind, String, String), i64> = BTreeMap::new();
    for change in planned {
        for (entry, delta) in [(&change.before, -1), (&change.after, 1)] {
            let Some(entry) = entry else { continue };
            let terms = match entry.key.kind {
                EntryKind::Row => entry.text("terms"),
                EntryKind::Client => entry.text("plan"),
                _ => String::new(),
            };
            let total = (entry.key.kind, entry.key.collection.clone(), terms);
            *deltas.entry(total).or_default() += delta;
        }
    }
    deltas.retain(|_, delta| *delta != 0);
    let grown: BTreeSet<EntryKind> =
        deltas.iter().filter(|(_, delta)| **delta > 0).map(|((kind, _, _), _)| *kind).collect();
    let mut has_new_terms = false;
    for ((kind, collection, terms), delta) in deltas {
        let (added, removed) = (delta.max(0).unsigned_abs(), delta.min(0).unsigned_abs());
        let sql = "INSERT INTO totals VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (kind, collection, terms) DO UPDATE SET entries = totals.entries + $5 - $6 \
                   RETURNING entries";
        let values = values![kind.as_str(), collection, &terms, added, added, removed];
        let total = session.query_one(sql, values).await?.number(0)?;
        has_new_terms |= !terms.is_empty() && added > 0 && total == added;
    }
    session.execute("DELETE FROM totals WHERE entries <= $1", values![0]).await?;
    for kind in grown {
        let found = totals(session, kind).await?;
        let max = kind.entries_max(rows_max);
        if found.entries > max {
            let text = format!(
                "that would be {} entries of the kind {}, and there is room for {max}; remove some, or move to a \
                 larger cell",
                found.entries,
                kind.as_str()
            );
            return Err(PlaneError::Full(text));
        }
        if kind == EntryKind::Row && found.terms > TERMS_MAX {
            let text = format!(
                "rows would have {} different terms, and there is room for {TERMS_MAX}; round their numbers",
                found.terms
            );
            return Err(PlaneError::Full(text));
        }
    }
    Ok(has_new_terms)
}

/// How many entries of a kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In all collections.
    pub entries: u64,
    /// Their different terms.
    pub terms: u64,
}

pub(super) async fn totals(session: &mut Session, kind: EntryKind) -> Result<Totals, PlaneError> {
    let sql = "SELECT CAST(coalesce(sum(entries), 0) AS BIGINT), count(DISTINCT terms) \
               FROM totals WHERE kind = $1";
    let row = session.query_one(sql, values![kind.as_str()]).await?;
    Ok(Totals { entries: row.number(0)?, terms: row.number(1)? })
}

/// A row of each table for each of its terms: what the rules have to fit.
async fn terms_in_use(session: &mut Session) -> Result<Rows, PlaneError> {
    let sql = "SELECT collection, terms FROM totals WHERE kind = $1 OR kind = $2 ORDER BY collection, terms";
    let kinds = values![EntryKind::Row.as_str(), EntryKind::Client.as_str()];
    let mut found = Vec::new();
    for (number, row) in session.query(sql, kinds).await?.iter().enumerate() {
        let collection = row.text(0)?;
        // The service checked it: every collection of rows is a table.
        let Some((domain, table)) = split_collection(&collection) else { continue };
        let table = TableName { domain: domain.to_owned(), table: table.to_owned() };
        found.push((table, row.text(1)?, number.to_string()));
    }
    let rows: Vec<NewRow<'_>> = found
        .iter()
        .map(|(table, terms, value)| NewRow { table, value, terms, until: None })
        .collect();
    Rows::build(rows.len().max(1), 0, &rows).map_err(|error| PlaneError::Full(error.to_string()))
}

/// The rule files of a version.
pub(super) async fn rule_texts(
    session: &mut Session,
    version: u64,
) -> Result<RuleTexts, PlaneError> {
    let mut entries = Vec::new();
    for kind in [EntryKind::Document, EntryKind::Plan] {
        let after = (String::new(), String::new());
        let query = PageQuery { kind, collection: None, after, version, limit: PAGE_MAX };
        entries.extend(page(session, &query).await?);
    }
    Ok(RuleTexts::of_entries(&entries))
}

/// The hash of what a version changed.
fn digest(planned: &mut [PlannedChange]) -> blake3::Hash {
    planned.sort_by(|one, other| one.key.cmp(&other.key));
    let mut hasher = blake3::Hasher::new();
    for change in planned {
        digest_change(&mut hasher, &change.key, change.after.as_ref());
    }
    hasher.finalize()
}

fn digest_change(hasher: &mut blake3::Hasher, key: &EntryKey, after: Option<&Entry>) {
    let mut text = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    text(key.kind.as_str());
    text(&key.collection);
    text(&key.name);
    match after {
        None => text("removed"),
        Some(entry) => {
            text("set");
            text(&entry.body);
            text(&entry.owner);
            text(&entry.set_by);
            text(&entry.why);
            text(&entry.until.map(|until| until.to_string()).unwrap_or_default());
            text(&entry.set_at.to_string());
        }
    }
}

/// The hash of what a version changed, from the entries as they are stored now.
pub(super) async fn stored_digest(
    session: &mut Session,
    version: u64,
) -> Result<blake3::Hash, PlaneError> {
    let mut hasher = blake3::Hasher::new();
    for (key, [_, after]) in changed_keys(session, version.saturating_sub(1), version).await? {
        digest_change(&mut hasher, &key, after.as_ref());
    }
    Ok(hasher.finalize())
}

type States = BTreeMap<EntryKey, [Option<Entry>; 2]>;

/// The entries that differ between two versions, as they are at both.
async fn changed_keys(session: &mut Session, from: u64, to: u64) -> Result<States, PlaneError> {
    let mut states = States::new();
    let begun = format!(
        "SELECT {COLUMNS} FROM entries WHERE from_version > $1 AND from_version <= $2 \
                         AND (to_version IS NULL OR to_version > $3)"
    );
    for row in session.query(&begun, values![from, to, to]).await? {
        let entry = entry(&row)?;
        let key = entry.key.clone();
        states.entry(key).or_default()[1] = Some(entry);
    }
    let ended = format!(
        "SELECT {COLUMNS} FROM entries WHERE to_version > $1 AND to_version <= $2 \
                         AND from_version <= $3"
    );
    for row in session.query(&ended, values![from, to, from]).await? {
        let entry = entry(&row)?;
        let key = entry.key.clone();
        states.entry(key).or_default()[0] = Some(entry);
    }
    Ok(states)
}

/// What differs between two versions.
pub(super) async fn differences(
    session: &mut Session,
    from: u64,
    to: u64,
) -> Result<Vec<Difference>, PlaneError> {
    check_version(session, from).await?;
    check_version(session, to).await?;
    let (low, high) = (from.min(to), from.max(to));
    let states = changed_keys(session, low, high).await?;
    if states.len() as u64 > DIFFERENCES_MAX {
        let text = format!("more than {DIFFERENCES_MAX} entries differ; compare exports instead");
        return Err(PlaneError::Full(text));
    }
    let view = |entry: Option<Entry>| entry.as_ref().map(EntryView::from);
    let difference = |(key, [before, after]): (EntryKey, [Option<Entry>; 2])| {
        let (before, after) = if from <= to { (before, after) } else { (after, before) };
        Difference {
            kind: key.kind.as_str().to_owned(),
            collection: key.collection,
            name: key.name,
            before: view(before),
            after: view(after),
        }
    };
    Ok(states.into_iter().map(difference).collect())
}

/// The changes that bring back the content of a version.
pub(super) async fn restoring_changes(
    session: &mut Session,
    version: u64,
) -> Result<Vec<Change>, PlaneError> {
    check_version(session, version).await?;
    let newest = newest(session).await?;
    let states = changed_keys(session, version, newest).await?;
    let restored = states.into_iter().filter(|(key, _)| key.kind.is_restored());
    Ok(restored
        .map(|(key, [then, _])| match then {
            None => Change::remove(key),
            Some(entry) => Change {
                key,
                expectation: Expectation::Anything,
                action: ChangeAction::Set {
                    body: entry.value(),
                    until: entry.until,
                    owner: Some(entry.owner),
                },
            },
        })
        .collect())
}

async fn check_version(session: &mut Session, version: u64) -> Result<(), PlaneError> {
    if version <= newest(session).await? {
        return Ok(());
    }
    Err(PlaneError::NotFound(format!("version {version}")))
}

const VERSION_COLUMNS: &str = "number, author, made_at, why, ticket, changes, restored";

fn version_view(row: &Row) -> Result<VersionView, PlaneError> {
    Ok(VersionView {
        version: row.number(0)?,
        author: row.text(1)?,
        at: show_time(row.number(2)?),
        why: row.text(3)?,
        ticket: row.text(4)?,
        changes: row.number(5)?,
        restored: row.maybe_number(6)?,
    })
}

/// Versions before one, newest first.
pub(super) async fn versions(
    session: &mut Session,
    before: u64,
    limit: u64,
) -> Result<Vec<VersionView>, PlaneError> {
    let sql = format!(
        "SELECT {VERSION_COLUMNS} FROM versions WHERE number < $1 ORDER BY number DESC LIMIT $2"
    );
    let rows = session.query(&sql, values![before, limit.clamp(1, 1_000)]).await?;
    rows.iter().map(version_view).collect()
}
