//! What can be typed at the prompt.

use tidegate_engine::{Mode, Nanos};

use crate::descriptor::{self, TypedDescriptor};
use crate::exit::Complaint;
use crate::suggest::did_you_mean;
use crate::words::parse_span;

/// The most requests that one line can ask for.
pub(super) const REPEAT_MAX: u32 = 10_000;

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// An empty line or a comment.
    Nothing,
    Request(Asked),
    Wait(Nanos),
    /// Another mode for a rule; none gives back the one in the rule file.
    Mode {
        rule: String,
        mode: Option<Mode>,
    },
    Release,
    /// The kill switch.
    Off,
    On,
    Rules,
    Domain(String),
    Explain(Vec<TypedDescriptor>),
    Help,
    Quit,
}

/// A request, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) deed: Deed,
    pub(super) descriptors: Vec<TypedDescriptor>,
    pub(super) repeat: u32,
    pub(super) cost: u64,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Decide and charge; slots are given back at once.
    Check,
    /// Decide and charge; slots are kept until they are released.
    Hold,
    /// Decide only.
    Peek,
    /// Forget what was used.
    Reset,
}

/// The commands with what follows them and what they do.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("KEY=VALUE…", "[xN] [--cost N]", "send a request, N times; `--` begins another descriptor"),
    ("peek", "KEY=VALUE…", "say what a request would get, and charge nothing"),
    ("hold", "KEY=VALUE…", "send a request that stays in flight (for limits on requests at once)"),
    ("release", "", "end all requests in flight"),
    ("reset", "KEY=VALUE…", "forget what was used of the limits that a request meets"),
    ("wait", "500ms", "skip time: no sleeping"),
    ("explain", "KEY=VALUE…", "say which rule a request meets, and why"),
    ("rules", "", "list the rules with their modes"),
    ("mode", "RULE MODE", "switch a rule to enforce, shadow or off; `default` as in its file"),
    ("off", "", "kill switch: admit everything, count nothing"),
    ("on", "", "limit again"),
    ("domain", "NAME", "use the rules of another domain"),
    ("help", "", "show this"),
    ("quit", "", "end"),
];

/// Reads one line.
///
/// # Errors
/// When it is none of the commands.
pub(super) fn parse(line: &str) -> Result<Command, Complaint> {
    let words = split(line)?;
    let Some((first, rest)) = words.split_first() else { return Ok(Command::Nothing) };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    if first.starts_with('#') {
        return Ok(Command::Nothing);
    }
    if first.contains('=') {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        return asked(Deed::Check, &words);
    }
    match first.to_ascii_lowercase().as_str() {
        "peek" => asked(Deed::Peek, &rest),
        "hold" => asked(Deed::Hold, &rest),
        "reset" => asked(Deed::Reset, &rest),
        "wait" => wait(&rest),
        "mode" => mode(&rest),
        "explain" => Ok(Command::Explain(descriptor::parse(rest)?)),
        "domain" => match rest.as_slice() {
            [name] => Ok(Command::Domain((*name).to_owned())),
            _ => Err(Complaint::new("`domain` takes one name", "such as `domain shop`")),
        },
        "release" => alone(Command::Release, first, &rest),
        "off" => alone(Command::Off, first, &rest),
        "on" => alone(Command::On, first, &rest),
        "rules" => alone(Command::Rules, first, &rest),
        "help" | "?" => alone(Command::Help, first, &rest),
        "quit" | "exit" => alone(Command::Quit, first, &rest),
        _ => {
            let names: Vec<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
            let otherwise = "type a request such as `user=ada`, or `help`";
            let message = format!("no command is called `{first}`");
            Err(Complaint::new(message, did_you_mean(first, &names, otherwise)))
        }
    }
}

fn alone(command: Command, name: &str, rest: &[&str]) -> Result<Command, Complaint> {
    if rest.is_empty() {
        return Ok(command);
    }
    Err(Complaint::new(format!("nothing follows `{name}`"), format!("type `{name}` alone")))
}

fn wait(rest: &[&str]) -> Result<Command, Complaint> {
    let help = "such as `wait 500ms`, `wait 2s` or `wait 1m30s`";
    match rest {
        [typed] => match parse_span(typed) {
            Some(span) => Ok(Command::Wait(span)),
            None => Err(Complaint::new(format!("`{typed}` is no length of time"), help)),
        },
        _ => Err(Complaint::new("`wait` takes one length of time", help)),
    }
}

fn mode(rest: &[&str]) -> Result<Command, Complaint> {
    let [rule, word] = rest else {
        let help = "such as `mode user shadow`; `rules` lists the rules";
        return Err(Complaint::new("`mode` takes a rule and a mode", help));
    };
    let mode = match *word {
        "default" => None,
        word => Some(Mode::from_word(word).ok_or_else(|| {
            let words = [Mode::WORDS, &["default"]].concat();
            let otherwise = format!("the modes are {}", words.join(", "));
            let message = format!("no mode is called `{word}`");
            Complaint::new(message, did_you_mean(word, &words, &otherwise))
        })?),
    };
    Ok(Command::Mode { rule: (*rule).to_owned(), mode })
}

/// A request with its `xN` and `--cost N`, wherever they stand.
fn asked(deed: Deed, words: &[&str]) -> Result<Command, Complaint> {
    let (mut repeat, mut cost) = (1, 1);
    let mut entries = Vec::new();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if word == "--cost" {
            cost = parse_cost(words.next().unwrap_or_default())?;
        } else if let Some(number) = word.strip_prefix("--cost=") {
            cost = parse_cost(number)?;
        } else if let Some(times) = repeat_of(word) {
            repeat = times?;
        } else {
            entries.push(word);
        }
    }
    let descriptors = descriptor::parse(entries)?;
    Ok(Command::Request(Asked { deed, descriptors, repeat, cost }))
}

