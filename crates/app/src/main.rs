//! The `tidegate` binary: everything is in the library.

use std::process::ExitCode;

/// Answers are small and many: a faster allocator is worth a tenth of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::run(std::env::args_os())
}
