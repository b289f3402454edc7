//! The `tidegate` binary: everything is in the library.

use std::process::ExitCode;

/// Requests make many small allocations: a faster allocator saves a tenth of the time of a request. Huge pages are off:
/// a huge page is resident as a whole, which made the service a third larger and hardly faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_app::run(std::env::args_os())
}
