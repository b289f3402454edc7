//! Dead letters: list, show, redrive at a rate, purge. Redrives and purges are dry runs unless the body says otherwise.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use tidegate_delivery::secrets::show_value;
use tidegate_queue::{DeadLetter, DeadLetterSelection, Queue, RecordId};
use tokio::time::sleep;

use super::ForwardApi;
use super::answer::{Answer, Problem, json};
use crate::forwarder::Forwarder;

/// Dead letters of one page.
const PAGE_MAX: usize = 1_000;
/// Bytes of a body that are shown.
const BODY_SHOWN_MAX: usize = 64 * 1024;
/// The most dead letters that one request redrives or purges.
const CHANGE_MAX: u64 = 1_000_000;
/// The records of one step of a redrive.
const STEP: Duration = Duration::from_millis(200);

/// The records of a second, for a redrive that names no rate.
const RATE_DEFAULT: u64 = 100;
/// The fastest redrive.
const RATE_MAX: u64 = 10_000;

/// What happens to dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadLetterAction {
    /// They are enqueued again.
    Redrive,
    /// They are deleted.
    Purge,
}

/// The answer to a dry run.
#[derive(Debug, Serialize)]
struct DeadLetterPreview {
    dry_run: bool,
    would_change: u64,
}

/// What to redrive or purge.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadLetterChange {
    /// These records; without it, all of them.
    ids: Option<Vec<String>>,
    /// Records in a second, for a redrive.
    rate: Option<u64>,
    /// Counts only. True unless it is given.
    #[serde(default = "yes")]
    dry_run: bool,
}

const fn yes() -> bool {
    true
}

/// A dead letter as the API shows it.
#[derive(Debug, Serialize)]
struct DeadLetterView {
    id: String,
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    reason: &'static str,
    detail: String,
    attempts: u32,
    cost: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl DeadLetterView {
    fn of(letter: DeadLetter) -> Self {
        DeadLetterView {
            id: letter.record.id.to_string(),
            tenant: letter.record.tenant,
            job: letter.record.job,
            reason: letter.reason.name(),
            detail: letter.detail,
            attempts: letter.record.attempts,
            cost: letter.record.cost,
            bytes: letter.bytes,
            headers: None,
            body: None,
        }
    }
}

fn queue(api: &ForwardApi, record_type: &str) -> Result<Arc<dyn Queue>, Problem> {
    api.forwarder.queue(record_type).ok_or_else(|| Problem::unknown_type(record_type))
}

fn record_id(text: &str) -> Result<RecordId, Problem> {
    text.parse().map_err(|error: tidegate_queue::RecordIdError| {
        Problem::new(StatusCode::BAD_REQUEST, error.to_string())
    })
}

pub(super) async fn list(
    api: &ForwardApi,
    record_type: &str,
    query: &str,
) -> Result<Answer, Problem> {
    let after = query.strip_prefix("after=").map(record_id).transpose()?;
    let found = queue(api, record_type)?.list_dead_letters(after, PAGE_MAX).await?;
    let letters: Vec<DeadLetterView> = found.into_iter().map(DeadLetterView::of).collect();
    let more = (letters.len() == PAGE_MAX).then(|| letters.last().map(|last| last.id.clone()));
    let view = serde_json::json!({ "dead_letters": letters, "after": more.flatten() });
    Ok(json(StatusCode::OK, &view))
}

pub(super) async fn show(api: &ForwardApi, record_type: &str, id: &str) -> Result<Answer, Problem> {
    let found = queue(api, record_type)?.show_dead_letter(record_id(id)?).await?;
    let letter = found.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, format!("there is no dead letter `{id}`"))
    })?;
    let payload = letter.record.payload.clone();
    let mut view = DeadLetterView::of(letter);
    let shown = |(name, value): &(String, bytes::Bytes)| {
        (name.clone(), show_value(name, value).into_owned())
    };
    view.headers = Some(payload.headers.iter().map(shown).collect());
    let body = payload.body.get(..BODY_SHOWN_MAX).unwrap_or(&payload.body);
    view.body = Some(String::from_utf8_lossy(body).into_owned());
    Ok(json(StatusCode::OK, &view))
}

