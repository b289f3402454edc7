//! Entries, sets of changes, versions.

use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_access::Role;

use super::answer::{self, Answer, Rejection, json as json_answer};
use super::routes::Query;
use super::{Caller, RulesService, read_json};
use crate::change::{
    ApplyOutcome, Change, ChangeAction, ChangeSet, ChangeView, Expectation, read_until,
};
use crate::database::{PAGE_MAX, PageQuery};
use crate::entry::{EntryKey, EntryKind, EntryView};
use crate::error::PlaneError;

/// The header field with the reason of a change without a body.
const WHY_FIELD: &str = "x-why";
/// Stands for "no collection" in a path.
const NO_COLLECTION: &str = "-";

/// The body of a changed entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryBody {
    body: Value,
    until: Option<String>,
    owner: Option<String>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    ticket: String,
}

/// A set of changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeSetBody {
    pub(super) changes: Vec<ChangeView>,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) ticket: String,
    /// The newest version must be this.
    pub(super) base: Option<u64>,
    /// Checks everything, and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    why: String,
}

pub(super) fn kind(word: &str) -> Result<EntryKind, Rejection> {
    EntryKind::from_word(word).ok_or_else(|| {
        let detail =
            format!("`{word}` is no kind of entry; there are {}", EntryKind::WORDS.join(", "));
        Rejection::new(StatusCode::NOT_FOUND, detail)
    })
}

pub(super) fn key(word: &str, collection: &str, name: &str) -> Result<EntryKey, Rejection> {
    let collection = if collection == NO_COLLECTION { "" } else { collection };
    let key = EntryKey::new(kind(word)?, name).within(collection);
    key.check("path").map_err(|problem| PlaneError::Invalid(vec![problem]))?;
    Ok(key)
}

impl RulesService {
    /// The version that a query names, or the newest.
    async fn version_of(&self, query: &Query<'_>) -> Result<u64, Rejection> {
        let newest = self.0.database.version().await?;
        match query.number("at")? {
            Some(at) if at > newest => Err(PlaneError::NotFound(format!("version {at}")).into()),
            Some(at) => Ok(at),
            None => Ok(newest),
        }
    }

