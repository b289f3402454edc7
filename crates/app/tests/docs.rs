//! What docs/cli.md shows is what the binary prints.
//!
//! In a `console` block `$ tidegate …` is run and its output compared, up to a
//! line `…` that stands for the rest; `$ echo $?` is its exit code. Lines that
//! begin with `> ` are typed at the prompt.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use support::run_with;

/// One command of a block, with what should be printed.
#[derive(Debug, Default)]
struct Example {
    command: String,
    typed: String,
    printed: String,
    code: Option<i32>,
}

fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    let mut asked_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if line == "$ echo $?" {
            asked_code = true;
        } else if asked_code {
            examples.last_mut().unwrap().code = Some(line.parse().unwrap());
            asked_code = false;
        } else if let Some(command) = line.strip_prefix("$ ") {
            examples.push(Example { command: command.to_owned(), ..Example::default() });
        } else if let Some(typed) = line.strip_prefix("> ") {
            examples.last_mut().unwrap().typed += &format!("{typed}\n");
        } else {
            examples.last_mut().unwrap().printed += &format!("{line}\n");
        }
    }
    examples
}

#[test]
fn the_documentation_shows_what_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let examples = examples(&std::fs::read_to_string(docs).unwrap());
    assert!(examples.len() > 15, "{} examples", examples.len());
    for Example { command, typed, printed, code } in examples {
        let words: Vec<&str> = command.split_whitespace().collect();
        let ran = run_with(words.strip_prefix(&["tidegate"]).unwrap(), &typed);
        let said = ran.stdout + &ran.stderr;
        match printed.split_once("…\n") {
            Some((start, "")) => assert!(said.starts_with(start), "$ {command}\n{said}"),
            _ => assert_eq!(said, printed, "$ {command}"),
        }
        assert_eq!(ran.code, code.unwrap_or(0), "$ {command}");
    }
}
