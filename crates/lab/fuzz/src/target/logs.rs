//! The readers of recordings: any bytes are played or rejected, every line is accounted for, and the result is the same
//! each time.

use std::io::Cursor;
use std::sync::Arc;

use tidegate_rules::{Options, Snapshot, Source, compile};
use tidegate_simulation::replay::{
    ClientModel, DescriptorRecipes, Format, LogReader, Recording, ReplayOptions, ReplayReport,
    RequestDescriber, replay,
};

use super::{Target, Trail, shape};

pub(super) const WORDS: &[&str] = &[
    "- - [",
    "] \"",
    "GET / HTTP/1.1",
    "\" 200 ",
    "\" 429 ",
    " \"-\" \"-\"",
    "16/Jul/2026:12:00:00 +0000",
    "\\x22",
    "\\\"",
    "[::1]:80",
    "192.0.2.1",
    "{\"start_time\":\"2026-07-16T12:00:00.123Z\"",
    "\"path\":\"/\"",
    "\"response_code\":429",
    "\"micros\":1",
    "\"time_ns\":1800000000000000000",
    "\"descriptors\":[{\"entries\":[[\"address\",\"a\"]]}]",
    "\"verdict\":\"refused\"",
    "\"sequence\":7",
    "\"cost\":18446744073709551615",
    "\"one_of\":10",
    "\r\n",
    "\n",
    "\u{1f}\u{8b}",
];

const RULES: &str = "
domain: web
descriptors:
- key: address
  limits:
  - {algorithm: sliding_window, unit: second, requests_per_unit: 2}
  - {algorithm: concurrency, requests_per_unit: 3}
";

/// The formats that are tried on every input, beside the one that its first line shows.
const FORMATS: [&str; 3] =
    ["auto", "combined", "$msec $request_time \"$request\" $remote_addr $status"];

pub(super) struct LogsTarget {
    rules: Arc<Snapshot>,
}

impl LogsTarget {
    pub(super) fn new() -> Self {
        let rules = compile(&[Source::new("rules.yaml", RULES)], &Options::default());
        LogsTarget { rules: Arc::new(rules.unwrap_or_default()) }
    }

    fn play(&self, input: &[u8], format: &str) -> Result<ReplayReport, String> {
        let recipes = ["address=$remote_addr".to_owned(), "path=$uri,x=$http_x_user".to_owned()];
        let mut recipes =
            DescriptorRecipes::new("web", &recipes).map_err(|error| error.to_string())?;
        let reader = if format == "auto" { None } else { LogReader::of(format).ok() };
        let recording = Recording::new("log", Cursor::new(input.to_vec()), reader);
        let recording = recording.map_err(|error| error.to_string())?;
        let options = ReplayOptions {
            rules: Arc::clone(&self.rules),
            against: Some(Arc::clone(&self.rules)),
            describer: Some(&mut recipes as &mut dyn RequestDescriber),
            clients: ClientModel::Both,
            anonymise: false,
            progress: &mut |_| {},
        };
        replay(vec![recording], options).map_err(|error| error.to_string())
    }
}

impl Target for LogsTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let mut trail = Vec::new();
        for format in FORMATS {
            match (self.play(input, format), self.play(input, format)) {
                (Ok(report), Ok(again)) => {
                    check(&report)?;
                    if report.render(Format::Json) != again.render(Format::Json) {
                        return Err("two replays of one input differ".to_owned());
                    }
                    let log = report.logs.first().map(|log| (log.unreadable > 0, log.cut_off));
                    trail.push(format!(
                        "{log:?} {} {}",
                        report.new.refused > 0,
                        report.notes.len()
                    ));
                }
                (Err(error), Err(_)) => trail.push(shape(&error)),
                _ => return Err("two replays of one input end differently".to_owned()),
            }
        }
        Ok(Trail::of(trail))
    }
}

/// Every line is in one of the counts, equal rules flip nothing, and no caller becomes markup.
fn check(report: &ReplayReport) -> Result<(), String> {
    for log in &report.logs {
        if log.lines != log.read + log.unreadable + log.empty + log.too_long {
            return Err(format!("lines are lost: {log:?}"));
        }
    }
    let flips = report.flips.as_ref().map_or(0, |flips| flips.newly_refused + flips.newly_admitted);
    if flips > 0 {
        return Err(format!("equal rules flip {flips} requests"));
    }
    if report.html().contains("<script") {
        return Err("a caller became markup".to_owned());
    }
    Ok(())
}
