//! The targets of the fuzzer, and their promises.
//!
//! A target gets bytes and returns a [`Trail`], or an error that describes the broken promise. The
//! fuzzer catches panics.

mod config;
mod delivery;
mod doors;
mod gateway;
mod json;
mod locations;
mod logs;
mod pages;
mod rls;
mod rules;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use clap::ValueEnum;

use crate::mutation::Language;

/// A target.
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
    /// The readers of recordings.
    Logs,
    /// The pages of the debug port.
    Pages,
    /// The readers of a target's answers, and the check of destinations.
    Delivery,
}

impl TargetName {
    /// All targets.
    pub const ALL: [TargetName; 8] = [
        TargetName::Rules,
        TargetName::Config,
        TargetName::Json,
        TargetName::Rls,
        TargetName::Gateway,
        TargetName::Logs,
        TargetName::Pages,
        TargetName::Delivery,
    ];

    /// The name on the command line and of its folder in the corpus.
    pub const fn as_str(self) -> &'static str {
        match self {
            TargetName::Rules => "rules",
            TargetName::Config => "config",
            TargetName::Json => "json",
            TargetName::Rls => "rls",
            TargetName::Gateway => "gateway",
            TargetName::Logs => "logs",
            TargetName::Pages => "pages",
            TargetName::Delivery => "delivery",
        }
    }

    pub(crate) fn build(self) -> Box<dyn Target> {
        match self {
            TargetName::Rules => Box::new(rules::RulesTarget),
            TargetName::Config => Box::new(config::ConfigTarget),
            TargetName::Json => Box::new(json::JsonTarget::new()),
            TargetName::Rls => Box::new(rls::RlsTarget::new()),
            TargetName::Gateway => Box::new(gateway::GatewayTarget::new()),
            TargetName::Logs => Box::new(logs::LogsTarget::new()),
            TargetName::Pages => Box::new(pages::PagesTarget::new()),
            TargetName::Delivery => Box::new(delivery::DeliveryTarget::new()),
        }
    }

    pub(crate) const fn language(self) -> Language {
        match self {
            TargetName::Rules => Language::Text(rules::WORDS),
            TargetName::Config => Language::Text(config::WORDS),
            TargetName::Json => Language::Text(json::WORDS),
            TargetName::Rls => Language::Message,
            TargetName::Gateway => Language::Http(gateway::WORDS),
            TargetName::Logs => Language::Text(logs::WORDS),
            TargetName::Pages => Language::Text(pages::WORDS),
            TargetName::Delivery => Language::Text(delivery::WORDS),
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reader of foreign input.
pub(crate) trait Target {
    /// Tries an input; an error describes the broken promise.
    fn give(&mut self, input: &[u8]) -> Result<Trail, String>;
}

/// The shape of an answer: inputs with the same trail were answered alike. It replaces the coverage
/// that other fuzzers measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trail(u64);

impl Trail {
    pub(crate) fn of(parts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Trail(hasher.finish())
    }
}

/// The longest text that a trail distinguishes.
const SHAPE_CHARS_MAX: usize = 120;

/// A message without its quotes and numbers, which depend on the input.
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
