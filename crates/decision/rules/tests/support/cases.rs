//! The cases beside this folder: rule files, and what is said about them.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_rules::{Options, Problem, Source, compile};

/// One rule file and what it should lead to.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) text: String,
    /// The file with the expected diagnostics.
    pub(crate) expected: PathBuf,
}

/// The cases of one kind, in the order of their names.
pub(crate) fn cases(kind: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(kind);
    let listing = fs::read_dir(&folder).expect("the cases are there");
    let mut paths: Vec<PathBuf> = listing
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    let case = |path: &PathBuf| Case {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        text: fs::read_to_string(path).expect("a case can be read"),
        expected: path.with_extension("txt"),
    };
    paths.iter().map(case).collect()
}

/// What compiling a case says.
pub(crate) struct Said {
    pub(crate) accepted: bool,
    pub(crate) text: String,
}

pub(crate) fn say(case: &Case) -> Said {
    let source = Source::new(format!("{}.yaml", case.name), case.text.clone());
    match compile(&[source], &Options::default()) {
        Ok(snapshot) => Said {
            accepted: true,
            text: snapshot.warnings().iter().map(with_compat).collect::<Vec<_>>().join("\n"),
        },
        Err(report) => Said {
            accepted: false,
            text: report.problems().iter().map(with_compat).collect::<Vec<_>>().join("\n"),
        },
    }
}

/// A problem with the text that envoyproxy/ratelimit has for it.
fn with_compat(problem: &Problem) -> String {
    match &problem.compat_message {
        Some(text) => format!("{problem}(upstream: {text})\n"),
        None => problem.to_string(),
    }
}
