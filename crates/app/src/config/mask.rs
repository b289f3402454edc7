//! Hides secrets in the texts that problem reports quote.
//!
//! Which fields are secret follows from their types, so that a new one is hidden without further work: in its variable,
//! after its flag, and after its key in the file.

use tidegate_document::{Secrecy, Source};

use super::compat;
use super::fields::Config;
use super::layers::{Input, variable_of};

/// The texts that must not be shown.
#[derive(Debug, Default)]
pub(super) struct Mask {
    /// Variables and flags whose whole text is hidden.
    sources: Vec<String>,
    /// Keys whose value is hidden.
    secret_keys: Vec<String>,
    /// Keys whose value is hidden when it may have a password.
    redacted_keys: Vec<String>,
}

impl Mask {
    pub(super) fn new(input: &Input) -> Self {
        let mut mask = Mask::default();
        let mut config = Config::default();
        for field in config.fields() {
            let keys = match field.value.secrecy() {
                Secrecy::Open => continue,
                Secrecy::Redacted => &mut mask.redacted_keys,
                Secrecy::Secret => &mut mask.secret_keys,
            };
            keys.extend(field.path.rsplit('.').next().map(str::to_owned));
            mask.sources.push(variable_of(&field.path));
            let flags = input.flags.iter().filter(|flag| flag.path == Some(field.path.as_str()));
            mask.sources.extend(flags.map(|flag| flag.name.to_owned()));
        }
        mask
    }

    /// The source without its secrets, of the same length.
    pub(super) fn apply(&self, source: &Source) -> Source {
        if self.sources.contains(&source.name) || compat::is_secret(&source.name) {
            return Source::new(&source.name, hide(&source.text));
        }
        let mut text = String::with_capacity(source.text.len());
        let mut before: Option<OpenSecret> = None;
        for line in source.text.split_inclusive('\n') {
            if let Some(secret) = before.filter(|secret| secret.continues(line)) {
                let has_text = secret.has_text || !line.trim().is_empty();
                before = Some(OpenSecret { has_text, ..secret });
                text += &hide(line);
                continue;
            }
            before = None;
            match self.secret_start(line).and_then(|start| line.split_at_checked(start)) {
                Some((open, secret)) => {
                    // An opening quote or the mark of a block is not text yet.
                    let marks = ['"', '\'', '|', '>', '-', '+'];
                    let has_text = !secret.trim().trim_matches(marks).is_empty();
                    before = Some(OpenSecret { indentation: indentation(line), has_text });
                    text += &format!("{open}{}", hide(secret));
                }
                None => text += line,
            }
        }
        Source::new(&source.name, text)
    }

    /// The index of the value in a line that has a secret key, or a URL that may have a password in it.
    fn secret_start(&self, line: &str) -> Option<usize> {
        let value_of = |word: &String| {
            line.match_indices(word.as_str()).find_map(|(start, word)| {
                let rest = line.get(start + word.len()..)?;
                rest.trim_start_matches(['"', '\'', ' ', '\t']).strip_prefix([':', '='])
            })
        };
        let secrets = self.secret_keys.iter().filter_map(value_of);
        let urls = self.redacted_keys.iter().filter_map(value_of);
        let with_password = urls.filter(|value| value.contains(['@', '?']));
        let first = secrets.chain(with_password).max_by_key(|value| value.len())?;
        Some(line.len() - first.len())
    }
}

/// A text of asterisks, byte for byte as long.
fn hide(text: &str) -> String {
    let hide = |char: char| {
        if char.is_whitespace() { char.to_string() } else { "*".repeat(char.len_utf8()) }
    };
    text.chars().map(hide).collect()
}

/// A secret that may continue in the next line.
#[derive(Clone, Copy, Debug)]
struct OpenSecret {
    /// The indentation of its key.
    indentation: usize,
    /// Whether any of its text was found.
    has_text: bool,
}

impl OpenSecret {
    /// Whether a line belongs to it: a line that is indented deeper than the key does, and so do the first line after a
    /// key without a value and the items of a list, which may be indented like the key.
    fn continues(self, line: &str) -> bool {
        let is_item = line.trim_start().starts_with('-') && indentation(line) == self.indentation;
        !self.has_text || line.trim().is_empty() || is_item || indentation(line) > self.indentation
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::{Flag, resolve};

    /// Every field whose text must not be shown, by path.
    fn secret_paths() -> Vec<String> {
        let mut config = Config::default();
        let secret = config.fields().filter(|field| field.value.secrecy() != Secrecy::Open);
        secret.map(|field| field.path).collect()
    }

    #[test]
    fn a_secret_that_is_refused_is_never_shown() {
        // No secret may have a control character, so each of these is refused.
        let text = "hunter2hunter2@\u{7}";
        let paths = secret_paths();
        assert!(paths.len() >= 7, "{paths:?}");
        for path in paths {
            let variables = vec![(variable_of(&path), text.to_owned())];
            let report = resolve(&Input { variables, ..Input::default() }).unwrap_err();
            assert!(!report.to_string().contains("hunter2"), "{path}: {report}");
            let set = format!("{path}={text}");
            let flag = Flag { name: "--set", path: None, text: set };
            let report = resolve(&Input { flags: vec![flag], ..Input::default() }).unwrap_err();
            assert!(!report.to_string().contains("hunter2"), "{path}: {report}");
        }
    }

    #[test]
    fn every_item_of_a_secret_list_in_the_file_is_hidden() {
        for text in [
            "http:\n  tokens:\n  - hunter2-one ci check\n  - hunter2-two ci check\n  listen: x\n",
            "http:\n  tokens:\n    - hunter2-one ci check\n    - hunter2-two ci check\n",
            "http: {tokens: [hunter2-one ci check, hunter2-two ci check]}\n",
        ] {
            let file = Some(Source::new("tidegate.yaml", text));
            let report = resolve(&Input { file, ..Input::default() }).unwrap_err().to_string();
            assert!(report.contains("SHA-256") && !report.contains("hunter2"), "{report}");
        }
    }

    #[test]
    fn a_flag_of_a_secret_field_is_hidden() {
        let text = "redis://:hunter2@\u{7}".to_owned();
        let flag = Flag { name: "--redis", path: Some("store.redis.url"), text };
        let report = resolve(&Input { flags: vec![flag], ..Input::default() }).unwrap_err();
        assert!(!report.to_string().contains("hunter2"), "{report}");
    }

    #[test]
    fn passwords_of_upstream_are_hidden() {
        for name in ["REDIS_AUTH", "REDIS_SENTINEL_AUTH", "REDIS_PERSECOND_AUTH"] {
            assert!(compat::is_secret(name), "{name}");
        }
    }
}
