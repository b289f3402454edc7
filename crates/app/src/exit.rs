//! How a command ends, and what is said when it could not do its work.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use tidegate_rules::Report;
use tidegate_sources::LoadError;

use crate::output::{Clean, Output, Painted, style, write_problems};
use crate::words::count;

/// What the process tells the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Fine,
    /// The rules or the configuration have problems.
    Problems,
    /// The command could not be understood, or its input not be read.
    Unusable,
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

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for makes no sense.
    Usage(Complaint),
    /// The rule files cannot be read.
    Load(LoadError),
    /// The rules cannot be used.
    Rules(Report),
    /// The configuration cannot be used.
    Config(Report),
    /// The gateway's document cannot be used.
    Gateway(Report),
    /// The answer cannot be written.
    Output(io::Error),
}

/// What is wrong, and what would be right.
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
    pub(crate) fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        complain(out, &self.message, &self.help)
    }
}

impl Failure {
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Failure::Rules(_) | Failure::Config(_) | Failure::Gateway(_) => Exit::Problems,
            Failure::Usage(_) | Failure::Load(_) | Failure::Output(_) => Exit::Unusable,
        }
    }

    /// Says what went wrong.
    pub(crate) fn tell(&self, err: &mut Output) {
        // Nobody is left to tell when this cannot be written either.
        let _ = self.write(err).and_then(|()| err.finish());
    }

    fn write(&self, err: &mut Output) -> io::Result<()> {
        match self {
            Failure::Usage(complaint) => complaint.tell(err),
            Failure::Load(error) => {
                error.faults().iter().try_for_each(|fault| complain(err, fault, fault.cause.help()))
            }
            Failure::Rules(report) => {
                let help = "mend them; `tidegate rules check` says when all is well";
                complain_of(err, report, "the rules have", help)
            }
            Failure::Config(report) => {
                let help = "mend it; `tidegate config check` says when all is well";
                complain_of(err, report, "the configuration has", help)
            }
            Failure::Gateway(report) => {
                let help = "mend it; `tidegate config check` says when all is well";
                complain_of(err, report, "the gateway's document has", help)
            }
            Failure::Output(error) => complain(
                err,
                format!("the answer cannot be written: {error}"),
                "see that there is room where it goes",
            ),
        }
    }
}

fn complain_of(out: &mut Output, report: &Report, whose: &str, help: &str) -> io::Result<()> {
    write_problems(out, report.problems(), report.omitted())?;
    writeln!(out)?;
    let found = report.problems().len() + report.omitted();
    complain(out, format!("{whose} {}", count(found, "problem")), help)
}

fn complain(out: &mut impl Write, message: impl Display, help: &str) -> io::Result<()> {
    writeln!(out, "{} {}", Painted(style::ERROR, "error:"), Clean(message))?;
    writeln!(out, "{} {}", Painted(style::HELP, "help:"), Clean(help))
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
