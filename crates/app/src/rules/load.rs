//! Rule files from paths and standard input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_rules::{Report, SOURCE_BYTES_MAX, Snapshot, Source, compile};
use tidegate_sources::{
    Cause, DotFiles, Fault, FileSource, LoadError, RuntimeChanges, RuntimeSource, TextSource,
};

use crate::config::{self, RulesFrom};
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

/// The rules that a configuration names.
pub(crate) enum LoadedRules {
    /// They do not exist, and need not.
    Absent {
        /// The path.
        path: String,
    },
    /// They have errors.
    Wrong(Report),
    /// They can be used.
    Compiled(Box<Snapshot>),
}

/// Loads and compiles the rules that `serve` would use.
pub(crate) fn configured(rules: &config::Rules) -> Result<LoadedRules, Failure> {
    let loaded = match rules.source() {
        RulesFrom::Paths(paths) => FileSource::new(paths).load(),
        RulesFrom::Runtime { root, runtime } => runtime_source(root, runtime).load(),
    };
    match loaded {
        Ok(sources) => Ok(match compile(&sources, &rules.options()) {
            Ok(snapshot) => LoadedRules::Compiled(Box::new(snapshot)),
            Err(report) => LoadedRules::Wrong(report),
        }),
        Err(error) => match absent(rules, &error) {
            Some(path) => Ok(LoadedRules::Absent { path }),
            None => Err(Failure::Load(error)),
        },
    }
}

/// The path of rules that do not exist, where that may be meant: nobody named it, or the service starts without.
fn absent(rules: &config::Rules, error: &LoadError) -> Option<String> {
    let [Fault { cause: Cause::Missing, place }] = error.faults() else { return None };
    let may_be = !rules.required || rules.paths == [Path::new(DEFAULT_PATH)];
    may_be.then(|| place.clone())
}

/// The layout of envoyproxy/ratelimit's runtime directory.
pub(crate) fn runtime_source(root: &Path, runtime: &config::Runtime) -> RuntimeSource {
    let (skip, swap) = (runtime.ignore_dot_files, runtime.watch_root);
    RuntimeSource {
        root: root.to_owned(),
        subdirectory: runtime.subdirectory.clone().unwrap_or_default(),
        app_directory: runtime.appdirectory.clone(),
        dot_files: if skip { DotFiles::Skip } else { DotFiles::Read },
        changes: if swap { RuntimeChanges::Root } else { RuntimeChanges::Directory },
    }
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
