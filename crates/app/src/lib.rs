//! The command line of Tidegate.
//!
//! `cli` declares the arguments, and each command has its own module. The crates below make all decisions; only this
//! crate reads arguments, the environment and the terminal.

mod cli;
mod exit;

mod input;
mod output;
mod words;

mod descriptor;

mod completions;
pub mod config;
mod control;
mod cross_check;
mod debug_client;
mod demo;
mod demo_api;
mod explain;
mod forward;
mod guard;
mod keys;
mod packet_filter;
mod rules;
mod serve;
mod simulate;
mod snapshot;
#[cfg(feature = "top")]
mod top;
mod version;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ConfigCommand, KeysCommand, RulesCommand, SimulateCommand};
use exit::{Exit, Failure};
use output::Output;

pub use serve::{DECISION_METRICS, FLOOD_METRICS};

/// Runs the command that the arguments ask for.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // If standard error is closed, the exit code still reports the error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Unusable } else { Exit::Fine }.into();
        }
    };
    let mut out = Output::stdout(cli.color);
    let result = run_command(cli.command, &mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(&mut Output::stderr(cli.color));
            failure.exit().into()
        }
    }
}

fn run_command(command: Command, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        Command::Rules { command: RulesCommand::Check(args) } => rules::check::run(&args, out),
        Command::Rules { command: RulesCommand::Explain(args) } => rules::explain::run(&args, out),
        Command::Rules { command: RulesCommand::Export(args) } => rules::export::run(&args, out),
        Command::Rules { command: RulesCommand::Report(args) } => rules::report::run(&args, out),
        Command::Rules { command: RulesCommand::Schema } => {
            print(format_args!("{:#}\n", tidegate_rules::schema()), out)
        }
        Command::Config { command } => match command {
            ConfigCommand::Check(args) => config::check::run(&args, out),
            ConfigCommand::Show(args) => config::show::run(&args, out),
            ConfigCommand::Schema { of } => {
                print(format_args!("{:#}\n", config::schema::schema_of(of)), out)
            }
            ConfigCommand::Env => config::show::run_env(out),
            ConfigCommand::Reference { part } => print(config::reference::text(part), out),
        },
        Command::Keys { command: KeysCommand::New { name, plan } } => keys::run(&name, &plan, out),
        Command::Control { command } => control::run(command, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Forward { command } => forward::run(command, out),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args, out),
        Command::Guard(args) => guard::run(&args, out),
        Command::Snapshot { command } => snapshot::run(&command, out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Demo(args) => demo::run(&args, out),
        Command::DemoApi(args) => demo_api::run(&args, out),
        Command::Simulate { command: SimulateCommand::Overload(args) } => {
            args.run(out)?;
            Ok(Exit::Fine)
        }
        Command::Simulate { command: SimulateCommand::Traffic(args) } => {
            simulate::traffic::run(&args, out)
        }
        Command::Completions { shell } => print(completions::script(shell), out),
        Command::Version => print(format_args!("tidegate {}\n", version::text()), out),
    }
}

fn print(text: impl Display, out: &mut Output) -> Result<Exit, Failure> {
    write!(out, "{text}")?;
    Ok(Exit::Fine)
}
