//! A server to compare with, on the allocator that serves such servers best.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tidegate_bench::serve_peer()
}
