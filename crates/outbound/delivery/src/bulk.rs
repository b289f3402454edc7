//! Several records in one request, and the results of each in the answer.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::classify::StatusPolicy;
use crate::processor::{Attempt, AttemptOutcome, AttemptResult};
use crate::real_cost::read_number;

/// Records of one request at most.
pub(crate) const RECORDS_MAX: usize = 10_000;
/// The longest text of a target that is shown as a reason.
const DETAIL_CHARS_MAX: usize = 300;

/// How records are put into one request. Their bodies must be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkSettings {
    /// The most records of a request.
    pub records_max: usize,
    /// How they are written.
    pub format: BulkFormat,
    /// What is written of each.
    pub envelope: BulkEnvelope,
    /// What the answer says.
    pub results: BulkResults,
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BulkFormat {
    /// One JSON document on each line.
    #[default]
    NdJson,
    /// A JSON array.
    JsonArray,
}

/// What is written of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BulkEnvelope {
    /// `{"id": …, "attempt": …, "body": …}`, so that the target can recognise a record that it has already.
    #[default]
    Wrapped,
    /// The body alone.
    Bare,
}

/// What the answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BulkResults {
    /// A result for each record; see [`read_results`].
    #[default]
    PerRecord,
    /// The status counts for all records.
    Whole,
}

impl BulkFormat {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            BulkFormat::NdJson => "application/x-ndjson",
            BulkFormat::JsonArray => "application/json",
        }
    }
}

impl BulkSettings {
    pub(crate) fn is_valid(&self) -> bool {
        (1..=RECORDS_MAX).contains(&self.records_max)
    }
}

#[derive(Serialize)]
struct BulkBody<'a> {
    id: String,
    attempt: u32,
    body: &'a RawValue,
}

/// The attempts whose bodies are JSON, and a result in the place of each other.
pub(crate) fn split_unusable(batch: &[Attempt]) -> (Vec<Attempt>, Vec<Option<AttemptResult>>) {
    let mut included = Vec::with_capacity(batch.len());
    let results = batch.iter().map(|attempt| match json_of(&attempt.record.payload.body) {
        Some(_) => {
            included.push(attempt.clone());
            None
        }
        None => {
            let detail = "the body is not JSON, which bulk mode needs".to_owned();
            Some(AttemptResult::new(AttemptOutcome::Rejected { detail }))
        }
    });
    let results = results.collect();
    (included, results)
}

/// Puts the results of the sent records into the places that are free.
pub(crate) fn fill(
    results: Vec<Option<AttemptResult>>,
    sent: Vec<AttemptResult>,
) -> Vec<AttemptResult> {
    let mut sent = sent.into_iter();
    let missing = || AttemptResult::new(ambiguous("the answer has no result for the record"));
    results
        .into_iter()
        .map(|result| result.or_else(|| sent.next()).unwrap_or_else(missing))
        .collect()
}

fn json_of(body: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(body).ok()
}

/// Writes records whose bodies are JSON.
pub(crate) fn encode(batch: &[Attempt], settings: &BulkSettings) -> Bytes {
    let mut out = BytesMut::new();
    let array = settings.format == BulkFormat::JsonArray;
    if array {
        out.put_u8(b'[');
    }
    for (index, attempt) in batch.iter().enumerate() {
        let Some(body) = json_of(&attempt.record.payload.body) else { continue };
        if array && index > 0 {
            out.put_u8(b',');
        }
        // A line feed in JSON is white space between tokens; inside a text it is written as an escape.
        let line = match settings.envelope {
            BulkEnvelope::Bare => body.get().to_owned(),
            BulkEnvelope::Wrapped => {
                let id = attempt.record.id.to_string();
                let wrapped = BulkBody { id, attempt: attempt.number, body };
                serde_json::to_string(&wrapped).unwrap_or_default()
            }
        };
        out.put_slice(line.replace(['\n', '\r'], " ").as_bytes());
        if !array {
            out.put_u8(b'\n');
        }
    }
    if array {
        out.put_u8(b']');
    }
    out.freeze()
}

/// Reads the results of records from an answer: a JSON array, an object with the array `results`, or one document on each
/// line. Each result has a `status` (a code as in HTTP; 200 if missing), and may have `id`, `retry_after_ms`, `cost` and
/// `error`. Results with an `id` belong to that record; without ids they must be as many as the records and in their
/// order. A record without a result is ambiguous.
pub fn read_results(body: &[u8], ids: &[String], statuses: &StatusPolicy) -> Vec<AttemptResult> {
    let items = read_items(body);
    let has_ids = items.iter().any(|item| item.get("id").is_some());
    let by_position = !has_ids && items.len() == ids.len();
    let by_id: std::collections::HashMap<&str, &Value> =
        items.iter().filter_map(|item| Some((item.get("id")?.as_str()?, item))).collect();
    let find = |index: usize, id: &String| {
        if by_position { items.get(index) } else { by_id.get(id.as_str()).copied() }
    };
    let results = ids.iter().enumerate().map(|(index, id)| match find(index, id) {
        Some(item) => read_item(item, statuses),
        None => AttemptResult::new(ambiguous("the answer has no result for the record")),
    });
    results.collect()
}

fn read_items(body: &[u8]) -> Vec<Value> {
    match serde_json::from_slice(body) {
        Ok(Value::Array(items)) => items,
        Ok(Value::Object(mut fields)) => match fields.remove("results") {
            Some(Value::Array(items)) => items,
            // One line with one result.
            _ => vec![Value::Object(fields)],
        },
        _ => {
            let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines
                .take(RECORDS_MAX)
                .map(|line| serde_json::from_slice(line).unwrap_or_default())
                .collect()
        }
    }
}

