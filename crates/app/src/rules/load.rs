//! Rule files from paths and standard input.

use std::path::{Path, PathBuf};

use tidegate_rules::{SOURCE_BYTES_MAX, Source};
use tidegate_sources::{
    Cause, DotFiles, Fault, FileSource, LoadError, RuntimeChanges, RuntimeSource, TextSource,
};

use crate::config::{self, RulesFrom};
use crate::exit::{Complaint, Failure};
use crate::input::{STDIN, read_source};

/// The rules that are read if no others are named.
pub(crate) const DEFAULT_PATH: &str = "rules";

/// The rule files at these paths; `-` is standard input and comes last.
pub(crate) fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let is_stdin = |path: &&PathBuf| path.as_path() == Path::new(STDIN);
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
    if let Some(stdin) = paths.iter().find(is_stdin) {
        sources.push(bounded(read_source(stdin, SOURCE_BYTES_MAX)?)?);
    }
    Ok(sources)
}

fn bounded(source: Source) -> Result<Source, Complaint> {
    if source.text.len() > SOURCE_BYTES_MAX {
        let message = format!("standard input is larger than {SOURCE_BYTES_MAX} bytes");
        let help = "split the rules: several files may add to one domain";
        return Err(Complaint::new(message, help));
    }
    Ok(source)
}

/// The rule files that `serve` would read.
pub(crate) fn configured(rules: &config::Rules) -> Result<Vec<Source>, LoadError> {
    match rules.source() {
        RulesFrom::Paths(paths) => FileSource::new(paths).load(),
        RulesFrom::Runtime { root, runtime } => runtime_source(root, runtime).load(),
    }
}

/// The path of rules that do not exist, if that is not an error: the path is the default, or rules are not required.
pub(crate) fn absent_path(rules: &config::Rules, error: &LoadError) -> Option<String> {
    let [Fault { cause: Cause::Missing, place }] = error.faults() else { return None };
    let is_allowed = !rules.required || rules.paths == [Path::new(DEFAULT_PATH)];
    is_allowed.then(|| place.clone())
}

/// The runtime directory of envoyproxy/ratelimit.
pub(crate) fn runtime_source(root: &Path, runtime: &config::Runtime) -> RuntimeSource {
    let (skip, watch_root) = (runtime.ignore_dot_files, runtime.watch_root);
    RuntimeSource {
        root: root.to_owned(),
        subdirectory: runtime.subdirectory.clone().unwrap_or_default(),
        app_directory: runtime.appdirectory.clone(),
        dot_files: if skip { DotFiles::Skip } else { DotFiles::Read },
        changes: if watch_root { RuntimeChanges::Root } else { RuntimeChanges::Directory },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_read_up_to_the_largest_rule_file() {
        let source = |bytes| Source::new("<stdin>", "#".repeat(bytes));
        assert_eq!(bounded(source(SOURCE_BYTES_MAX)).unwrap().text.len(), SOURCE_BYTES_MAX);
        let message = bounded(source(SOURCE_BYTES_MAX + 1)).unwrap_err().message;
        assert_eq!(message, "standard input is larger than 16777216 bytes");
    }
}
