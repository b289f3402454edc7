//! Collecting problems while the files are read.

use super::{PROBLEMS_MAX, Problem, Related, Report, Severity, Snippet};
use crate::source::Source;

/// The most characters of a source line that a snippet shows.
const SNIPPET_CHARS_MAX: usize = 120;

/// A stretch of one source, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Which source, counted from zero.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

/// A problem without its place.
#[derive(Debug)]
pub struct Fault {
    code: &'static str,
    message: String,
    hint: Option<String>,
    compat: Option<String>,
    related: Option<(Spot, &'static str)>,
}

impl Fault {
    /// A fault: a stable word for its kind, and what is wrong.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Fault { code, message: message.into(), hint: None, compat: None, related: None }
    }

    /// What would be right.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Fault { hint: Some(hint.into()), ..self }
    }

    /// What would be right, if anything can be said.
    pub fn maybe_hint(self, hint: Option<String>) -> Self {
        Fault { hint, ..self }
    }

    /// What envoyproxy/ratelimit says here.
    pub fn compat(self, text: impl Into<String>) -> Self {
        Fault { compat: Some(text.into()), ..self }
    }

    /// Another place that has to do with it.
    pub fn related(self, spot: Spot, what: &'static str) -> Self {
        Fault { related: Some((spot, what)), ..self }
    }
}

/// All problems found so far, with what is needed to show them.
#[derive(Debug)]
pub struct Problems<'a> {
    sources: &'a [Source],
    /// Where the lines of each source start; made when first needed.
    lines: Vec<Option<Vec<u32>>>,
    /// With the spot, to sort by.
    kept: Vec<(Spot, Problem)>,
    errors: usize,
    warnings: usize,
}

impl<'a> Problems<'a> {
    /// No problems yet, in these sources.
    pub fn new(sources: &'a [Source]) -> Self {
        Problems {
            sources,
            lines: vec![None; sources.len()],
            kept: Vec::new(),
            errors: 0,
            warnings: 0,
        }
    }

    /// Adds one that makes the files unusable.
    pub fn error(&mut self, spot: Spot, fault: Fault) {
        self.errors += 1;
        if self.errors <= PROBLEMS_MAX {
            self.keep(spot, Severity::Error, fault);
        }
    }

    /// Adds one that leaves the files usable.
    pub fn warn(&mut self, spot: Spot, fault: Fault) {
        self.warnings += 1;
        if self.warnings <= PROBLEMS_MAX {
            self.keep(spot, Severity::Warning, fault);
        }
    }

    /// Whether further errors are only counted, so that their hints need not be found.
    pub const fn is_full(&self) -> bool {
        self.errors >= PROBLEMS_MAX
    }

    /// Whether the files are unusable.
    pub const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All problems, in the order of the sources.
    pub fn into_report(mut self) -> Report {
        self.kept.sort_by_key(|(spot, problem)| (spot.file, spot.start, problem.severity));
        let omitted = self.errors + self.warnings - self.kept.len();
        let problems = self.kept.into_iter().map(|(_, problem)| problem).collect();
        Report::new(problems, omitted)
    }

    fn keep(&mut self, spot: Spot, severity: Severity, fault: Fault) {
        let (line, column, snippet) = self.show(spot);
        let related = fault.related.map(|(other, what)| {
            let (line, column, _) = self.show(other);
            Related { file: self.name(other), line, column, message: what.to_owned() }
        });
        let problem = Problem {
            file: self.name(spot),
            line,
            column,
            severity,
            code: fault.code,
            message: fault.message,
            hint: fault.hint,
            snippet,
            related,
            compat_message: fault.compat,
        };
        self.kept.push((spot, problem));
    }

    fn name(&self, spot: Spot) -> String {
        self.sources.get(spot.file as usize).map_or_else(String::new, |source| source.name.clone())
    }

    /// The line and column of a spot, and the line itself.
    fn show(&mut self, spot: Spot) -> (usize, usize, Snippet) {
        let file = spot.file as usize;
        let (Some(source), Some(lines)) = (self.sources.get(file), self.lines.get_mut(file)) else {
            return (1, 1, Snippet::default());
        };
        let text = source.text.as_str();
        let starts = lines.get_or_insert_with(|| line_starts(text));
        let line = starts.partition_point(|start| *start <= spot.start).saturating_sub(1);
        let start = starts.get(line).map_or(0, |start| *start as usize);
        let rest = text.get(start..).unwrap_or_default();
        let shown = rest.split('\n').next().unwrap_or_default();
        let shown = shown.strip_suffix('\r').unwrap_or(shown);
        // A byte order mark is not a column.
        let (shown, start) = match shown.strip_prefix('\u{feff}') {
            Some(shown) => (shown, start + '\u{feff}'.len_utf8()),
            None => (shown, start),
        };
        let (before, rest) = split(shown, (spot.start as usize).saturating_sub(start));
        let (meant, _) = split(rest, (spot.end as usize).saturating_sub(spot.start as usize));
        let column = before.chars().count() + 1;
        (line + 1, column, cut(before, rest, meant))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sources over 16 MiB are refused before their lines are counted"
)]
fn line_starts(text: &str) -> Vec<u32> {
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(breaks.map(|(at, _)| at as u32 + 1)).collect()
}

/// The text up to a byte, and from there on; the whole when it ends before.
fn split(text: &str, byte: usize) -> (&str, &str) {
    text.split_at_checked(byte).unwrap_or((text, ""))
}

/// A window of the line in which the part that is meant can be seen. Looks only
/// at the window: a line may have megabytes.
fn cut(before: &str, rest: &str, meant: &str) -> Snippet {
    let last_chars = |count: usize| {
        let start = before.char_indices().rev().nth(count.saturating_sub(1));
        start.and_then(|(at, _)| before.get(at..)).unwrap_or(before)
    };
    let mut kept = last_chars(SNIPPET_CHARS_MAX * 3 / 4);
    if kept.len() < before.len() {
        kept = last_chars(SNIPPET_CHARS_MAX / 4);
    }
    let text: String = kept
        .chars()
        .chain(rest.chars())
        .take(SNIPPET_CHARS_MAX)
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    let indent = kept.chars().count();
    let width = meant.chars().take(SNIPPET_CHARS_MAX - indent).count();
    Snippet { text, indent, width: width.max(1) }
}
