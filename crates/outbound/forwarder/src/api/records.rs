//! Enqueues a batch of records, and shows a job.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tidegate_capacity::Cost;
use tidegate_delivery::secrets::drop_secrets;
use tidegate_queue::{BATCH_MAX, Nanos, NewRecord, Payload, PriorityClass, QueueError, Timestamp};

use super::ForwardApi;
use super::answer::{Answer, Problem, json};
use crate::forecast::ForecastView;
use crate::lane::AcceptError;

/// One record, as a line of JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine {
    /// What is sent: a text, or any JSON value, which is sent as JSON.
    body: serde_json::Value,
    cost: Option<u64>,
    tenant: Option<String>,
    class: Option<String>,
    key: Option<String>,
    dedup: Option<String>,
    /// Seconds until it may be sent.
    delay: Option<f64>,
    /// Seconds until it becomes a dead letter if it is still waiting.
    ttl: Option<f64>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    method: Option<String>,
    url: Option<String>,
}

/// The answer to a batch.
#[derive(Debug, Serialize)]
struct BatchView<'a> {
    record_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    accepted: usize,
    duplicates: usize,
    ids: Vec<String>,
    /// Header fields that were dropped because they are secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped_fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastView>,
}

/// The query of a batch.
#[derive(Debug, Default)]
struct BatchQuery {
    record_type: Option<String>,
    job: Option<String>,
}

impl BatchQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut read = BatchQuery::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "type" => read.record_type = Some(value.to_owned()),
                "job" => read.job = Some(value.to_owned()),
                _ => {
                    let detail = "the query may have `type` and `job`";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
            }
        }
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if read.job.as_deref().is_some_and(|job| job.is_empty() || !job.chars().all(plain)) {
            let detail = "the name of a job has letters, digits, `-`, `_` and `.`";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        Ok(read)
    }
}

pub(super) async fn enqueue(
    api: &ForwardApi,
    query: &str,
    tenant: Option<&str>,
    body: &Bytes,
) -> Result<Answer, Problem> {
    if !api.settings.accepts_records {
        let detail =
            "this process only works on records; enqueue them at a `tidegate forward serve`";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let query = BatchQuery::read(query)?;
    let types = api.forwarder.types();
    let record_type = match (&query.record_type, types.as_slice()) {
        (Some(record_type), _) => record_type.clone(),
        (None, [only]) => only.clone(),
        (None, _) => {
            let detail = format!("name the record type: `?type=`, one of: {}", types.join(", "));
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
    };
    let (batch, dropped_fields) = read_batch(api, &query, tenant, body)?;
    let sum = batch.iter().fold(Cost { operations: 0, bytes: 0, units: 0 }, |sum, record| {
        let bytes = record.payload.encoded_len() as u64;
        sum.plus(Cost { operations: 1, bytes, units: record.cost })
    });
    let outcomes = api
        .forwarder
        .enqueue(&record_type, batch)
        .await
        .map_err(|error| refusal(api, &record_type, error))?;
    let duplicates = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, tidegate_queue::EnqueueOutcome::Duplicate(_)))
        .count();
    let view = BatchView {
        record_type: &record_type,
        job: query.job.as_deref(),
        accepted: outcomes.len() - duplicates,
        duplicates,
        ids: outcomes.iter().map(|outcome| outcome.id().to_string()).collect(),
        dropped_fields,
        forecast: api.forwarder.forecast(&record_type, sum),
    };
    Ok(json(StatusCode::ACCEPTED, &view))
}

