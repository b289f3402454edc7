//! Reports of what is wrong with documents.
//!
//! A [`Report`] holds every problem of every document: its location, the line itself, what is wrong and what would be
//! right. It renders as plain text and serializes for tools. Colors are the caller's business.

use std::fmt;

use serde::Serialize;

/// The maximum of errors, and of warnings, that one report lists. A document with more of them has one cause, and the
/// first hundred show it.
pub const PROBLEMS_MAX: usize = 100;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The document cannot be used.
    Error,
    /// The document works, but probably not as intended.
    Warning,
}

/// One problem and its location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The name of the source.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The column in characters, from one.
    pub column: usize,
    /// Whether the document can still be used.
    pub severity: Severity,
    /// A stable word for this kind of problem.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What would be right, if that is known.
    pub hint: Option<String>,
    /// The line itself.
    pub snippet: Snippet,
    /// Another location that has to do with it, such as the first of two duplicates.
    pub related: Option<RelatedLocation>,
    /// What envoyproxy/ratelimit says in this case, without the file name.
    pub compat_message: Option<String>,
}

/// A source line with the part that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The line, shortened when very long; tabs and control characters are shown as spaces.
    pub text: String,
    /// The number of characters before the part that is meant.
    pub indent: usize,
    /// The number of characters that are meant; at least one.
    pub width: usize,
}

/// Another location that has to do with a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelatedLocation {
    /// The name of the source.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The column in characters, from one.
    pub column: usize,
    /// What is there.
    pub message: String,
}

/// All problems of all documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    problems: Vec<Problem>,
    /// Problems found but not listed.
    omitted: usize,
}

impl Report {
    pub(crate) const fn new(problems: Vec<Problem>, omitted: usize) -> Self {
        Report { problems, omitted }
    }

    /// The problems, in the order of the documents and of their lines.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The problems themselves.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The number of problems that were found but are not listed.
    pub const fn omitted(&self) -> usize {
        self.omitted
    }
}

impl std::error::Error for Report {}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            write!(out, "{problem}")?;
        }
        if self.omitted > 0 {
            writeln!(out)?;
            writeln!(out, "and {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let Snippet { text, indent, width } = &self.snippet;
        writeln!(out, "{}[{}]: {}", self.severity, self.code, self.message)?;
        let (file, line, column) = (&self.file, self.line, self.column);
        writeln!(out, "{gutter}--> {file}:{line}:{column}")?;
        writeln!(out, "{gutter} |")?;
        writeln!(out, "{}", format!("{number} | {text}").trim_end())?;
        let (blanks, carets) = (" ".repeat(*indent), "^".repeat(*width));
        writeln!(out, "{gutter} | {blanks}{carets}")?;
        if let Some(related) = &self.related {
            let RelatedLocation { file, line, column, message } = related;
            writeln!(out, "{gutter} = {message}: {file}:{line}:{column}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(out, "{gutter} = hint: {hint}")?;
        }
        Ok(())
    }
}
