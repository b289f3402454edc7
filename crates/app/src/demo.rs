//! `tidegate demo`: the engine at a prompt.
//!
//! Reads commands from a terminal or a pipe, and answers each before the next. On a terminal the clock runs and `wait`
//! skips time; in a pipe only `wait` moves the clock, so a script always gives the same answers.

mod answer;
mod clock;
mod command;
pub(crate) mod flood;
pub(crate) mod forward;
mod greeting;
mod session;
pub(crate) mod throttled;

use std::io::{self, BufRead, IsTerminal, Read, Write};

use tidegate_engine::Source;

use crate::cli::{DemoArgs, DemoCommand};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Output, StyledText, style};
use crate::rules::load;
use clock::DemoClock;
use session::{LineOutcome, Session};

/// The built-in rules, which are an example too.
const QUICKSTART: &str = include_str!("../../../examples/rules/quickstart.yaml");

/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn run(args: &DemoArgs, out: &mut Output) -> Result<Exit, Failure> {
    match &args.command {
        Some(DemoCommand::Flood(args)) => return flood::run(args, out),
        Some(DemoCommand::Forward(args)) => return forward::run(args, out),
        Some(DemoCommand::Throttled(args)) => return throttled::run(args, out),
        None => {}
    }
    if args.print_rules {
        out.write_all(QUICKSTART.as_bytes())?;
        return Ok(Exit::Fine);
    }
    let sources = if args.rules.is_empty() {
        vec![Source::new("quickstart.yaml", QUICKSTART)]
    } else {
        load::sources(&args.rules)?
    };
    let stdin = io::stdin();
    let (mode, clock) = if stdin.is_terminal() {
        (InputMode::Prompt, DemoClock::flowing())
    } else {
        (InputMode::Script, DemoClock::standing())
    };
    let mut session = Session::new(&sources, args.domain.as_deref(), clock)?;
    greeting::write(&session, mode, args.rules.is_empty(), out)?;
    converse(&mut session, stdin.lock(), mode, out)
}

/// Where commands come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputMode {
    /// A terminal.
    Prompt,
    /// A pipe or a file.
    Script,
}

/// Answers each line, to the end of the input.
fn converse(
    session: &mut Session,
    mut input: impl BufRead,
    mode: InputMode,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut all_understood = true;
    while !out.is_closed() {
        if mode == InputMode::Prompt {
            write!(out, "{} ", StyledText(style::STRONG, ">"))?;
            out.flush()?;
        }
        let Some(line) = read_line(&mut input)? else {
            if mode == InputMode::Prompt {
                writeln!(out)?;
            }
            break;
        };
        match session.answer(&line, out)? {
            LineOutcome::Done => {}
            LineOutcome::NotUnderstood => all_understood = false,
            LineOutcome::Quit => break,
        }
    }
    // A typing error at the prompt is not a failure; in a script it is.
    Ok(if all_understood || mode == InputMode::Prompt { Exit::Fine } else { Exit::Unusable })
}

/// The next line, if there is one.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, Complaint> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut bytes);
    if let Err(error) = read {
        let message = format!("standard input cannot be read: {error}");
        return Err(Complaint::new(message, "give the commands in another file or pipe"));
    }
    if bytes.len() > LINE_BYTES_MAX {
        let message = format!("a line is longer than {LINE_BYTES_MAX} bytes");
        return Err(Complaint::new(message, "give one command on each line"));
    }
    let line = String::from_utf8_lossy(&bytes).into_owned();
    Ok((!bytes.is_empty()).then_some(line))
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Options, compile};

    use super::*;

    #[test]
    fn the_built_in_rules_are_right_and_give_no_warning() {
        let sources = [Source::new("quickstart.yaml", QUICKSTART)];
        let snapshot = compile(&sources, &Options::default());
        let snapshot = snapshot.unwrap_or_else(|report| panic!("{report}"));
        assert!(snapshot.warnings().is_empty(), "{:?}", snapshot.warnings());
    }

    #[test]
    fn lines_are_read_up_to_a_length() {
        let mut input = "one\ntwo".as_bytes();
        assert_eq!(read_line(&mut input).unwrap().as_deref(), Some("one\n"));
        assert_eq!(read_line(&mut input).unwrap().as_deref(), Some("two"));
        assert_eq!(read_line(&mut input).unwrap(), None);
        let mut endless = io::BufReader::new(io::repeat(b'a'));
        let message = read_line(&mut endless).unwrap_err().message;
        assert_eq!(message, "a line is longer than 65536 bytes");
    }
}
