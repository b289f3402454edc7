//! What is fuzzed, and what must hold of it.
//!
//! A target is given bytes and answers with a [`Trail`], or says in words what
//! does not hold. That it does not panic is the fuzzer's to see.

mod config;
mod doors;
mod gateway;
mod json;
mod places;
mod rls;
mod rules;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use clap::ValueEnum;

use crate::mutation::Language;

/// What can be fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetName {
    /// The rule parser and compiler.
    Rules,
    /// The reader of the configuration.
    Config,
    /// Every route of the HTTP door.
    Json,
    /// The rate limit service's decoder, beside prost's.
    Rls,
    /// The gateway on real sockets, in front of a strict upstream.
    Gateway,
}

impl TargetName {
    /// All of them.
    pub const ALL: [TargetName; 5] = [
        TargetName::Rules,
        TargetName::Config,
        TargetName::Json,
        TargetName::Rls,
        TargetName::Gateway,
    ];

    /// Its name, as typed and as its folder in the corpus.
    pub const fn as_str(self) -> &'static str {
        match self {
            TargetName::Rules => "rules",
            TargetName::Config => "config",
            TargetName::Json => "json",
            TargetName::Rls => "rls",
            TargetName::Gateway => "gateway",
        }
    }

    pub(crate) fn build(self) -> Box<dyn Target> {
        match self {
            TargetName::Rules => Box::new(rules::RulesTarget),
            TargetName::Config => Box::new(config::ConfigTarget),
            TargetName::Json => Box::new(json::JsonTarget::new()),
            TargetName::Rls => Box::new(rls::RlsTarget::new()),
            TargetName::Gateway => Box::new(gateway::GatewayTarget::new()),
        }
    }

    pub(crate) const fn language(self) -> Language {
        match self {
            TargetName::Rules => Language::Text(rules::WORDS),
            TargetName::Config => Language::Text(config::WORDS),
            TargetName::Json => Language::Text(json::WORDS),
            TargetName::Rls => Language::Message,
            TargetName::Gateway => Language::Http(gateway::WORDS),
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that reads what others wrote.
pub(crate) trait Target {
    /// Gives it an input; the error says what does not hold.
    fn give(&mut self, input: &[u8]) -> Result<Trail, String>;
}

/// Where an input led to: inputs with the same trail were answered alike. It
/// stands for the coverage that other fuzzers measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trail(u64);

impl Trail {
    pub(crate) fn of(parts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Trail(hasher.finish())
    }
}

/// The longest text that makes a difference to a trail.
const SHAPE_CHARS_MAX: usize = 120;

/// A message without what it quotes and counts, which inputs choose.
pub(crate) fn shape(message: &str) -> String {
    let unquoted = message.split(['`', '"', '\'']).step_by(2).flat_map(str::chars);
    unquoted.filter(|char| char.is_alphabetic()).take(SHAPE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_what_they_quote_have_one_shape() {
        assert_eq!(shape("no key `a` at 1:2"), shape("no key `bcd` at 10:20"));
        assert_ne!(shape("no key `a`"), shape("no value `a`"));
    }

    #[test]
    fn trails_are_those_of_their_parts() {
        assert_eq!(Trail::of((1, "a")), Trail::of((1, "a")));
        assert_ne!(Trail::of((1, "a")), Trail::of((1, "b")));
    }
}
