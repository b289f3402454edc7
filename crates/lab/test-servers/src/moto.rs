//! An S3 server for tests: moto, which keeps its objects in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::eventually;
use crate::http::exchange;
use crate::port::Port;
use crate::process::Process;

/// A running moto. It accepts any keys.
#[derive(Debug)]
pub struct MotoServer {
    _process: Process,
    _files: TempDir,
    // Last: it is given back when the process has ended.
    port: Port,
}

impl MotoServer {
    /// Starts it, waits until it answers, and makes a bucket.
    #[track_caller]
    pub fn start(bucket: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let port = Port::claim();
        let modules = modules();
        assert!(
            modules.join("moto").is_dir(),
            "{} is missing: run `make tools`",
            modules.display()
        );
        let script = format!(
            "import sys; sys.path.insert(0, {:?}); from moto.server import main; \
             main(['-H', '127.0.0.1', '-p', '{}'])",
            modules.display().to_string(),
            port.number()
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]).current_dir(files.path());
        let mut process = Process::start(&mut command, &files.path().join("log"));
        eventually("that moto answers", || {
            assert!(!process.has_ended(), "moto does not start");
            exchange(port.number(), "GET", "/moto-api/", "").ok()
        });
        let made = exchange(port.number(), "PUT", &format!("/{bucket}"), "").unwrap();
        assert_eq!(made.0, 200, "{}", made.1);
        MotoServer { _process: process, _files: files, port }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

/// Where `tools/install-moto` puts it, or where the environment says it is.
#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn modules() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/moto");
    std::env::var_os("TIDEGATE_MOTO").map_or(installed, PathBuf::from)
}
