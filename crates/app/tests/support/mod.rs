//! What several tests need: running the binary where the test data is.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

/// The binary, among the test data, with nothing of the environment that it heeds.
pub(crate) fn tidegate(words: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tidegate"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"));
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(variable);
        }
    }
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(variable);
    }
    command.args(words);
    command
}

/// How one run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran {
            code: output.status.code().unwrap(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Runs the binary with these arguments.
pub(crate) fn run(words: &[&str]) -> Ran {
    run_with(words, "")
}

/// Runs the binary with these arguments and this standard input.
pub(crate) fn run_with(words: &[&str], stdin: &str) -> Ran {
    tidegate(words).write_stdin(stdin).output().unwrap().into()
}

/// The output of a run without problems.
pub(crate) fn printed(words: &[&str]) -> String {
    let ran = run(words);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout
}
