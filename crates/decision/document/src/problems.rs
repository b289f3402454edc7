//! Collecting problems while documents are read.

use crate::report::{PROBLEMS_MAX, Problem, RelatedLocation, Report, Severity, Snippet};
use crate::source::Source;

/// The most characters of a source line that a snippet shows.
const SNIPPET_CHARS_MAX: usize = 120;

/// A range of bytes of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The index of the source.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

/// A problem without its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    code: &'static str,
    message: String,
    hint: Option<String>,
    compat: Option<String>,
    related: Option<(Location, &'static str)>,
}

impl Fault {
    /// A fault: a stable word for its kind, and what is wrong.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Fault { code, message: message.into(), hint: None, compat: None, related: None }
    }

    /// Adds what would be right.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Fault { hint: Some(hint.into()), ..self }
    }

    /// Adds what would be right, if that is known.
    pub fn maybe_hint(self, hint: Option<String>) -> Self {
        Fault { hint, ..self }
    }

    /// Adds what envoyproxy/ratelimit says in this case.
    pub fn compat(self, text: impl Into<String>) -> Self {
        Fault { compat: Some(text.into()), ..self }
    }

    /// Adds what envoyproxy/ratelimit says in this case, if that is known.
    pub fn maybe_compat(self, text: Option<String>) -> Self {
        Fault { compat: text.or(self.compat), ..self }
    }

    /// Adds another location that has to do with it.
    pub fn related(self, location: Location, what: &'static str) -> Self {
        Fault { related: Some((location, what)), ..self }
    }

    /// Begins the message with the key whose value is wrong.
    pub fn of(self, key: &str) -> Self {
        Fault { message: format!("`{key}`: {}", self.message), ..self }
    }

    /// A stable word for its kind.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The problems found so far, with the sources to show them in.
#[derive(Debug)]
pub struct Problems<'a> {
    sources: &'a [Source],
    /// Where the lines of each source start; computed when first needed.
    lines: Vec<Option<Vec<u32>>>,
    /// With the location to sort by.
    kept: Vec<(Location, Problem)>,
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

    /// Adds a problem that makes the documents unusable.
    pub fn error(&mut self, location: Location, fault: Fault) {
        self.errors += 1;
        if self.errors <= PROBLEMS_MAX {
            self.keep(location, Severity::Error, fault);
        }
    }

    /// Adds a problem that leaves the documents usable.
    pub fn warn(&mut self, location: Location, fault: Fault) {
        self.warnings += 1;
        if self.warnings <= PROBLEMS_MAX {
            self.keep(location, Severity::Warning, fault);
        }
    }

    /// Whether further errors are only counted, so that computing their hints is wasted work.
    pub const fn is_full(&self) -> bool {
        self.errors >= PROBLEMS_MAX
    }

    /// Whether the documents are unusable.
    pub const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All problems, in the order of the sources.
    pub fn into_report(mut self) -> Report {
        self.kept
            .sort_by_key(|(location, problem)| (location.file, location.start, problem.severity));
        let omitted = self.errors + self.warnings - self.kept.len();
        let problems = self.kept.into_iter().map(|(_, problem)| problem).collect();
        Report::new(problems, omitted)
    }

    fn keep(&mut self, location: Location, severity: Severity, fault: Fault) {
        let (line, column, snippet) = self.show(location);
        let related = fault.related.map(|(other, what)| {
            let (line, column, _) = self.show(other);
            RelatedLocation { file: self.name(other), line, column, message: what.to_owned() }
        });
        let problem = Problem {
            file: self.name(location),
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
        self.kept.push((location, problem));
    }

    fn name(&self, location: Location) -> String {
        self.sources
            .get(location.file as usize)
            .map_or_else(String::new, |source| source.name.clone())
    }

    /// The line and column of a location, and the line itself.
    fn show(&mut self, location: Location) -> (usize, usize, Snippet) {
        let file = location.file as usize;
        let (Some(source), Some(lines)) = (self.sources.get(file), self.lines.get_mut(file)) else {
            return (1, 1, Snippet::default());
        };
        let text = source.text.as_str();
        let starts = lines.get_or_insert_with(|| line_starts(text));
        let line = starts.partition_point(|start| *start <= location.start).saturating_sub(1);
        let start = starts.get(line).map_or(0, |start| *start as usize);
        let rest = text.get(start..).unwrap_or_default();
        let shown = rest.split('\n').next().unwrap_or_default();
        let shown = shown.strip_suffix('\r').unwrap_or(shown);
        // A byte order mark is not a column.
        let (shown, start) = match shown.strip_prefix('\u{feff}') {
            Some(shown) => (shown, start + '\u{feff}'.len_utf8()),
            None => (shown, start),
        };
        let (before, rest) = split(shown, (location.start as usize).saturating_sub(start));
        let (meant, _) =
            split(rest, (location.end as usize).saturating_sub(location.start as usize));
        let column = before.chars().count() + 1;
        (line + 1, column, cut(before, rest, meant))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sources of more than 4 GiB are refused before their lines are counted"
)]
fn line_starts(text: &str) -> Vec<u32> {
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(breaks.map(|(at, _)| at as u32 + 1)).collect()
}

/// The text before and after a byte; the whole text when it ends before.
fn split(text: &str, byte: usize) -> (&str, &str) {
    text.split_at_checked(byte).unwrap_or((text, ""))
}

/// A window of the line around the part that is meant. Scans only the window: a line may have megabytes.
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
