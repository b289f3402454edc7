//! The command line of Tidegate.
//!
//! A thin shell: `cli` says what can be typed, each command has a module of
//! its own, and everything that is decided is decided in the crates below.
//! Only this crate reads arguments, the environment and the terminal.

mod cli;
mod exit;

mod output;
mod suggest;
mod words;

mod descriptor;

mod completions;
pub mod config;
mod cross_check;
mod demo;
mod demo_api;
mod keys;
mod rules;
mod serve;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ConfigCommand, KeysCommand, RulesCommand, SimulateCommand};
use exit::{Exit, Failure};
use output::Output;

/// Runs the command that the arguments ask for.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell when the message itself cannot be written.
            let _ = error.print();
            return if error.use_stderr() { Exit::Unusable } else { Exit::Fine }.into();
        }
    };
    let mut out = Output::stdout(cli.color);
    let ran = command(cli.command, &mut out).and_then(|exit| {
        out.finish()?;
        Ok(exit)
    });
    match ran {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.tell(&mut Output::stderr(cli.color));
            failure.exit().into()
        }
    }
}

fn command(command: Command, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        Command::Rules { command: RulesCommand::Check(args) } => rules::check::run(&args, out),
        Command::Rules { command: RulesCommand::Explain(args) } => rules::explain::run(&args, out),
        Command::Rules { command: RulesCommand::Schema } => rules::schema::run(out),
        Command::Config { command } => match command {
            ConfigCommand::Check(args) => config::check::run(&args, out),
            ConfigCommand::Show(args) => config::show::run(&args, out),
            ConfigCommand::Schema { of } => config::schema::run(of, out),
            ConfigCommand::Env => config::show::run_env(out),
            ConfigCommand::Reference { part } => config::reference::run(part, out),
        },
        Command::Keys { command: KeysCommand::New { name, plan } } => keys::run(&name, &plan, out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Demo(args) => demo::run(&args, out),
        Command::DemoApi(args) => demo_api::run(&args, out),
        Command::Simulate { command: SimulateCommand::Overload(args) } => {
            args.run(out)?;
            Ok(Exit::Fine)
        }
        Command::Completions { shell } => completions::run(shell, out),
        Command::Version => version::run(out),
    }
}
