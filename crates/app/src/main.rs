//! The `tidegate` binary: everything is in the library.

use std::process::ExitCode;

/// Answers are small and many: a faster allocator is worth a tenth of a request.
/// It does not ask for huge pages: one that is touched anywhere is resident as
/// a whole, which made the service a third larger and hardly faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_app::run(std::env::args_os())
}
