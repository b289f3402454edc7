//! The commands of the prompt.

use tidegate_document::did_you_mean;
use tidegate_engine::{Mode, Nanos};

use crate::descriptor::{self, TypedDescriptor};
use crate::exit::Complaint;
use crate::words::parse_span;

/// The maximum of requests in one line.
pub(super) const REPEAT_MAX: u32 = 10_000;

/// One line of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptCommand {
    /// An empty line or a comment.
    Nothing,
    Request(PromptRequest),
    Wait(Nanos),
    /// Another mode for a rule; `None` restores the one of its file.
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

/// A request, and what the engine does with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PromptRequest {
    pub(super) action: RequestAction,
    pub(super) descriptors: Vec<TypedDescriptor>,
    pub(super) repeat: u32,
    pub(super) cost: u64,
}

/// What the engine does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestAction {
    /// Decide and charge; slots are released at once.
    Check,
    /// Decide and charge; slots are held until `release`.
    Hold,
    /// Decide only.
    Peek,
    /// Forget what was used.
    Reset,
}

/// The commands, their arguments and their effect.
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
/// When it is not a command.
pub(super) fn parse(line: &str) -> Result<PromptCommand, Complaint> {
    let words = split(line)?;
    let Some((first, rest)) = words.split_first() else { return Ok(PromptCommand::Nothing) };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    if first.starts_with('#') {
        return Ok(PromptCommand::Nothing);
    }
    if first.contains('=') {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        return parse_request(RequestAction::Check, &words);
    }
    match first.to_ascii_lowercase().as_str() {
        "peek" => parse_request(RequestAction::Peek, &rest),
        "hold" => parse_request(RequestAction::Hold, &rest),
        "reset" => parse_request(RequestAction::Reset, &rest),
        "wait" => wait(&rest),
        "mode" => mode(&rest),
        "explain" => Ok(PromptCommand::Explain(descriptor::parse(rest)?)),
        "domain" => match rest.as_slice() {
            [name] => Ok(PromptCommand::Domain((*name).to_owned())),
            _ => Err(Complaint::new("`domain` takes one name", "such as `domain shop`")),
        },
        "release" => alone(PromptCommand::Release, first, &rest),
        "off" => alone(PromptCommand::Off, first, &rest),
        "on" => alone(PromptCommand::On, first, &rest),
        "rules" => alone(PromptCommand::Rules, first, &rest),
        "help" | "?" => alone(PromptCommand::Help, first, &rest),
        "quit" | "exit" => alone(PromptCommand::Quit, first, &rest),
        _ => {
            let help = did_you_mean(first, COMMANDS.iter().map(|(name, ..)| *name))
                .unwrap_or_else(|| "type a request such as `user=ada`, or `help`".to_owned());
            Err(Complaint::new(format!("no command is called `{first}`"), help))
        }
    }
}

fn alone(command: PromptCommand, name: &str, rest: &[&str]) -> Result<PromptCommand, Complaint> {
    if rest.is_empty() {
        return Ok(command);
    }
    Err(Complaint::new(format!("nothing follows `{name}`"), format!("type `{name}` alone")))
}

fn wait(rest: &[&str]) -> Result<PromptCommand, Complaint> {
    let help = "such as `wait 500ms`, `wait 2s` or `wait 1m30s`";
    match rest {
        [typed] => match parse_span(typed) {
            Some(span) => Ok(PromptCommand::Wait(span)),
            None => Err(Complaint::new(format!("`{typed}` is not a duration"), help)),
        },
        _ => Err(Complaint::new("`wait` takes one duration", help)),
    }
}

fn mode(rest: &[&str]) -> Result<PromptCommand, Complaint> {
    let [rule, word] = rest else {
        let help = "such as `mode user shadow`; `rules` lists the rules";
        return Err(Complaint::new("`mode` takes a rule and a mode", help));
    };
    let mode = match *word {
        "default" => None,
        word => Some(Mode::from_word(word).ok_or_else(|| {
            let words = [Mode::WORDS, &["default"]].concat();
            let help = did_you_mean(word, words.iter().copied())
                .unwrap_or_else(|| format!("the modes are {}", words.join(", ")));
            Complaint::new(format!("no mode is called `{word}`"), help)
        })?),
    };
    Ok(PromptCommand::Mode { rule: (*rule).to_owned(), mode })
}

