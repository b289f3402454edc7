//! The `tidegate` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::run(std::env::args_os())
}
