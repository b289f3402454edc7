//! The broken configurations under `cases/config`, and their problems.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_app::config::{Input, resolve};
use tidegate_rules::Source;

/// One file and what it should lead to.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) text: String,
    /// The file with the expected diagnostics.
    pub(crate) expected: PathBuf,
}

/// All cases, in the order of their names.
pub(crate) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/config");
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

/// The problems of a case; `None` if it is accepted.
pub(crate) fn say(case: &Case) -> Option<String> {
    let file = Source::new(format!("{}.yaml", case.name), case.text.clone());
    let input = Input { file: Some(file), ..Input::default() };
    resolve(&input).err().map(|report| report.to_string())
}

/// The documents that are made from the declaration, by path from the root.
pub(crate) fn documents() -> [(&'static str, String); 5] {
    [
        ("docs/configuration.md", tidegate_app::config::reference()),
        ("docs/compat-variables.md", tidegate_app::config::compat_reference()),
        ("examples/tidegate.yaml", tidegate_app::config::example()),
        ("docs/gateway-reference.md", tidegate_app::config::gateway_reference()),
        ("docs/forward-reference.md", tidegate_app::config::forward_reference()),
    ]
}

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
