//! Writes the golden files of `tests/golden` from what the binary does now, for review.

#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../tests/serve/certificates.rs"]
mod certificates;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../tests/serve/client.rs"]
mod client;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../tests/serve/process.rs"]
mod process;
#[path = "../tests/support/redis_wire.rs"]
mod redis_wire;
#[path = "../../decision/stores/tests/support/mod.rs"]
mod servers;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../tests/serve/upstream.rs"]
mod upstream;

#[path = "../tests/golden/capture/mod.rs"]
mod capture;

use std::fs;
use std::process::Command;

fn main() -> std::io::Result<()> {
    // Cargo builds the binary for tests, not for examples.
    let mut build = Command::new(env!("CARGO"));
    assert!(build.args(["build", "--quiet", "--package", "tidegate-app"]).status()?.success());
    let captures = [
        capture::schemas::capture,
        capture::variables::capture,
        capture::commands::capture,
        capture::metrics::capture,
        capture::answers::capture,
        capture::debug_pages::capture,
        capture::redis_state::capture,
    ];
    for golden in captures.into_iter().flat_map(|capture| capture()) {
        let path = capture::folder().join(&golden.file);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, golden.text)?;
    }
    Ok(())
}
