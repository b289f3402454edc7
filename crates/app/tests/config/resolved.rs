//! What comes of files, variables and flags.

use std::collections::BTreeSet;

use tidegate_app::config::{Config, Entry, Flag, Input, LoadedConfig, resolve};
use tidegate_rules::Source;

/// A file and variables.
pub(crate) fn input(file: &str, variables: &[(&str, &str)]) -> Input {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    Input {
        file: Some(Source::new("tidegate.yaml", file)),
        variables: variables.iter().map(own).collect(),
        flags: Vec::new(),
    }
}

pub(crate) fn set(text: &str) -> Flag {
    Flag { name: "--set", path: None, text: text.to_owned() }
}

pub(crate) fn loaded(input: &Input) -> LoadedConfig {
    resolve(input).unwrap_or_else(|report| panic!("{report}"))
}

/// What comes of a file alone.
pub(crate) fn of_file(file: &str) -> LoadedConfig {
    loaded(&input(file, &[]))
}

/// What comes of upstream's variables.
pub(crate) fn compat(variables: &[(&str, &str)]) -> LoadedConfig {
    loaded(&input("compat: envoy-ratelimit\n", variables))
}

/// Everything that is wrong with upstream's variables.
pub(crate) fn compat_problems(variables: &[(&str, &str)]) -> String {
    resolve(&input("compat: envoy-ratelimit\n", variables)).unwrap_err().to_string()
}

pub(crate) fn listen(loaded: &LoadedConfig) -> [String; 3] {
    let Config { grpc, http, debug, .. } = &loaded.config;
    [&grpc.listen, &http.listen, &debug.listen]
        .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

/// The paths of all fields.
pub(crate) fn field_paths() -> BTreeSet<String> {
    let mut config = Config::default();
    let entries = config.entries().into_iter();
    let paths = entries.filter_map(|entry| match entry {
        Entry::Field(field) => Some(field.path),
        Entry::Section { .. } => None,
    });
    paths.collect()
}

pub(crate) fn notes(loaded: &LoadedConfig) -> Vec<&str> {
    loaded.notes.iter().map(|note| note.message.as_str()).collect()
}
