//! The publisher's lease, and what nodes report.

use serde::{Deserialize, Serialize};

use super::session::{Session, values};
use crate::entry::show_time;
use crate::error::PlaneError;

/// The most nodes.
pub const NODES_MAX: u64 = 4_096;
/// A node that was silent for this long is forgotten.
const NODE_KEPT_MILLIS: u64 = 7 * 24 * 3_600 * 1_000;

/// The right to publish once, under this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublishPermit {
    /// Grows when another process takes over.
    pub fence: u64,
    /// Grows when a person starts a new history.
    pub epoch: u64,
    /// Grows with each beat.
    pub sequence: u64,
}

/// Takes or renews the lease and the next sequence; `None` while another process has the lease.
pub(super) async fn take_sequence(
    session: &mut Session,
    owner: &str,
    now_millis: u64,
    lease_millis: u64,
) -> Result<Option<PublishPermit>, PlaneError> {
    let expires = now_millis.saturating_add(lease_millis);
    // One statement: it proves the lease and takes the number, so that no writer uses a number of another one.
    let sql = "UPDATE publisher SET fence = CASE WHEN owner = $1 THEN fence ELSE fence + 1 END, owner = $2, \
               expires_at = $3, sequence = sequence + 1 WHERE id = 1 AND (owner = $4 OR expires_at <= $5) \
               RETURNING fence, epoch, sequence";
    let rows = session.query(sql, values![owner, owner, expires, owner, now_millis]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(PublishPermit {
        fence: row.number(0)?,
        epoch: row.number(1)?,
        sequence: row.number(2)?,
    }))
}

/// Gives the lease back, so that another process need not wait for its end.
pub(super) async fn release(session: &mut Session, owner: &str) -> Result<(), PlaneError> {
    let sql = "UPDATE publisher SET expires_at = 0 WHERE id = 1 AND owner = $1";
    session.execute(sql, values![owner]).await?;
    Ok(())
}

/// Goes on after a sequence that was published already.
pub(super) async fn raise_sequence(
    session: &mut Session,
    epoch: u64,
    sequence: u64,
) -> Result<(), PlaneError> {
    let sql = "UPDATE publisher SET sequence = $1 WHERE id = 1 AND epoch = $2 AND sequence < $3";
    session.execute(sql, values![sequence, epoch, sequence]).await?;
    Ok(())
}

/// Starts a new history.
pub(super) async fn start_epoch(session: &mut Session, epoch: u64) -> Result<u64, PlaneError> {
    let sql = "UPDATE publisher SET epoch = CASE WHEN epoch + 1 > $1 THEN epoch + 1 ELSE $2 END, sequence = 0 \
               WHERE id = 1 RETURNING epoch";
    session.query_one(sql, values![epoch, epoch]).await?.number(0)
}

/// What was published last, and which guards are overruled for the next version: two texts of the publisher.
pub(super) async fn memory(session: &mut Session) -> Result<(String, String), PlaneError> {
    let row = session
        .query_one("SELECT published, allowed FROM publisher WHERE id = $1", values![1])
        .await?;
    Ok((row.text(0)?, row.text(1)?))
}

pub(super) async fn set_published(session: &mut Session, text: &str) -> Result<(), PlaneError> {
    session.execute("UPDATE publisher SET published = $1 WHERE id = 1", values![text]).await?;
    Ok(())
}

pub(super) async fn set_allowed(session: &mut Session, text: &str) -> Result<(), PlaneError> {
    session.execute("UPDATE publisher SET allowed = $1 WHERE id = 1", values![text]).await?;
    Ok(())
}

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Its ring.
    pub ring: String,
    /// The version of the program.
    pub program: String,
    /// The epoch of the snapshot that it runs.
    pub epoch: u64,
    /// The sequence of that snapshot.
    pub sequence: u64,
    /// The version that it runs.
    pub version: u64,
    /// The hash of the content in its memory.
    pub content: String,
    /// Seconds since it accepted a higher sequence.
    pub age_seconds: u64,
    /// How its last beat ended.
    pub outcome: String,
    /// Its last error.
    pub error: String,
    /// Switches that were set at the node.
    pub switches: Vec<String>,
}

/// A node as it reported last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its id.
    pub node: String,
    /// When it reported: RFC 3339 in UTC.
    pub reported_at: String,
    /// Seconds since then.
    pub silent_seconds: u64,
    /// Its report.
    #[serde(flatten)]
    pub report: NodeReport,
}

/// Stores reports, one for each node.
pub(super) async fn store_reports(
    session: &mut Session,
    reports: &[(String, u64, NodeReport)],
) -> Result<(), PlaneError> {
    let oldest = reports.iter().map(|(_, at, _)| *at).max().unwrap_or(0);
    let oldest = oldest.saturating_sub(NODE_KEPT_MILLIS);
    session.execute("DELETE FROM nodes WHERE reported_at < $1", values![oldest]).await?;
    for (id, at, report) in reports {
        let text = serde_json::to_string(report).unwrap_or_default();
        let sql = "INSERT INTO nodes VALUES ($1, $2, $3) \
                   ON CONFLICT (id) DO UPDATE SET reported_at = $4, report = $5";
        session.execute(sql, values![id, *at, &text, *at, &text]).await?;
    }
    Ok(())
}

/// All nodes, by id.
pub(super) async fn nodes(
    session: &mut Session,
    now_millis: u64,
) -> Result<Vec<NodeView>, PlaneError> {
    let sql = "SELECT id, reported_at, report FROM nodes ORDER BY id LIMIT $1";
    let rows = session.query(sql, values![NODES_MAX]).await?;
    rows.iter()
        .map(|row| {
            let at = row.number(1)?;
            Ok(NodeView {
                node: row.text(0)?,
                reported_at: show_time(at),
                silent_seconds: now_millis.saturating_sub(at) / 1_000,
                report: serde_json::from_str(&row.text(2)?).unwrap_or_default(),
            })
        })
        .collect()
}