fn parse_cost(number: &str) -> Result<u64, Complaint> {
    number.parse().map_err(|_| {
        Complaint::new(format!("`{number}` is no cost"), "give a whole number, such as `--cost 5`")
    })
}

/// How often, if the word is `x` and a number.
fn repeat_of(word: &str) -> Option<Result<u32, Complaint>> {
    let number = word.strip_prefix('x')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let times = number.parse().ok().filter(|times| (1..=REPEAT_MAX).contains(times));
    Some(times.ok_or_else(|| {
        let help = format!("between x1 and x{REPEAT_MAX}");
        Complaint::new(format!("`{word}` cannot be"), help)
    }))
}

/// The words of a line; what stands in double quotes is not split.
fn split(line: &str) -> Result<Vec<String>, Complaint> {
    let mut words: Vec<String> = Vec::new();
    let (mut in_word, mut quoted) = (false, false);
    for letter in line.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                if !in_word {
                    words.push(String::new());
                }
                in_word = true;
            }
            letter if letter.is_whitespace() && !quoted => in_word = false,
            letter => {
                if !in_word {
                    words.push(String::new());
                }
                in_word = true;
                if let Some(word) = words.last_mut() {
                    word.push(letter);
                }
            }
        }
    }
    if quoted {
        return Err(Complaint::new("a quote is not closed", "add a `\"` where the value ends"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> (Deed, Vec<String>, u32, u64) {
        match parse(line) {
            Ok(Command::Request(asked)) => {
                let descriptors = asked.descriptors.iter().map(ToString::to_string).collect();
                (asked.deed, descriptors, asked.repeat, asked.cost)
            }
            other => panic!("{other:?}"),
        }
    }

    fn complaint(line: &str) -> (String, String) {
        let complaint = parse(line).unwrap_err();
        (complaint.message, complaint.help)
    }

    #[test]
    fn reads_requests_with_repeats_and_costs_in_any_order() {
        let typed = vec!["user=ada path=/login".to_owned()];
        assert_eq!(asked("user=ada path=/login"), (Deed::Check, typed.clone(), 1, 1));
        assert_eq!(asked("user=ada path=/login x3"), (Deed::Check, typed.clone(), 3, 1));
        assert_eq!(asked("user=ada --cost 5 path=/login x3"), (Deed::Check, typed.clone(), 3, 5));
        assert_eq!(asked("peek user=ada path=/login --cost=7"), (Deed::Peek, typed, 1, 7));
    }

    #[test]
    fn reads_several_descriptors_of_one_request() {
        let (_, descriptors, ..) = asked("hold user=ada -- ip=10.0.0.1 path=/");
        assert_eq!(descriptors, ["user=ada", "ip=10.0.0.1 path=/"]);
    }

    #[test]
    fn quotes_keep_a_value_together() {
        let (_, descriptors, ..) = asked(r#"user="ada lovelace" path="""#);
        assert_eq!(descriptors, ["user=ada lovelace path="]);
        assert_eq!(complaint(r#"user="ada"#).0, "a quote is not closed");
    }

    #[test]
    fn reads_the_other_commands() {
        assert_eq!(parse("wait 500ms"), Ok(Command::Wait(Nanos::from_millis(500))));
        let mode = |mode| Ok(Command::Mode { rule: "user".to_owned(), mode });
        assert_eq!(parse("mode user shadow"), mode(Some(Mode::Shadow)));
        assert_eq!(parse("mode user default"), mode(None));
        assert_eq!(parse("OFF"), Ok(Command::Off));
        assert_eq!(parse("exit"), Ok(Command::Quit));
        assert_eq!(parse(" \t\r\n"), Ok(Command::Nothing));
        assert_eq!(parse("# a comment"), Ok(Command::Nothing));
    }

    #[test]
    fn says_what_would_be_right() {
        for (line, message, help) in [
            ("wiat 1s", "no command is called `wiat`", "did you mean `wait`?"),
            ("hello", "no command is called `hello`", "did you mean `help`?"),
            ("wait", "`wait` takes one length of time", "such as `wait 500ms`"),
            ("wait soon", "`soon` is no length of time", "such as `wait 500ms`"),
            ("mode user", "`mode` takes a rule and a mode", "such as `mode user shadow`"),
            ("mode user shade", "no mode is called `shade`", "did you mean `shadow`?"),
            ("off now", "nothing follows `off`", "type `off` alone"),
            ("peek", "a descriptor has no entries", "give at least one"),
            ("peek user", "`user` is no entry", "write entries as KEY=VALUE"),
            ("user=ada --cost much", "`much` is no cost", "give a whole number"),
            ("user=ada --cost", "`` is no cost", "give a whole number"),
            ("user=ada x0", "`x0` cannot be", "between x1 and x10000"),
            ("user=ada x99999999999", "`x99999999999` cannot be", "between x1 and x10000"),
            ("domain a b", "`domain` takes one name", "such as `domain shop`"),
        ] {
            let (said, helped) = complaint(line);
            assert_eq!(said, message, "{line}");
            assert!(helped.starts_with(help), "{line}: {helped}");
        }
    }

    #[test]
    fn every_command_of_the_help_is_understood() {
        for (name, follows, _) in COMMANDS {
            let line = match *name {
                "KEY=VALUE…" => "user=ada x2 --cost 2".to_owned(),
                "mode" => "mode user off".to_owned(),
                name => format!("{name} {follows}").replace('…', ""),
            };
            assert!(parse(&line).is_ok(), "{line}");
        }
    }
}
