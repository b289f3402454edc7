//! A server to compare with, on mimalloc, the fastest allocator for these servers.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tidegate_bench::serve_peer()
}
