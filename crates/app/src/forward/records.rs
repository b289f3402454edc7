//! Records of a file or of standard input, line by line, in batches for the API.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value};
use tidegate_access::sha256;

use crate::exit::Complaint;
use crate::input::STDIN;

/// The longest line: a payload has up to 1 MiB, and JSON may write a byte as six letters.
const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The bytes after which a batch is full.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LineFormat {
    /// A record: a JSON object with a `body`.
    #[default]
    Records,
    /// The body of a record: JSON if it can be read as that, otherwise text.
    Bodies,
}

/// What records get that do not say it themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordDefaults {
    pub(super) cost: Option<u64>,
    pub(super) tenant: Option<String>,
    pub(super) class: Option<String>,
    /// With it, a record without `dedup` gets a key from it, its line number and its text.
    pub(super) dedup_prefix: Option<String>,
}

/// Some records, as lines for the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordBatch {
    pub(super) lines: Vec<u8>,
    pub(super) records: u64,
    /// The bytes of the file up to its end.
    pub(super) read: u64,
    /// The line with which it begins.
    pub(super) first_line: u64,
    /// The sums, for a plan.
    pub(super) cost: u64,
    pub(super) bytes: u64,
}

/// Reads records.
pub(super) struct RecordReader {
    input: Box<dyn BufRead>,
    name: String,
    format: LineFormat,
    defaults: RecordDefaults,
    batch_max: u64,
    line: u64,
    read: u64,
    /// The size of the file, if it is one.
    pub(super) bytes: Option<u64>,
}

impl RecordReader {
    /// Reads a file, or standard input.
    pub(super) fn open(
        path: &Path,
        format: LineFormat,
        defaults: RecordDefaults,
        batch_max: u64,
    ) -> Result<Self, Complaint> {
        let (input, name, bytes): (Box<dyn BufRead>, _, _) = if path == Path::new(STDIN) {
            (Box::new(BufReader::new(io::stdin())), "standard input".to_owned(), None)
        } else {
            let name = format!("`{}`", path.display());
            let unreadable = |error: io::Error| {
                Complaint::new(format!("{name} cannot be read: {error}"), "check the path")
            };
            let mut file = File::open(path).map_err(unreadable)?;
            let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
            // A pipe has no end to seek.
            let bytes = if is_file { file.seek(SeekFrom::End(0)).ok() } else { None };
            if is_file {
                file.rewind().map_err(unreadable)?;
            }
            (Box::new(BufReader::new(file)), name.clone(), bytes)
        };
        Ok(RecordReader { input, name, format, defaults, batch_max, line: 0, read: 0, bytes })
    }

    /// The next batch; `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>, Complaint> {
        let mut batch = RecordBatch::default();
        while batch.records < self.batch_max && batch.lines.len() < BATCH_BYTES {
            let Some(text) = self.next_line()? else { break };
            let text = text.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let record = self.record(text).map_err(|reason| {
                let message = format!("line {} of {}: {reason}", self.line, self.name);
                let help = match self.format {
                    LineFormat::Records => {
                        "each line is a JSON object with a `body`; `--bodies` takes each line as a body"
                    }
                    LineFormat::Bodies => "remove the line, or write it as UTF-8",
                };
                Complaint::new(message, help)
            })?;
            if batch.records == 0 {
                batch.first_line = self.line;
            }
            batch.records += 1;
            batch.cost = batch.cost.saturating_add(record["cost"].as_u64().unwrap_or(1));
            batch.bytes = batch.bytes.saturating_add(body_bytes(&record["body"]));
            batch.lines.extend_from_slice(record.to_string().as_bytes());
            batch.lines.push(b'\n');
        }
        batch.read = self.read;
        Ok((batch.records > 0).then_some(batch))
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Complaint> {
        let mut line = Vec::new();
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut line).map_err(|error| {
            let message = format!("{} cannot be read: {error}", self.name);
            Complaint::new(message, "check that it is a file with a record on each line")
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.read = self.read.saturating_add(read as u64);
        if read as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            let message = format!(
                "line {} of {} is longer than {} MiB",
                self.line,
                self.name,
                LINE_BYTES_MAX >> 20
            );
            return Err(Complaint::new(message, "a record has up to 1 MiB"));
        }
        Ok(Some(line))
    }

