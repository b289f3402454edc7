//! Rule files from paths and standard input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_rules::{SOURCE_BYTES_MAX, Source};
use tidegate_sources::{Cause, Fault, FileSource, TextSource};

use crate::exit::{Complaint, Failure};

/// Where rules are looked for when nobody says where.
pub(crate) const DEFAULT_PATH: &str = "rules";

/// What messages call standard input.
const STDIN_NAME: &str = "<stdin>";

/// The rule files at these paths; `-` is standard input and comes last.
pub(crate) fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let is_stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
    let files = FileSource::new(paths.iter().filter(|path| !is_stdin(path)));
    let mut sources = files.load().map_err(|error| match error.faults() {
        [Fault { cause: Cause::Missing, .. }] if paths == [Path::new(DEFAULT_PATH)] => {
            let message = format!("there are no rules at `{DEFAULT_PATH}`");
            let help = "give a path, or set TIDEGATE_RULES; \
                        `tidegate demo --print-rules` prints rules to start from";
            Failure::Usage(Complaint::new(message, help))
        }
        _ => Failure::Load(error),
    })?;
    if paths.iter().any(|path| is_stdin(&path)) {
        let text = read_text(io::stdin().lock())?;
        sources.push(Source::new(STDIN_NAME, text));
    }
    Ok(sources)
}

fn read_text(input: impl Read) -> Result<String, Complaint> {
    let mut bytes = Vec::new();
    let read = input.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    if let Err(error) = read {
        let message = format!("standard input cannot be read: {error}");
        return Err(Complaint::new(message, "give the rule file as a path instead"));
    }
    if bytes.len() > SOURCE_BYTES_MAX {
        let message = format!("standard input is larger than {SOURCE_BYTES_MAX} bytes");
        return Err(Complaint::new(
            message,
            "split the rules: several files may add to one domain",
        ));
    }
    String::from_utf8(bytes).map_err(|_| {
        Complaint::new("standard input is not UTF-8 text", "a rule file is YAML text in UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_read_up_to_the_largest_rule_file() {
        let full = vec![b'#'; SOURCE_BYTES_MAX];
        assert_eq!(read_text(full.as_slice()).unwrap().len(), SOURCE_BYTES_MAX);
        let message = read_text(io::repeat(b'#')).unwrap_err().message;
        assert_eq!(message, "standard input is larger than 16777216 bytes");
    }

    #[test]
    fn input_that_is_no_text_is_refused() {
        let message = read_text([0xff].as_slice()).unwrap_err().message;
        assert_eq!(message, "standard input is not UTF-8 text");
    }
}