/// A request with its `xN` and `--cost N`, in any position.
fn parse_request(action: RequestAction, words: &[&str]) -> Result<PromptCommand, Complaint> {
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
    Ok(PromptCommand::Request(PromptRequest { action, descriptors, repeat, cost }))
}

fn parse_cost(number: &str) -> Result<u64, Complaint> {
    number.parse().map_err(|_| {
        Complaint::new(
            format!("`{number}` is not a cost"),
            "give a whole number, such as `--cost 5`",
        )
    })
}

/// The number of requests, if the word is `x` and a number.
fn repeat_of(word: &str) -> Option<Result<u32, Complaint>> {
    let number = word.strip_prefix('x')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let times = number.parse().ok().filter(|times| (1..=REPEAT_MAX).contains(times));
    Some(times.ok_or_else(|| {
        let help = format!("between x1 and x{REPEAT_MAX}");
        Complaint::new(format!("`{word}` is not a number of requests"), help)
    }))
}

/// The words of a line; text in double quotes is not split.
fn split(line: &str) -> Result<Vec<String>, Complaint> {
    let mut words: Vec<String> = Vec::new();
    let (mut in_word, mut quoted) = (false, false);
    for letter in line.chars() {
        if letter.is_whitespace() && !quoted {
            in_word = false;
            continue;
        }
        if !in_word {
            words.push(String::new());
            in_word = true;
        }
        if letter == '"' {
            quoted = !quoted;
        } else if let Some(word) = words.last_mut() {
            word.push(letter);
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

    fn asked(line: &str) -> (RequestAction, Vec<String>, u32, u64) {
        match parse(line) {
            Ok(PromptCommand::Request(asked)) => {
                let descriptors = asked.descriptors.iter().map(ToString::to_string).collect();
                (asked.action, descriptors, asked.repeat, asked.cost)
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
        assert_eq!(asked("user=ada path=/login"), (RequestAction::Check, typed.clone(), 1, 1));
        assert_eq!(asked("user=ada path=/login x3"), (RequestAction::Check, typed.clone(), 3, 1));
        assert_eq!(
            asked("user=ada --cost 5 path=/login x3"),
            (RequestAction::Check, typed.clone(), 3, 5)
        );
        assert_eq!(asked("peek user=ada path=/login --cost=7"), (RequestAction::Peek, typed, 1, 7));
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
        assert_eq!(parse("wait 500ms"), Ok(PromptCommand::Wait(Nanos::from_millis(500))));
        let mode = |mode| Ok(PromptCommand::Mode { rule: "user".to_owned(), mode });
        assert_eq!(parse("mode user shadow"), mode(Some(Mode::Shadow)));
        assert_eq!(parse("mode user default"), mode(None));
        assert_eq!(parse("OFF"), Ok(PromptCommand::Off));
        assert_eq!(parse("exit"), Ok(PromptCommand::Quit));
        assert_eq!(parse(" \t\r\n"), Ok(PromptCommand::Nothing));
        assert_eq!(parse("# a comment"), Ok(PromptCommand::Nothing));
    }

    #[test]
    fn errors_show_the_right_form() {
        for (line, message, help) in [
            ("wiat 1s", "no command is called `wiat`", "did you mean `wait`?"),
            ("hello", "no command is called `hello`", "did you mean `help`?"),
            ("wait", "`wait` takes one duration", "such as `wait 500ms`"),
            ("wait soon", "`soon` is not a duration", "such as `wait 500ms`"),
            ("mode user", "`mode` takes a rule and a mode", "such as `mode user shadow`"),
            ("mode user shade", "no mode is called `shade`", "did you mean `shadow`?"),
            ("off now", "nothing follows `off`", "type `off` alone"),
            ("peek", "a descriptor has no entries", "give at least one"),
            ("peek user", "`user` is not an entry", "write entries as KEY=VALUE"),
            ("user=ada --cost much", "`much` is not a cost", "give a whole number"),
            ("user=ada --cost", "`` is not a cost", "give a whole number"),
            ("user=ada x0", "`x0` is not a number of requests", "between x1 and x10000"),
            (
                "user=ada x99999999999",
                "`x99999999999` is not a number of requests",
                "between x1 and x10000",
            ),
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