    /// Checks that the caller may change entries of these kinds directly.
    fn check_kinds(
        &self,
        caller: &Caller<'_>,
        changes: &[Change],
        approved: bool,
    ) -> Result<(), Rejection> {
        for kind in EntryKind::ALL {
            if !changes.iter().any(|change| change.key.kind == kind) {
                continue;
            }
            match kind {
                EntryKind::Switch => {
                    self.authorize(caller.headers, Role::Operate)?;
                }
                // A leaked key is revoked at once.
                EntryKind::Key => {}
                _ if self.0.cell.approvals > 0 && !approved => {
                    let text = format!(
                        "a {} is changed by a draft that somebody else approves; send it to `/v1/drafts/NAME`",
                        kind.as_str()
                    );
                    return Err(PlaneError::Forbidden(text).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) async fn apply(
        &self,
        caller: &Caller<'_>,
        set: ChangeSet,
    ) -> Result<ApplyOutcome, Rejection> {
        self.check_kinds(caller, &set.changes, false)?;
        Ok(self.0.database.apply(set, self.0.cell.rows_max(), self.now_millis()).await?)
    }

    /// Checks everything about a set, and changes nothing.
    pub(super) async fn check(
        &self,
        caller: &Caller<'_>,
        set: ChangeSet,
        approved: bool,
    ) -> Result<ApplyOutcome, Rejection> {
        self.check_kinds(caller, &set.changes, approved)?;
        Ok(self.0.database.check(set, self.0.cell.rows_max(), self.now_millis()).await?)
    }
}

/// Reads the changes of a body; all problems at once.
pub(super) fn read_changes(views: Vec<ChangeView>) -> Result<Vec<Change>, Rejection> {
    let mut problems = Vec::new();
    let mut changes = Vec::with_capacity(views.len());
    for (index, view) in views.into_iter().enumerate() {
        match view.read(&format!("changes[{index}]")) {
            Ok(change) => changes.push(change),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(changes) } else { Err(PlaneError::Invalid(problems).into()) }
}

pub(super) async fn list(
    service: &RulesService,
    word: &str,
    query: &Query<'_>,
) -> Result<Answer, Rejection> {
    let kind = kind(word)?;
    let version = service.version_of(query).await?;
    let limit = query.number("limit")?.unwrap_or(1_000).clamp(1, PAGE_MAX);
    let collection = query.text("collection");
    let after = query.text("after").unwrap_or_default();
    // The cursor is `collection`, a line feed, `name`: neither has control characters.
    let after = match after.split_once('\n') {
        Some((collection, name)) => (collection.to_owned(), name.to_owned()),
        None => (collection.clone().unwrap_or_default(), after),
    };
    let prefix = query.text("prefix").unwrap_or_default();
    let page = PageQuery { kind, collection, after, version, limit };
    let mut found = service.0.database.page(page).await?;
    let more = found.len() as u64 == limit;
    let next = found.last().filter(|_| more);
    let next = next.map(|last| format!("{}\n{}", last.key.collection, last.key.name));
    found.retain(|entry| entry.key.name.starts_with(&prefix));
    let entries: Vec<EntryView> = found.iter().map(EntryView::from).collect();
    let view = json!({ "version": version, "entries": entries, "after": next });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) async fn get(
    service: &RulesService,
    key: EntryKey,
    query: &Query<'_>,
) -> Result<Answer, Rejection> {
    let version = service.version_of(query).await?;
    let found = service.0.database.entry(key.clone(), version).await?;
    let found = found.ok_or_else(|| PlaneError::NotFound(key.to_string()))?;
    Ok(answer::entry(StatusCode::OK, &EntryView::from(&found)))
}

/// What the header fields say about the entry's state.
fn expectation(headers: &HeaderMap) -> Result<Expectation, PlaneError> {
    let field = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    match (field(IF_MATCH), field(IF_NONE_MATCH)) {
        (None, Some("*")) => Ok(Expectation::Absent),
        (Some(tag), None) => {
            let version = tag.strip_prefix("\"v").and_then(|rest| rest.strip_suffix('"'));
            let version = version.and_then(|version| version.parse().ok());
            version.map(Expectation::Version).ok_or_else(|| {
                PlaneError::invalid("If-Match", "expected the ETag of the entry, such as \"v12\"")
            })
        }
        _ => Err(PlaneError::NoPrecondition),
    }
}

pub(super) async fn put(
    service: &RulesService,
    key: EntryKey,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: EntryBody =
        read_json(&caller.body, "{\"body\": {\"terms\": \"rate=500\"}, \"why\": \"…\"}")?;
    let until = read.until.as_deref().map(|text| read_until(text, "body")).transpose();
    let until = until.map_err(|problem| PlaneError::Invalid(vec![problem]))?;
    let change = Change {
        key: key.clone(),
        expectation: expectation(caller.headers)?,
        action: ChangeAction::Set { body: read.body, until, owner: read.owner },
    };
    let mut set = ChangeSet::new(caller.author.clone(), read.why, vec![change]);
    set.ticket = read.ticket;
    let applied = service.apply(caller, set).await?;
    let found = service.0.database.entry(key.clone(), applied.version).await?;
    let found = found.ok_or_else(|| PlaneError::NotFound(key.to_string()))?;
    Ok(answer::entry(StatusCode::OK, &EntryView::from(&found)))
}

pub(super) async fn delete(
    service: &RulesService,
    key: EntryKey,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let why = caller.headers.get(WHY_FIELD).map(|why| String::from_utf8_lossy(why.as_bytes()));
    let change = Change::remove(key).expecting(expectation(caller.headers)?);
    let why = why.unwrap_or_default().into_owned();
    let set = ChangeSet::new(caller.author.clone(), why, vec![change]);
    Ok(json_answer(StatusCode::OK, &service.apply(caller, set).await?))
}

pub(super) async fn change(
    service: &RulesService,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: ChangeSetBody = read_json(
        &caller.body,
        "{\"why\": \"…\", \"changes\": [{\"kind\": \"row\", \"collection\": \"api/clients\", \"name\": \"acme\", \
         \"body\": {\"terms\": \"rate=500\"}}]}",
    )?;
    let mut set = ChangeSet::new(caller.author.clone(), read.why, read_changes(read.changes)?);
    (set.ticket, set.base) = (read.ticket, read.base);
    let applied = match read.dry_run {
        true => service.check(caller, set, false).await?,
        false => service.apply(caller, set).await?,
    };
    let view =
        json!({ "version": applied.version, "changed": applied.changed, "dry_run": read.dry_run });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) async fn versions(
    service: &RulesService,
    query: &Query<'_>,
) -> Result<Answer, Rejection> {
    let before = query.number("before")?.unwrap_or(u64::MAX);
    let limit = query.number("limit")?.unwrap_or(100);
    let versions = service.0.database.versions(before, limit).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "versions": versions })))
}

fn version_number(text: &str) -> Result<u64, Rejection> {
    text.parse().map_err(|_| PlaneError::NotFound(format!("version `{text}`")).into())
}

pub(super) async fn version(service: &RulesService, text: &str) -> Result<Answer, Rejection> {
    let number = version_number(text)?;
    let database = &service.0.database;
    let found = database.versions(number.saturating_add(1), 1).await?;
    let found = found.into_iter().find(|version| version.version == number);
    let found = found.ok_or_else(|| PlaneError::NotFound(format!("version {number}")))?;
    let differences = database.differences(number.saturating_sub(1), number).await?;
    let view = json!({ "version": found, "differences": differences });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) async fn restore(
    service: &RulesService,
    text: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let number = version_number(text)?;
    let read: RestoreBody =
        read_json(&caller.body, "{\"why\": \"the new limits refuse too much\"}")?;
    let (rows_max, now) = (service.0.cell.rows_max(), service.now_millis());
    let author = caller.author.clone();
    let applied = service.0.database.restore(number, author, read.why, rows_max, now).await?;
    Ok(json_answer(StatusCode::OK, &applied))
}

pub(super) async fn compare(
    service: &RulesService,
    query: &Query<'_>,
) -> Result<Answer, Rejection> {
    let newest = service.0.database.version().await?;
    let to = query.number("to")?.unwrap_or(newest);
    let from = query.number("from")?.unwrap_or_else(|| to.saturating_sub(1));
    let differences = service.0.database.differences(from, to).await?;
    let view = json!({ "from": from, "to": to, "differences": differences });
    Ok(json_answer(StatusCode::OK, &view))
}