fn read_change(body: &[u8]) -> Result<(DeadLetterChange, DeadLetterSelection), Problem> {
    let change: DeadLetterChange = serde_json::from_slice(body).map_err(|error| {
        let detail = format!(
            "the body is `{{\"dry_run\": false}}`, with `ids` and `rate` if wanted: {error}"
        );
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let selection = match &change.ids {
        Some(ids) => {
            let ids = ids.iter().map(|id| record_id(id)).collect::<Result<_, _>>()?;
            DeadLetterSelection::Ids(ids)
        }
        None => DeadLetterSelection::All,
    };
    Ok((change, selection))
}

/// How many dead letters a selection has at most.
async fn count(queue: &Arc<dyn Queue>, selection: &DeadLetterSelection) -> Result<u64, Problem> {
    Ok(match selection {
        DeadLetterSelection::Ids(ids) => ids.len() as u64,
        DeadLetterSelection::All | DeadLetterSelection::Before(_) => {
            queue.stats().await?.dead_records
        }
    })
}

/// Counts what a change would reach, and makes it unless it is a dry run.
pub(super) async fn change(
    api: &ForwardApi,
    record_type: &str,
    action: DeadLetterAction,
    body: &[u8],
) -> Result<Answer, Problem> {
    let queue = queue(api, record_type)?;
    let (change, selection) = read_change(body)?;
    let found = count(&queue, &selection).await?.min(CHANGE_MAX);
    match action {
        _ if change.dry_run => {
            let view = DeadLetterPreview { dry_run: true, would_change: found };
            Ok(json(StatusCode::OK, &view))
        }
        DeadLetterAction::Redrive => {
            let rate = change.rate.unwrap_or(RATE_DEFAULT).clamp(1, RATE_MAX);
            let forwarder = Arc::clone(&api.forwarder);
            // Goes on by itself: a million records at a rate take longer than a request may.
            tokio::spawn(redrive(forwarder, record_type.to_owned(), queue, selection, found, rate));
            let view = serde_json::json!({ "dry_run": false, "redriving": found, "rate": rate });
            Ok(json(StatusCode::ACCEPTED, &view))
        }
        DeadLetterAction::Purge => {
            let purged = purge(&queue, &selection, found).await?;
            Ok(json(StatusCode::OK, &serde_json::json!({ "dry_run": false, "purged": purged })))
        }
    }
}

async fn redrive(
    forwarder: Arc<Forwarder>,
    record_type: String,
    queue: Arc<dyn Queue>,
    selection: DeadLetterSelection,
    mut left: u64,
    rate: u64,
) {
    let step = rate.div_ceil(5).max(1);
    let pause =
        if rate < 5 { Duration::from_secs(1) / u32::try_from(rate).unwrap_or(1) } else { STEP };
    while left > 0 {
        let limit = usize::try_from(step.min(left)).unwrap_or(1);
        match queue.redrive(selection.clone(), limit).await {
            Ok(0) => return,
            Ok(redriven) => left = left.saturating_sub(redriven),
            Err(error) => {
                tracing::warn!(record_type, %error, "a redrive ended early");
                return;
            }
        }
        forwarder.wake(&record_type);
        sleep(pause).await;
    }
}

async fn purge(
    queue: &Arc<dyn Queue>,
    selection: &DeadLetterSelection,
    found: u64,
) -> Result<u64, Problem> {
    let mut purged = 0;
    while purged < found {
        let limit = usize::try_from(found - purged).unwrap_or(PAGE_MAX).min(PAGE_MAX);
        match queue.purge(selection.clone(), limit).await? {
            0 => break,
            step => purged += step,
        }
    }
    Ok(purged)
}
