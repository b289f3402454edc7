//! Readers of recordings: which format a log has, and what each line says.

mod json_log;
mod lines;
mod log_format;
mod log_time;

use tidegate_insight::DecisionRecord;

use super::logged_request::LoggedRequest;
pub(crate) use lines::{LineReader, NextLine};
pub use log_format::FormatError;
use log_format::{COMBINED, COMMON, LineFormat};

/// The formats that have a name.
pub const FORMATS: [&str; 6] =
    ["auto", "common", "combined", "envoy-json", "tidegate-json", "decisions"];

/// How to read the lines of a log.
#[derive(Clone, Debug)]
pub enum LogReader {
    /// Text with variables.
    Lines(Box<LineReaderFormat>),
    /// The access log of Envoy, as JSON.
    EnvoyJson,
    /// Our access log, as JSON.
    TidegateJson,
    /// Our decision log.
    Decisions,
}

/// A compiled `log_format`.
#[derive(Clone, Debug)]
pub struct LineReaderFormat(LineFormat);

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine<'l> {
    /// A request, to be described.
    Request(LoggedRequest<'l>),
    /// A decision, with descriptors and verdict.
    Decision(Box<DecisionRecord<'l>>),
}

impl LogReader {
    /// The reader of a format: a name of [`FORMATS`] but `auto`, or a `log_format` of nginx.
    ///
    /// # Errors
    /// When it is neither.
    pub fn of(format: &str) -> Result<Self, FormatError> {
        let lines = |format: LineFormat| LogReader::Lines(Box::new(LineReaderFormat(format)));
        match format {
            "common" => LineFormat::compile(COMMON).map(lines),
            "combined" => LineFormat::compile(COMBINED).map(lines),
            "envoy-json" => Ok(LogReader::EnvoyJson),
            "tidegate-json" => Ok(LogReader::TidegateJson),
            "decisions" => Ok(LogReader::Decisions),
            format => LineFormat::compile(format).map(lines),
        }
    }

    /// The reader that fits a line: that of the first format that can read it.
    pub fn detect(line: &str) -> Option<Self> {
        let names = ["decisions", "tidegate-json", "envoy-json", "combined", "common"];
        let readers = names.iter().filter_map(|name| LogReader::of(name).ok());
        readers
            .map(|mut reader| (reader.read(line).is_some(), reader))
            .find(|(fits, _)| *fits)
            .map(|(_, reader)| reader)
    }

    /// The same reader without the variables that nothing needs, which is faster.
    #[must_use]
    pub fn without_fields(self) -> Self {
        match self {
            LogReader::Lines(format) => {
                LogReader::Lines(Box::new(LineReaderFormat(format.0.without_fields())))
            }
            other => other,
        }
    }

    /// The name of the format.
    pub fn name(&self) -> String {
        match self {
            LogReader::Lines(format) => {
                let names: Vec<String> = format.0.names().map(|name| format!("${name}")).collect();
                names.join(" ")
            }
            LogReader::EnvoyJson => "envoy-json".to_owned(),
            LogReader::TidegateJson => "tidegate-json".to_owned(),
            LogReader::Decisions => "decisions".to_owned(),
        }
    }

    /// What a line says; [`None`] if it is not of this format.
    pub fn read<'l>(&mut self, line: &'l str) -> Option<LogLine<'l>> {
        match self {
            LogReader::Lines(format) => format.0.read(line).map(LogLine::Request),
            LogReader::EnvoyJson => json_log::envoy(line).map(LogLine::Request),
            LogReader::TidegateJson if line.contains("\"micros\"") => {
                json_log::tidegate(line).map(LogLine::Request)
            }
            LogReader::TidegateJson => None,
            LogReader::Decisions => {
                serde_json::from_str(line).ok().map(|record| LogLine::Decision(Box::new(record)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_recognized_by_its_first_line() {
        let lines = [
            (
                r#"{"time_ns":1,"sequence":0,"domain":"d","descriptors":[],"rules":"","verdict":"admitted"}"#,
                "decisions",
            ),
            (r#"{"time":"2026-07-16T12:00:00.123Z","micros":1}"#, "tidegate-json"),
            (r#"{"start_time":"2026-07-16T12:00:00.123Z"}"#, "envoy-json"),
        ];
        for (line, expected) in lines {
            assert_eq!(LogReader::detect(line).unwrap().name(), expected);
        }
        let common = r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1"#;
        assert!(!LogReader::detect(common).unwrap().name().contains("http_user_agent"));
        let combined = format!("{common} \"-\" \"-\"");
        assert!(LogReader::detect(&combined).unwrap().name().contains("http_user_agent"));
        assert!(LogReader::detect("\0\0").is_none());
    }
}