    /// The record of a line, with the defaults.
    fn record(&self, line: &[u8]) -> Result<Value, String> {
        let mut record = match self.format {
            LineFormat::Records => match serde_json::from_slice(line) {
                Ok(Value::Object(record)) => record,
                Ok(_) => return Err("this is no JSON object".to_owned()),
                Err(error) => return Err(format!("this is no JSON: {error}")),
            },
            LineFormat::Bodies => {
                let text = || {
                    let text = std::str::from_utf8(line).map_err(|_| "this is no UTF-8".to_owned());
                    text.map(Value::from)
                };
                let body = serde_json::from_slice(line).map_or_else(|_| text(), Ok)?;
                Map::from_iter([("body".to_owned(), body)])
            }
        };
        let defaults = &self.defaults;
        let texts = [("tenant", &defaults.tenant), ("class", &defaults.class)];
        for (name, value) in texts {
            if let Some(value) = value {
                record.entry(name).or_insert_with(|| Value::from(value.as_str()));
            }
        }
        if let Some(cost) = defaults.cost {
            record.entry("cost").or_insert_with(|| Value::from(cost));
        }
        if let Some(prefix) = &defaults.dedup_prefix {
            let key = || {
                let hash = sha256(line);
                let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                Value::from(format!("{prefix}/{}/{hex}", self.line))
            };
            record.entry("dedup").or_insert_with(key);
        }
        Ok(Value::Object(record))
    }
}

/// The bytes that a body is sent as.
fn body_bytes(body: &Value) -> u64 {
    match body {
        Value::String(text) => text.len() as u64,
        other => other.to_string().len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str, format: LineFormat, defaults: RecordDefaults) -> RecordReader {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        RecordReader::open(file.path(), format, defaults, 2).unwrap()
    }

    fn lines(batch: &RecordBatch) -> Vec<Value> {
        let text = std::str::from_utf8(&batch.lines).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn records_come_in_batches_with_the_defaults() {
        let defaults = RecordDefaults { cost: Some(10), ..RecordDefaults::default() };
        let text = "{\"body\": \"a\"}\n\n{\"body\": {\"b\": 1}, \"cost\": 3}\n{\"body\": 3}";
        let mut reader = read(text, LineFormat::Records, defaults);
        let first = reader.next_batch().unwrap().unwrap();
        assert_eq!((first.records, first.cost, first.bytes, first.first_line), (2, 13, 8, 1));
        assert_eq!(lines(&first)[1], serde_json::json!({"body": {"b": 1}, "cost": 3}));
        let second = reader.next_batch().unwrap().unwrap();
        assert_eq!((second.records, second.first_line, second.read), (1, 4, text.len() as u64));
        assert_eq!(reader.next_batch(), Ok(None));
        assert_eq!(reader.bytes, Some(text.len() as u64));
    }

    #[test]
    fn lines_are_bodies_if_asked_for() {
        let mut reader =
            read("{\"a\": 1}\nplain text\n", LineFormat::Bodies, RecordDefaults::default());
        let batch = reader.next_batch().unwrap().unwrap();
        let bodies: Vec<Value> =
            lines(&batch).into_iter().map(|line| line["body"].clone()).collect();
        assert_eq!(bodies, [serde_json::json!({"a": 1}), serde_json::json!("plain text")]);
    }

    #[test]
    fn keys_of_a_job_depend_on_the_line_and_its_text() {
        let keys = |text: &str| -> Vec<Value> {
            let prefix = Some("import".to_owned());
            let defaults = RecordDefaults { dedup_prefix: prefix, ..RecordDefaults::default() };
            let batch = read(text, LineFormat::Bodies, defaults).next_batch().unwrap().unwrap();
            lines(&batch).into_iter().map(|line| line["dedup"].clone()).collect()
        };
        assert_eq!(keys("a\nb\n"), keys("a\nb\n"));
        let (same, other) = (keys("a\na\n"), keys("b\na\n"));
        assert!(same[0] != same[1] && same[0] != other[0] && same[1] == other[1]);
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        for (text, reason) in [("{}\n[]\n", "line 2"), ("x\n", "this is no JSON")] {
            let mut reader = read(text, LineFormat::Records, RecordDefaults::default());
            let error = reader.next_batch().unwrap_err();
            assert!(error.message.contains(reason), "{error:?}");
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let path = Path::new("/nonexistent/records");
        let opened = RecordReader::open(path, LineFormat::Records, RecordDefaults::default(), 1);
        assert!(opened.is_err_and(|error| error.message.contains("cannot be read")));
    }
}
