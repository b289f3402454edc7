//! The configuration reader: any file, variables and flags give a configuration or are rejected at
//! existing locations, with the same result each time.
//!
//! An input is the file, then variables and values for `--set`, one to a line, each after a marker
//! line.

use tidegate_app::config::{Config, Entry, Flag, Input, resolve};
use tidegate_rules::Source;

use super::{Target, Trail, locations, shape};

/// The line after which lines are variables.
const VARIABLES: &str = "#! variables";
/// The line after which lines are flags.
const FLAGS: &str = "#! flags";

/// The most variables, and the most flags: each is compared with every field.
const LINES_MAX: usize = 16;

pub(super) const WORDS: &[&str] = &[
    "compat",
    "workers",
    "rules",
    "paths",
    "runtime",
    "root",
    "grpc",
    "http",
    "debug",
    "listen",
    "store",
    "memory",
    "budget",
    "when_full",
    "limiter",
    "log",
    "level",
    "format",
    "traces",
    "endpoint",
    "shutdown",
    "grace",
    "health",
    "tls",
    "cert",
    "key",
    "client_ca",
    "token",
    "off",
    "auto",
    "none",
    "envoy-ratelimit",
    "true",
    "false",
    "30s",
    "1h30m",
    "16MiB",
    "0B",
    "50%",
    "127.0.0.1:8080",
    "[::]:0",
    "unix:/tmp/a",
    "http://a:1",
    "[",
    "]",
    "{",
    "}",
    ",",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "=",
    "\n#! variables\n",
    "\n#! flags\n",
    "TIDEGATE_",
    "TIDEGATE_COMPAT=",
    "envoy-ratelimit\n",
    "TIDEGATE_RULES=",
    "TIDEGATE_GRPC_LISTEN=",
    "GRPC_PORT=",
    "USE_STATSD=",
    "RUNTIME_ROOT=",
    "REDIS_URL=",
    "NEAR_LIMIT_RATIO=",
    "LOG_LEVEL=",
    "shutdown.grace=",
    "debug.token=",
    "rules.paths=",
    "&a ",
    "*a",
    "<<: *a",
    "'",
    "\"",
    "\t",
    "\0",
    "\u{feff}",
];

pub(super) struct ConfigTarget;

impl Target for ConfigTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let text = String::from_utf8_lossy(input);
        let given = split(&text);
        let sources = sources(&given);
        match (resolve(&given), resolve(&given)) {
            (Ok(one), Ok(two)) => {
                if format!("{one:?}") != format!("{two:?}") {
                    return Err(format!("two readers differ:\n{one:?}\n{two:?}"));
                }
                let mut config = Config::default();
                for entry in config.entries() {
                    if let Entry::Field(field) = entry
                        && !one.origins.contains_key(&field.path)
                    {
                        return Err(format!("nobody knows where `{}` comes from", field.path));
                    }
                }
                locations::check(&one.warnings, &sources)?;
                let codes: Vec<&str> = one.warnings.iter().map(|problem| problem.code).collect();
                let notes: Vec<String> =
                    one.notes.iter().map(|note| shape(&note.message)).take(3).collect();
                Ok(Trail::of((codes, notes)))
            }
            (Err(one), Err(two)) => {
                if one != two {
                    return Err(format!("two readers differ:\n{one}\n{two}"));
                }
                if one.problems().is_empty() || one.to_string().is_empty() {
                    return Err("it is refused without a reason".to_owned());
                }
                locations::check(one.problems(), &sources)?;
                let said = one.problems().iter();
                let said: Vec<_> =
                    said.map(|problem| (problem.code, shape(&problem.message))).take(2).collect();
                Ok(Trail::of(said))
            }
            (one, _) => Err(format!("only one of two readers accepts it: {one:?}")),
        }
    }
}

fn split(text: &str) -> Input {
    let mut input = Input::default();
    let mut file = String::new();
    let mut part = "";
    for line in text.split_inclusive('\n') {
        let words = line.trim_end_matches('\n');
        match (part, words) {
            (_, VARIABLES | FLAGS) => part = words,
            (VARIABLES, _) if input.variables.len() < LINES_MAX => {
                let (name, value) = words.split_once('=').unwrap_or((words, ""));
                input.variables.push((name.to_owned(), value.to_owned()));
            }
            (FLAGS, _) if input.flags.len() < LINES_MAX => {
                input.flags.push(Flag { name: "--set", path: None, text: words.to_owned() });
            }
            (VARIABLES | FLAGS, _) => {}
            _ => file.push_str(line),
        }
    }
    input.file = (!file.is_empty()).then(|| Source::new("tidegate.yaml", file));
    input
}

/// The sources in which problems count columns.
fn sources(input: &Input) -> Vec<Source> {
    let variables = input.variables.iter().map(|(name, value)| Source::new(name, value));
    let flags = input.flags.iter().map(|flag| Source::new(flag.name, &flag.text));
    let all = input.file.iter().cloned().chain(variables).chain(flags);
    all.map(|source| Source { text: masked(&source), ..source }).collect()
}

/// Secrets are masked byte by byte, so columns after one count its bytes.
fn masked(source: &Source) -> String {
    let is_secret = source.name.ends_with("_TOKEN");
    let mask = |char: char| "*".repeat(char.len_utf8());
    let lines = source.text.split_inclusive('\n').map(|line| {
        if is_secret || line.contains("token") {
            line.chars()
                .map(|char| if char.is_ascii() { char.into() } else { mask(char) })
                .collect()
        } else {
            line.to_owned()
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_a_file_then_variables_then_flags() {
        let input = split("workers: 2\n#! variables\nA=b=c\nD\n#! flags\nlog.level=info\n");
        assert_eq!(input.file, Some(Source::new("tidegate.yaml", "workers: 2\n")));
        let variables = [("A", "b=c"), ("D", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(input.variables, variables);
        let flags: Vec<&str> = input.flags.iter().map(|flag| flag.text.as_str()).collect();
        assert_eq!(flags, ["log.level=info"]);
    }

    #[test]
    fn secrets_are_as_wide_as_their_bytes() {
        assert_eq!(masked(&Source::new("a", "token: é\nlevel: é")), "token: **\nlevel: é");
        assert_eq!(masked(&Source::new("TIDEGATE_DEBUG_TOKEN", "é")), "**");
    }
}
