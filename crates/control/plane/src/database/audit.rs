//! The audit: a row for every change and every refusal, chained by hashes.
//!
//! The hash of a row covers the row before it, so that an edited, added or removed row breaks the chain at its place. The
//! row of a version has the digest of the entries that it changed, so that edited entries show too.

use serde::Serialize;

use super::entries::stored_digest;
use super::session::{Row, Session, values};
use crate::entry::show_time;
use crate::error::PlaneError;

/// Rows of one page.
const PAGE: u64 = 1_000;

/// What a row says.
pub(super) struct AuditFields<'f> {
    pub(super) actor: &'f str,
    pub(super) action: &'f str,
    pub(super) object: &'f str,
    pub(super) outcome: &'f str,
    pub(super) version: Option<u64>,
    pub(super) why: &'f str,
    pub(super) digest: &'f [u8],
}

/// A row of the audit in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditRow {
    /// Its number; without gaps.
    pub sequence: u64,
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// The name of the token.
    pub actor: String,
    /// `change`, `restore`, `token`, …
    pub action: String,
    /// Of what.
    pub object: String,
    /// `applied`, or why it was refused.
    pub outcome: String,
    /// The version that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The hash of this row and the one before it, in hexadecimal.
    pub hash: String,
}

/// What a check of the audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditCheck {
    /// The rows that were read.
    pub rows: u64,
    /// The hash of the newest row, in hexadecimal.
    pub head: String,
    /// The first row that is not as it was written, and what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<(u64, String)>,
}

const COLUMNS: &str = "sequence, at, actor, action, object, outcome, version, why, digest, hash";

fn hash(previous: &[u8], sequence: u64, at: u64, fields: &AuditFields<'_>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(previous);
    part(&sequence.to_le_bytes());
    part(&at.to_le_bytes());
    for text in [fields.actor, fields.action, fields.object, fields.outcome, fields.why] {
        part(text.as_bytes());
    }
    part(&fields.version.unwrap_or(0).to_le_bytes());
    part(fields.digest);
    hasher.finalize()
}

/// Adds a row.
pub(super) async fn append(
    session: &mut Session,
    fields: &AuditFields<'_>,
    now_millis: u64,
) -> Result<(), PlaneError> {
    let sql = "UPDATE heads SET audit_sequence = audit_sequence + 1 WHERE id = $1 \
               RETURNING audit_sequence, audit_hash";
    let head = session.query_one(sql, values![1]).await?;
    let (sequence, previous) = (head.number(0)?, head.bytes(1)?);
    let hash = hash(&previous, sequence, now_millis, fields);
    let values = values![
        sequence,
        now_millis,
        fields.actor,
        fields.action,
        fields.object,
        fields.outcome,
        fields.version,
        fields.why,
        fields.digest,
        hash.as_bytes().as_slice(),
    ];
    session
        .execute("INSERT INTO audit VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", values)
        .await?;
    let sql = "UPDATE heads SET audit_hash = $1 WHERE id = $2";
    session.execute(sql, values![hash.as_bytes().as_slice(), 1]).await?;
    Ok(())
}

/// The hash of the newest row.
pub(super) async fn head(session: &mut Session) -> Result<Vec<u8>, PlaneError> {
    session.query_one("SELECT audit_hash FROM heads WHERE id = $1", values![1]).await?.bytes(0)
}

/// Rows after a number, in order.
pub(super) async fn list(
    session: &mut Session,
    after: u64,
    limit: u64,
) -> Result<Vec<AuditRow>, PlaneError> {
    let sql = format!("SELECT {COLUMNS} FROM audit WHERE sequence > $1 ORDER BY sequence LIMIT $2");
    let rows = session.query(&sql, values![after, limit.clamp(1, PAGE)]).await?;
    rows.iter().map(view).collect()
}

fn view(row: &Row) -> Result<AuditRow, PlaneError> {
    Ok(AuditRow {
        sequence: row.number(0)?,
        at: show_time(row.number(1)?),
        actor: row.text(2)?,
        action: row.text(3)?,
        object: row.text(4)?,
        outcome: row.text(5)?,
        version: row.maybe_number(6)?,
        why: row.text(7)?,
        hash: hexadecimal(&row.bytes(9)?),
    })
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads every row, and compares the chain and the entries of each version.
pub(super) async fn verify(session: &mut Session) -> Result<AuditCheck, PlaneError> {
    let mut check = AuditCheck { rows: 0, head: String::new(), broken: None };
    let mut previous = Vec::new();
    let sql = format!("SELECT {COLUMNS} FROM audit WHERE sequence > $1 ORDER BY sequence LIMIT $2");
    loop {
        let rows = session.query(&sql, values![check.rows, PAGE]).await?;
        for row in &rows {
            let sequence = row.number(0)?;
            if let Some(problem) = verify_row(session, row, check.rows + 1, &previous).await? {
                check.broken = Some((sequence, problem));
                return Ok(check);
            }
            check.rows = sequence;
            previous = row.bytes(9)?;
        }
        if rows.is_empty() {
            break;
        }
    }
    check.head = hexadecimal(&previous);
    if head(session).await? != previous {
        check.broken = Some((check.rows, "rows after it are missing".to_owned()));
    }
    Ok(check)
}

/// What is wrong with a row.
async fn verify_row(
    session: &mut Session,
    row: &Row,
    expected: u64,
    previous: &[u8],
) -> Result<Option<String>, PlaneError> {
    let sequence = row.number(0)?;
    if sequence != expected {
        return Ok(Some(format!("row {expected} is missing")));
    }
    let (actor, action, object) = (row.text(2)?, row.text(3)?, row.text(4)?);
    let (outcome, version, why) = (row.text(5)?, row.maybe_number(6)?, row.text(7)?);
    let digest = row.bytes(8)?;
    let fields = AuditFields {
        actor: &actor,
        action: &action,
        object: &object,
        outcome: &outcome,
        version,
        why: &why,
        digest: &digest,
    };
    if hash(previous, sequence, row.number(1)?, &fields).as_bytes().as_slice() != row.bytes(9)? {
        return Ok(Some("it is not as it was written, or the row before it is not".to_owned()));
    }
    if let Some(version) = version
        && stored_digest(session, version).await?.as_bytes().as_slice() != digest
    {
        return Ok(Some(format!("the entries of version {version} are not as it wrote them")));
    }
    Ok(None)
}
