//! Rows in CSV files beside the rule files.
//!
//! The first line names the columns: `value` and `terms`, and if wanted `until` and `why`. An end is a date, which begins
//! in UTC, or an instant such as `2027-01-01T12:00:00Z`.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tidegate_document::{Fault, Location, NodeKind, Problems, Source, did_you_mean, one_of, parse};
use tidegate_row_table::Minute;

use crate::terms::RowTerms;

/// The most bytes of one file of rows: a million rows have about 25 MB.
pub const ROWS_BYTES_MAX: usize = 64 * 1024 * 1024;

const COLUMNS: &[&str] = &["value", "terms", "until", "why"];

/// Whether a source is a file of rows and no rule file.
pub fn is_row_file(name: &str) -> bool {
    name.get(name.len().saturating_sub(4)..).is_some_and(|end| end.eq_ignore_ascii_case(".csv"))
}

/// The names of the files of rows that a rule file names: beside it, unless their paths are absolute. Reads no more than the text;
/// its faults are reported when it is compiled.
pub fn named_row_files(source: &Source) -> Vec<String> {
    // Most rule files have no tables, and parsing one twice takes time.
    if !source.text.contains("tables") {
        return Vec::new();
    }
    let sources = [source.clone()];
    let mut problems = Problems::new(&sources);
    let Some(yaml) = parse(0, &source.text, &mut problems) else { return Vec::new() };
    let child = |node, name: &str| match &yaml.node(node).kind {
        NodeKind::Mapping(_) => yaml
            .merged_pairs(node)
            .pairs
            .into_iter()
            .find(|(key, _)| yaml.scalar(*key).is_some_and(|key| key.text == name))
            .map(|(_, value)| value),
        _ => None,
    };
    let tables = yaml.root().and_then(|root| child(root, "tables"));
    let Some(tables) = tables else { return Vec::new() };
    let NodeKind::Mapping(_) = yaml.node(tables).kind else { return Vec::new() };
    let pairs = yaml.merged_pairs(tables).pairs;
    let files = pairs.into_iter().filter_map(|(_, table)| child(table, "file"));
    let names = files.filter_map(|file| Some(beside(&source.name, &yaml.scalar(file)?.text)));
    names.filter(|name| is_row_file(name)).collect()
}

/// The name of a file beside a rule file.
pub(crate) fn beside(rule_file: &str, file: &str) -> String {
    match rule_file.rsplit_once('/') {
        Some((directory, _)) if !file.starts_with('/') => format!("{directory}/{file}"),
        _ => file.to_owned(),
    }
}

/// A row as a file has it.
#[derive(Debug)]
pub(crate) struct FileRow {
    pub(crate) location: Location,
    pub(crate) value: String,
    /// In canonical form.
    pub(crate) terms: String,
    pub(crate) until: Option<Minute>,
}

/// The rows of source `file`. Reports every problem.
pub(crate) fn read(file: u32, source: &Source, problems: &mut Problems<'_>) -> Vec<FileRow> {
    let start = Location { file, start: 0, end: 0 };
    if source.text.len() > ROWS_BYTES_MAX {
        let bytes = source.text.len();
        let message = format!("the file has {bytes} bytes; the maximum is {ROWS_BYTES_MAX}");
        let hint = "use a control plane for this many rows";
        problems.error(start, Fault::new("too_large", message).hint(hint));
        return Vec::new();
    }
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .flexible(true)
        .from_reader(source.text.as_bytes());
    let Ok(headers) = reader.headers().cloned() else { return Vec::new() };
    let Some(columns) = Columns::of(&headers, start, problems) else { return Vec::new() };
    let mut rows = Vec::new();
    for record in reader.records() {
        // The text is UTF-8 and records may have any length, so this is no error of the text.
        let Ok(record) = record else { continue };
        let location = location(file, &record, source);
        if record.len() > headers.len() {
            let message = format!(
                "the row has {} fields, and there are {} columns",
                record.len(),
                headers.len()
            );
            let hint = "put quotes around a field that has a comma in it";
            problems.error(location, Fault::new("too_many_fields", message).hint(hint));
            continue;
        }
        match columns.row(&record) {
            Ok((value, terms, until)) => rows.push(FileRow { location, value, terms, until }),
            Err(fault) => problems.error(location, fault),
        }
    }
    rows
}

fn location(file: u32, record: &csv::StringRecord, source: &Source) -> Location {
    let byte = |byte: usize| u32::try_from(byte).unwrap_or(u32::MAX);
    let start = record.position().map_or(0, csv::Position::byte);
    let start = usize::try_from(start).unwrap_or(0);
    let rest = source.text.get(start..).unwrap_or_default();
    // A record begins behind the one before it, with blank lines and comments.
    let mut skipped = 0;
    for line in rest.split_inclusive('\n') {
        let text = line.trim();
        if !text.is_empty() && !text.starts_with('#') {
            let start = start + skipped;
            return Location { file, start: byte(start), end: byte(start + line.trim_end().len()) };
        }
        skipped += line.len();
    }
    Location { file, start: byte(start), end: byte(start) }
}

/// Where the columns are.
struct Columns {
    value: usize,
    terms: usize,
    until: Option<usize>,
}

impl Columns {
    fn of(
        headers: &csv::StringRecord,
        start: Location,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let find = |name: &str| headers.iter().position(|header| header == name);
        for header in headers.iter().filter(|header| !COLUMNS.contains(header)) {
            let hint = did_you_mean(header, COLUMNS.iter().copied())
                .unwrap_or_else(|| format!("the columns are {}", one_of(COLUMNS)));
            let fault = Fault::new("unknown_column", format!("`{header}` is no column")).hint(hint);
            problems.error(start, fault);
        }
        let (Some(value), Some(terms)) = (find("value"), find("terms")) else {
            let fault = Fault::new("no_columns", "the first line does not name the columns")
                .hint("begin with the line `value,terms,until,why`; the last two are optional");
            problems.error(start, fault);
            return None;
        };
        Some(Columns { value, terms, until: find("until") })
    }

    fn row(&self, record: &csv::StringRecord) -> Result<(String, String, Option<Minute>), Fault> {
        let field = |at: usize| record.get(at).unwrap_or_default();
        let value = field(self.value);
        if value.is_empty() {
            return Err(Fault::new("empty_value", "a row has no value")
                .hint("give the value of the client, or remove the row"));
        }
        let terms = RowTerms::parse(field(self.terms))
            .map_err(|error| Fault::new("invalid_terms", error.message).hint(error.hint))?;
        let until = self.until.map(field).filter(|until| !until.is_empty());
        let until = until.map(end).transpose()?;
        Ok((value.to_owned(), terms.to_string(), until))
    }
}

/// The minute at which a row ends.
fn end(text: &str) -> Result<Minute, Fault> {
    // Of an instant without a zone the date alone would be read.
    let is_date = text.len() == "2027-01-01".len();
    let date = || if is_date { day(text) } else { None };
    let instant = text.parse::<Timestamp>().ok().or_else(date);
    let seconds = instant.and_then(|instant| u64::try_from(instant.as_second()).ok());
    seconds.map(Minute::from_seconds).ok_or_else(|| {
        Fault::new("invalid_until", format!("`{text}` is no date and no instant"))
            .hint("write `2027-01-01`, or `2027-01-01T12:00:00Z`")
    })
}

/// The first instant of a day in UTC.
fn day(text: &str) -> Option<Timestamp> {
    text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp())
}
