//! Access tokens of the service: names, hashes, roles, owners. A token's text is never stored.

use serde::Serialize;

use super::session::{Row, Session, values};
use crate::entry::show_time;
use crate::error::PlaneError;

/// The most tokens.
const TOKENS_MAX: u64 = 1_000;

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// Its name.
    pub name: String,
    /// The SHA-256 of its text, in hexadecimal.
    pub hash: String,
    /// Its roles, joined by `+`.
    pub roles: String,
    /// The team whose entries it may change; empty for all.
    pub owner: String,
    /// The day on which it expires, or empty.
    pub expires: String,
    /// Who made it.
    pub made_by: String,
    /// When, in milliseconds since the epoch.
    pub made_at: u64,
}

/// A token in JSON, without its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// Its roles, joined by `+`.
    pub roles: String,
    /// The team whose entries it may change.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The day on which it expires.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expires: String,
    /// Who made it.
    pub made_by: String,
    /// When: RFC 3339 in UTC.
    pub made_at: String,
}

impl From<&StoredToken> for TokenView {
    fn from(token: &StoredToken) -> Self {
        TokenView {
            name: token.name.clone(),
            roles: token.roles.clone(),
            owner: token.owner.clone(),
            expires: token.expires.clone(),
            made_by: token.made_by.clone(),
            made_at: show_time(token.made_at),
        }
    }
}

const COLUMNS: &str = "name, hash, roles, owner, expires, made_by, made_at";

fn token(row: &Row) -> Result<StoredToken, PlaneError> {
    Ok(StoredToken {
        name: row.text(0)?,
        hash: row.text(1)?,
        roles: row.text(2)?,
        owner: row.text(3)?,
        expires: row.text(4)?,
        made_by: row.text(5)?,
        made_at: row.number(6)?,
    })
}

pub(super) async fn list(session: &mut Session) -> Result<Vec<StoredToken>, PlaneError> {
    let sql = format!("SELECT {COLUMNS} FROM tokens ORDER BY name LIMIT $1");
    session.query(&sql, values![TOKENS_MAX]).await?.iter().map(token).collect()
}

pub(super) async fn add(session: &mut Session, token: &StoredToken) -> Result<(), PlaneError> {
    let found = list(session).await?;
    if found.iter().any(|other| other.name == token.name) {
        let text = format!("there is a token `{}`; revoke it, or choose another name", token.name);
        return Err(PlaneError::Conflict(text));
    }
    if found.len() as u64 >= TOKENS_MAX {
        return Err(PlaneError::Full(format!("there are {TOKENS_MAX} tokens; revoke some")));
    }
    let values = values![
        &token.name,
        &token.hash,
        &token.roles,
        &token.owner,
        &token.expires,
        &token.made_by,
        token.made_at,
    ];
    session.execute("INSERT INTO tokens VALUES ($1, $2, $3, $4, $5, $6, $7)", values).await?;
    Ok(())
}

pub(super) async fn remove(session: &mut Session, name: &str) -> Result<(), PlaneError> {
    match session.execute("DELETE FROM tokens WHERE name = $1", values![name]).await? {
        0 => Err(PlaneError::NotFound(format!("token `{name}`"))),
        _ => Ok(()),
    }
}
