//! Drafts: changes that wait for a review.

use serde::{Deserialize, Serialize};
use tidegate_words::words;

use super::session::{Row, Session, values};
use crate::change::ChangeView;
use crate::entry::show_time;
use crate::error::PlaneError;

/// The most drafts that are kept.
const DRAFTS_MAX: u64 = 1_000;
/// The most notes of a draft.
const NOTES_MAX: usize = 100;

words! {
    /// How far a draft is.
    pub enum DraftState {
        /// It waits for a review.
        Open = "open",
        /// Somebody else than its author has approved it.
        Approved = "approved",
        /// Its changes are a version.
        Published = "published",
    }
}

/// What a reviewer said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewNote {
    /// The name of the token.
    pub by: String,
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// The note.
    pub text: String,
    /// Whether it approves the draft.
    pub approves: bool,
}

/// A draft.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Draft {
    /// Its name, chosen by its author.
    pub name: String,
    /// The version that it was made from.
    pub base: u64,
    /// Who made it.
    pub author: String,
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// Why.
    pub why: String,
    /// `open`, `approved` or `published`.
    pub state: String,
    /// Its changes.
    pub changes: Vec<ChangeView>,
    /// What reviewers said.
    pub notes: Vec<ReviewNote>,
}

impl Draft {
    /// How many people other than the author approve it.
    pub fn approvals(&self) -> usize {
        let approving = self.notes.iter().filter(|note| note.approves && note.by != self.author);
        approving.map(|note| &note.by).collect::<std::collections::BTreeSet<_>>().len()
    }
}

const COLUMNS: &str = "name, base, author, made_at, why, state, changes, notes";

fn draft(row: &Row) -> Result<Draft, PlaneError> {
    let damaged = |error: serde_json::Error| PlaneError::Damaged(format!("a draft: {error}"));
    Ok(Draft {
        name: row.text(0)?,
        base: row.number(1)?,
        author: row.text(2)?,
        at: show_time(row.number(3)?),
        why: row.text(4)?,
        state: row.text(5)?,
        changes: serde_json::from_str(&row.text(6)?).map_err(damaged)?,
        notes: serde_json::from_str(&row.text(7)?).map_err(damaged)?,
    })
}

pub(super) async fn find(session: &mut Session, name: &str) -> Result<Draft, PlaneError> {
    let sql = format!("SELECT {COLUMNS} FROM drafts WHERE name = $1");
    let rows = session.query(&sql, values![name]).await?;
    let found = rows.first().ok_or_else(|| PlaneError::NotFound(format!("draft `{name}`")))?;
    draft(found)
}

pub(super) async fn list(session: &mut Session) -> Result<Vec<Draft>, PlaneError> {
    let sql = format!("SELECT {COLUMNS} FROM drafts ORDER BY made_at DESC, name LIMIT $1");
    session.query(&sql, values![DRAFTS_MAX]).await?.iter().map(draft).collect()
}

/// Stores a draft. An open one of the same name and author is replaced, and loses its notes.
pub(super) async fn put(
    session: &mut Session,
    draft: &Draft,
    now_millis: u64,
) -> Result<(), PlaneError> {
    match find(session, &draft.name).await {
        Ok(found) if found.state == DraftState::Published.as_str() => {
            let text = format!("the draft `{}` is published; choose another name", draft.name);
            return Err(PlaneError::Conflict(text));
        }
        Ok(found) if found.author != draft.author => {
            let text = format!("the draft `{}` belongs to `{}`", draft.name, found.author);
            return Err(PlaneError::Conflict(text));
        }
        Ok(_) | Err(PlaneError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    let count = session.query_one("SELECT count(*) FROM drafts", values![]).await?.number(0)?;
    if count >= DRAFTS_MAX {
        return Err(PlaneError::Full(format!("there are {DRAFTS_MAX} drafts; delete some")));
    }
    let json = |error: serde_json::Error| PlaneError::invalid("changes", error.to_string());
    let changes = serde_json::to_string(&draft.changes).map_err(json)?;
    session.execute("DELETE FROM drafts WHERE name = $1", values![&draft.name]).await?;
    let sql = "INSERT INTO drafts VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let state = DraftState::Open.as_str();
    let values = values![
        &draft.name,
        draft.base,
        &draft.author,
        now_millis,
        &draft.why,
        state,
        changes,
        "[]"
    ];
    session.execute(sql, values).await?;
    Ok(())
}

/// Adds a note.
pub(super) async fn note(
    session: &mut Session,
    name: &str,
    note: &ReviewNote,
    approvals_needed: u64,
) -> Result<Draft, PlaneError> {
    let mut draft = find(session, name).await?;
    if draft.state == DraftState::Published.as_str() {
        return Err(PlaneError::Conflict(format!("the draft `{name}` is published")));
    }
    if note.approves && note.by == draft.author {
        let text = "nobody approves a draft of their own; ask somebody else";
        return Err(PlaneError::Forbidden(text.to_owned()));
    }
    if draft.notes.len() >= NOTES_MAX {
        return Err(PlaneError::Full(format!("a draft has up to {NOTES_MAX} notes")));
    }
    draft.notes.push(note.clone());
    let approved = draft.approvals() as u64 >= approvals_needed.max(1);
    let state = if approved { DraftState::Approved } else { DraftState::Open };
    draft.state = state.as_str().to_owned();
    let notes = serde_json::to_string(&draft.notes)
        .map_err(|error| PlaneError::invalid("text", error.to_string()))?;
    let sql = "UPDATE drafts SET notes = $1, state = $2 WHERE name = $3";
    session.execute(sql, values![notes, &draft.state, name]).await?;
    Ok(draft)
}

pub(super) async fn set_published(session: &mut Session, name: &str) -> Result<(), PlaneError> {
    let state = DraftState::Published.as_str();
    session.execute("UPDATE drafts SET state = $1 WHERE name = $2", values![state, name]).await?;
    Ok(())
}

pub(super) async fn remove(session: &mut Session, name: &str) -> Result<(), PlaneError> {
    find(session, name).await?;
    session.execute("DELETE FROM drafts WHERE name = $1", values![name]).await?;
    Ok(())
}