fn read_item(item: &Value, statuses: &StatusPolicy) -> AttemptResult {
    if !item.is_object() {
        return AttemptResult::new(ambiguous("the result of the record cannot be read"));
    }
    let code = item.get("status").map_or(Some(200), Value::as_u64);
    let Some(code) = code.and_then(|code| u16::try_from(code).ok()) else {
        return AttemptResult::new(ambiguous("the result of the record has no readable status"));
    };
    let mut outcome = statuses.classify_code(code);
    match &mut outcome {
        AttemptOutcome::Throttled { hold } => {
            let millis = item.get("retry_after_ms").and_then(Value::as_u64);
            let asked = millis.map(std::time::Duration::from_millis);
            *hold = asked.map(|asked| asked.min(statuses.hold_max));
        }
        AttemptOutcome::Failed { detail }
        | AttemptOutcome::Rejected { detail }
        | AttemptOutcome::Ambiguous { detail } => {
            if let Some(error) = item.get("error").and_then(Value::as_str) {
                detail.push_str(": ");
                detail
                    .extend(error.chars().filter(|char| !char.is_control()).take(DETAIL_CHARS_MAX));
            }
        }
        AttemptOutcome::Delivered => {}
    }
    AttemptResult { outcome, real_cost: item.get("cost").and_then(read_number), response: None }
}

fn ambiguous(detail: &str) -> AttemptOutcome {
    AttemptOutcome::Ambiguous { detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate_queue::{Payload, PriorityClass, Record, RecordId, Timestamp};

    use super::*;

    fn attempt(number: u64, body: &str) -> Attempt {
        let record = Record {
            id: RecordId::new(Timestamp::EPOCH, 1, number),
            tenant: String::new(),
            cost: 1,
            class: PriorityClass::Normal,
            order_key: None,
            enqueued_at: Timestamp::EPOCH,
            deadline: None,
            attempts: 0,
            lapses: 0,
            job: None,
            payload: Payload::from_body(body.to_owned()),
        };
        Attempt { record, number: 1, slot: None, departed: Timestamp::EPOCH }
    }

    fn settings(format: BulkFormat, envelope: BulkEnvelope) -> BulkSettings {
        BulkSettings { records_max: 10, format, envelope, results: BulkResults::PerRecord }
    }

    #[test]
    fn records_become_lines_or_an_array() {
        let batch = [attempt(1, "{\"a\":\n1}"), attempt(2, "\"x\"")];
        let lines = encode(&batch, &settings(BulkFormat::NdJson, BulkEnvelope::Bare));
        assert_eq!(lines, "{\"a\": 1}\n\"x\"\n");
        let array = encode(&batch, &settings(BulkFormat::JsonArray, BulkEnvelope::Wrapped));
        let array: Value = serde_json::from_slice(&array).unwrap();
        assert_eq!(array[1]["id"], batch[1].record.id.to_string());
        assert_eq!((&array[0]["body"]["a"], &array[0]["attempt"]), (&1.into(), &1.into()));
    }

    #[test]
    fn a_body_that_is_not_json_is_rejected_alone() {
        let batch = [attempt(1, "1"), attempt(2, "not json"), attempt(3, "3")];
        let (included, unusable) = split_unusable(&batch);
        assert_eq!(included.len(), 2);
        let delivered = || AttemptResult::new(AttemptOutcome::Delivered);
        let results = fill(unusable, vec![delivered(), delivered()]);
        assert_eq!((&results[0], &results[2]), (&delivered(), &delivered()));
        assert!(matches!(results[1].outcome, AttemptOutcome::Rejected { .. }));
    }

    #[test]
    fn results_are_matched_by_id_or_by_position() {
        let ids = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let read = |body: &str| read_results(body.as_bytes(), &ids, &StatusPolicy::default());
        let by_id = read(
            r#"{"results":[{"id":"c","status":429,"retry_after_ms":250},{"id":"a","cost":7},
            {"id":"b","status":422,"error":"no name"}]}"#,
        );
        assert_eq!(
            (by_id[0].outcome.clone(), by_id[0].real_cost),
            (AttemptOutcome::Delivered, Some(7))
        );
        let detail = "the target answered 422: no name".to_owned();
        assert_eq!(by_id[1].outcome, AttemptOutcome::Rejected { detail });
        let hold = Some(Duration::from_millis(250));
        assert_eq!(by_id[2].outcome, AttemptOutcome::Throttled { hold });
        let by_position = read("{\"status\":200}\n{\"status\":500}\n{}\n");
        assert!(matches!(by_position[1].outcome, AttemptOutcome::Failed { .. }));
        assert_eq!(by_position[2].outcome, AttemptOutcome::Delivered);
        // Too few without ids, an unknown id, no JSON at all: no guess.
        for body in
            ["[{\"status\":200}]", "[{\"id\":\"x\"},{\"id\":\"y\"},{\"id\":\"z\"}]", "", "oops"]
        {
            let ambiguous =
                |result: &AttemptResult| matches!(result.outcome, AttemptOutcome::Ambiguous { .. });
            assert!(read(body).iter().all(ambiguous), "{body}");
        }
    }

    proptest! {
        #[test]
        fn every_record_gets_a_result_whatever_the_answer_is(body in ".{0,80}", count in 0_usize..5) {
            let ids: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            let results = read_results(body.as_bytes(), &ids, &StatusPolicy::default());
            prop_assert_eq!(results.len(), count);
        }
    }
}