/// The records of a body, and the names of the header fields that were dropped.
fn read_batch(
    api: &ForwardApi,
    query: &BatchQuery,
    tenant: Option<&str>,
    body: &[u8],
) -> Result<(Vec<NewRecord>, Vec<String>), Problem> {
    let now = api.forwarder.now();
    let mut dropped_fields = Vec::new();
    let mut batch = Vec::new();
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if batch.len() >= BATCH_MAX {
            let detail = format!("a batch has at most {BATCH_MAX} records");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        let mut record = read_line(line, now).map_err(|reason| {
            let detail = format!("line {}: {reason}", index.saturating_add(1));
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?;
        if let Some(tenant) = tenant {
            tenant.clone_into(&mut record.tenant);
        }
        record.job.clone_from(&query.job);
        let allowed = &api.settings.kept_secrets;
        for field in drop_secrets(&mut record.payload.headers, allowed) {
            if !dropped_fields.contains(&field) {
                dropped_fields.push(field);
            }
        }
        batch.push(record);
    }
    Ok((batch, dropped_fields))
}

/// Why a batch was not accepted, with the time after which it may be.
fn refusal(api: &ForwardApi, record_type: &str, error: AcceptError) -> Problem {
    match error {
        AcceptError::Queue(QueueError::Full(full)) => {
            let wait = api.forwarder.room_in(record_type, &full);
            let detail = QueueError::Full(full).to_string();
            // With a forecast the caller is too fast; without one the queue has a problem.
            match wait {
                Some(wait) => {
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(Some(wait))
                }
                None => Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .retry_after(Some(Duration::from_secs(60))),
            }
        }
        AcceptError::Queue(error) => error.into(),
        AcceptError::UnknownType(name) => Problem::unknown_type(&name),
        AcceptError::Draining(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
                .retry_after(Some(Duration::from_secs(60)))
        }
        AcceptError::CostTooHigh { .. } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
        }
    }
}

/// Reads one record.
fn read_line(line: &[u8], now: Timestamp) -> Result<NewRecord, String> {
    let line: RecordLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let class = match line.class.as_deref() {
        None => PriorityClass::Normal,
        Some(word) => PriorityClass::ALL
            .into_iter()
            .find(|class| class.name() == word)
            .ok_or("the class is `urgent`, `normal`, `low` or `bulk`")?,
    };
    let after = |seconds: Option<f64>, what: &str| {
        let wait = seconds.map(Duration::try_from_secs_f64).transpose();
        let wait = wait.map_err(|_| format!("`{what}` is a number of seconds"))?;
        Ok::<_, String>(wait.map(|wait| now.after(Nanos::from(wait))))
    };
    let (body, is_json) = match line.body {
        serde_json::Value::String(text) => (Bytes::from(text), false),
        value => (Bytes::from(value.to_string()), true),
    };
    let typed = line.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
    let mut payload = Payload::from_body(body);
    for (name, value) in line.headers {
        if name.starts_with(':') {
            return Err("header names do not begin with `:`; use `method` and `url`".to_owned());
        }
        payload = payload.with_header(name, value);
    }
    if is_json && !typed {
        payload = payload.with_header("content-type", "application/json");
    }
    for (field, value) in
        [(tidegate_delivery::METHOD_FIELD, line.method), (tidegate_delivery::URL_FIELD, line.url)]
    {
        if let Some(value) = value {
            payload = payload.with_header(field, value);
        }
    }
    Ok(NewRecord {
        tenant: line.tenant.unwrap_or_default(),
        cost: line.cost.unwrap_or(1),
        class,
        order_key: line.key,
        dedup_key: line.dedup,
        job: None,
        not_before: after(line.delay, "delay")?,
        deadline: after(line.ttl, "ttl")?,
        payload,
    })
}

pub(super) async fn job(
    api: &ForwardApi,
    job: &str,
    tenant: Option<&str>,
) -> Result<Answer, Problem> {
    let progress = api.forwarder.job(job, tenant).await?;
    let progress = progress.ok_or_else(|| unknown_job(job))?;
    Ok(json(StatusCode::OK, &progress))
}

pub(super) fn unknown_job(job: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no job `{job}`"))
}

/// The fields of a record, as the reader lists them for an unknown one.
#[cfg(test)]
pub(super) fn record_fields() -> Vec<String> {
    let error = serde_json::from_str::<RecordLine>("{\"?\": 1}").unwrap_err().to_string();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
