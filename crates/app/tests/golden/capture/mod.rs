//! Captures the behaviour of the binary, without prose, times and ports.

pub(crate) mod answers;
pub(crate) mod commands;
pub(crate) mod debug_pages;
pub(crate) mod metrics;
pub(crate) mod redis_state;
pub(crate) mod schemas;
mod shape;
pub(crate) mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::binary;

/// One golden file.
#[derive(Debug)]
pub(crate) struct Golden {
    /// Its path below [`folder`].
    pub(crate) file: String,
    pub(crate) text: String,
}

impl Golden {
    fn json(file: &str, value: &Value) -> Self {
        let text = serde_json::to_string_pretty(value).expect("JSON");
        Golden { file: file.to_owned(), text: text + "\n" }
    }

    fn lines(file: &str, lines: &[String]) -> Self {
        Golden { file: file.to_owned(), text: lines.join("\n") + "\n" }
    }
}

/// Where the golden files are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/files")
}

/// Runs the binary in this folder, with only these variables.
fn run(folder: &Path, variables: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.current_dir(folder).env_clear().envs(variables.iter().copied()).args(words);
    command.output().expect("the binary starts")
}

/// What a run prints, which has to succeed.
#[track_caller]
fn printed(words: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &[], words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The document without texts under these keys.
fn without(value: &Value, prose: &[&str]) -> Value {
    match value {
        Value::Object(members) => {
            let is_prose = |key: &str, value: &Value| value.is_string() && prose.contains(&key);
            let kept: BTreeMap<String, Value> = members
                .iter()
                .filter(|(key, value)| !is_prose(key, value))
                .map(|(key, value)| (key.clone(), without(value, prose)))
                .collect();
            Value::Object(kept.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(|item| without(item, prose)).collect(),
        other => other.clone(),
    }
}
