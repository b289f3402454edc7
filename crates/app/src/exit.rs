//! Exit codes, and the errors of commands.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use tidegate_rules::Report;
use tidegate_sources::LoadError;

use crate::output::{Clean, Output, StyledText, style, write_problems};
use crate::words::count;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// No problems.
    Fine,
    /// The rules or the configuration have problems.
    Problems,
    /// The command could not be understood, or its input not be read.
    Unusable,
}

impl Exit {
    /// The exit code of a check.
    pub(crate) const fn of_check(ok: bool) -> Self {
        if ok { Exit::Fine } else { Exit::Problems }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Problems => 1,
            Exit::Unusable => 2,
        })
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments or the environment cannot be used.
    Usage(Complaint),
    /// The rule files cannot be read.
    Load(LoadError),
    /// The rules have problems.
    Rules(Report),
    /// The configuration has problems.
    Config(Report),
    /// The gateway's document has problems.
    Gateway(Report),
    /// The forwarder's document has problems.
    Forward(Report),
    /// The output cannot be written.
    Output(io::Error),
}

/// An error, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Complaint {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Complaint { message: message.into(), help: help.into() }
    }

    /// Writes it as two lines.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_complaint(out, &self.message, &self.help)
    }
}

impl Failure {
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Failure::Rules(_) | Failure::Config(_) | Failure::Gateway(_) | Failure::Forward(_) => {
                Exit::Problems
            }
            Failure::Usage(_) | Failure::Load(_) | Failure::Output(_) => Exit::Unusable,
        }
    }

    /// Writes the error.
    pub(crate) fn print(&self, err: &mut Output) {
        // If standard error is closed, the exit code still reports the error.
        let _ = self.write(err).and_then(|()| err.flush());
    }

    fn write(&self, err: &mut Output) -> io::Result<()> {
        let (report, document, command) = match self {
            Failure::Usage(complaint) => return complaint.write(err),
            Failure::Load(error) => {
                let mut faults = error.faults().iter();
                return faults
                    .try_for_each(|fault| write_complaint(err, fault, fault.cause.help()));
            }
            Failure::Output(error) => {
                let message = format!("the output cannot be written: {error}");
                return write_complaint(err, message, "check that the disk is not full");
            }
            Failure::Rules(report) => (report, "the rules have", "tidegate rules check"),
            Failure::Config(report) => (report, "the configuration has", "tidegate config check"),
            Failure::Gateway(report) => {
                (report, "the gateway's document has", "tidegate config check")
            }
            Failure::Forward(report) => {
                (report, "the forwarder's document has", "tidegate config check")
            }
        };
        write_problems(err, report.problems(), report.omitted())?;
        writeln!(err)?;
        let problems = count(report.problems().len() + report.omitted(), "problem");
        let help = format!("fix the problems, then run `{command}`");
        write_complaint(err, format!("{document} {problems}"), &help)
    }
}

fn write_complaint(out: &mut impl Write, message: impl Display, help: &str) -> io::Result<()> {
    writeln!(out, "{} {}", StyledText(style::ERROR, "error:"), Clean(message))?;
    writeln!(out, "{} {}", StyledText(style::HELP, "help:"), Clean(help))
}

impl From<Complaint> for Failure {
    fn from(complaint: Complaint) -> Self {
        Failure::Usage(complaint)
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Failure::Rules(report)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}
