//! Drafts: proposed, checked, reviewed, published.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidegate_access::Role;

use super::answer::{Answer, Rejection, json as json_answer};
use super::entries::{ChangeSetBody, read_changes};
use super::{Caller, RulesService, read_json};
use crate::change::ChangeSet;
use crate::database::{Draft, DraftState, ReviewNote};
use crate::entry::{EntryKey, EntryKind, show_time};
use crate::error::PlaneError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewBody {
    text: String,
    #[serde(default)]
    approve: bool,
}

pub(super) async fn list(service: &RulesService) -> Result<Answer, Rejection> {
    let drafts = service.0.database.drafts().await?;
    Ok(json_answer(StatusCode::OK, &json!({ "drafts": drafts })))
}

pub(super) async fn get(service: &RulesService, name: &str) -> Result<Answer, Rejection> {
    Ok(json_answer(StatusCode::OK, &service.0.database.draft(name.to_owned()).await?))
}

pub(super) async fn put(
    service: &RulesService,
    name: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: ChangeSetBody = read_json(&caller.body, "{\"why\": \"…\", \"changes\": […]}")?;
    // A draft is a name in the audit, as entries are.
    let named = EntryKey::new(EntryKind::Document, name).check("draft");
    named.map_err(|problem| PlaneError::Invalid(vec![problem]))?;
    let newest = service.0.database.version().await?;
    let base = read.base.unwrap_or(newest);
    if base > newest {
        return Err(PlaneError::NotFound(format!("version {base}")).into());
    }
    let changes = read_changes(read.changes.clone())?;
    let set = ChangeSet::new(caller.author.clone(), read.why.clone(), changes);
    service.check(caller, set, true).await?;
    let draft = Draft {
        name: name.to_owned(),
        base,
        author: caller.author.name.clone(),
        at: show_time(service.now_millis()),
        why: read.why,
        state: DraftState::Open.as_str().to_owned(),
        changes: read.changes,
        notes: Vec::new(),
    };
    service.0.database.put_draft(draft, service.now_millis()).await?;
    get(service, name).await
}

pub(super) async fn delete(service: &RulesService, name: &str) -> Result<Answer, Rejection> {
    service.0.database.remove_draft(name.to_owned()).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "draft": name, "deleted": true })))
}

/// The changes of a draft, by its author, if nothing that it changes was changed since.
async fn change_set(
    service: &RulesService,
    draft: &Draft,
    caller: &Caller<'_>,
) -> Result<ChangeSet, Rejection> {
    let database = &service.0.database;
    let changes = read_changes(draft.changes.clone())?;
    for change in &changes {
        let then = database.entry(change.key.clone(), draft.base).await?;
        let now = database.entry(change.key.clone(), database.version().await?).await?;
        let version = |entry: &Option<crate::entry::Entry>| entry.as_ref().map(|one| one.version);
        if version(&then) != version(&now) {
            let (key, found) = (change.key.clone(), now.map(Box::new));
            return Err(PlaneError::Stale { key, found }.into());
        }
    }
    // The audit names who published it; the draft names who wrote it.
    let mut set = ChangeSet::new(caller.author.clone(), draft.why.clone(), changes);
    set.ticket = format!("draft {}", draft.name);
    Ok(set)
}

pub(super) async fn check(
    service: &RulesService,
    name: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let draft = service.0.database.draft(name.to_owned()).await?;
    let set = change_set(service, &draft, caller).await?;
    let (rows_max, now) = (service.0.cell.rows_max(), service.now_millis());
    let checked = service.0.database.check(set, rows_max, now).await?;
    let view = json!({ "draft": name, "changed": checked.changed, "base": draft.base });
    Ok(json_answer(StatusCode::OK, &view))
}

pub(super) async fn review(
    service: &RulesService,
    name: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let read: ReviewBody =
        read_json(&caller.body, "{\"text\": \"looks right\", \"approve\": true}")?;
    if read.text.trim().is_empty() || read.text.len() > crate::entry::WHY_BYTES_MAX {
        return Err(PlaneError::invalid("text", "expected a note of up to 1024 bytes").into());
    }
    let note = ReviewNote {
        by: caller.author.name.clone(),
        at: show_time(service.now_millis()),
        text: read.text,
        approves: read.approve,
    };
    let needed = service.0.cell.approvals;
    let draft = service.0.database.review_draft(name.to_owned(), note, needed).await?;
    Ok(json_answer(StatusCode::OK, &draft))
}

pub(super) async fn publish(
    service: &RulesService,
    name: &str,
    caller: &Caller<'_>,
) -> Result<Answer, Rejection> {
    let database = &service.0.database;
    let draft = database.draft(name.to_owned()).await?;
    if draft.state == DraftState::Published.as_str() {
        return Err(PlaneError::Conflict(format!("the draft `{name}` is published")).into());
    }
    let (needed, found) = (service.0.cell.approvals, draft.approvals() as u64);
    if found < needed {
        let text = format!("the draft `{name}` has {found} of {needed} approvals");
        return Err(PlaneError::Forbidden(text).into());
    }
    let set = change_set(service, &draft, caller).await?;
    if set.changes.iter().any(|change| change.key.kind == EntryKind::Switch) {
        service.authorize(caller.headers, Role::Operate)?;
    }
    let (rows_max, now) = (service.0.cell.rows_max(), service.now_millis());
    let applied = database.publish_draft(name.to_owned(), set, rows_max, now).await?;
    Ok(json_answer(StatusCode::OK, &applied))
}
