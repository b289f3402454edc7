//! Runs `nft` and `iptables-restore` with a script on standard input.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a program may take. The largest list takes less than a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What is kept of what a program says.
const ERROR_BYTES_MAX: u64 = 16 * 1024;

/// Runs a program with this text on standard input, and waits for its end.
///
/// # Errors
/// A sentence with what the program said.
pub(crate) fn run(
    program: &Path,
    args: &[impl AsRef<OsStr>],
    input: String,
    patience: Duration,
) -> Result<(), String> {
    let name = program.display();
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // On a thread: a program that does not read must not block this one. An early end is in its exit code.
        thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let (said, saying) = mpsc::sync_channel(1);
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.take(ERROR_BYTES_MAX).read_to_end(&mut bytes);
            said.send(String::from_utf8_lossy(&bytes).into_owned())
        });
    }
    // Its standard error is closed when the program ends.
    let Ok(text) = saying.recv_timeout(patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{name} did not end within {} s", patience.as_secs()));
    };
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let first = text.lines().find(|line| !line.trim().is_empty());
    Err(format!("{name} failed ({status}): {}", first.unwrap_or("it says nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, patience: Duration) -> Result<(), String> {
        run(Path::new("sh"), &["-c", script], "input\n".to_owned(), patience)
    }

    #[test]
    fn a_program_gets_its_input_and_its_failure_is_reported() {
        assert_eq!(sh("read word && test $word = input", PATIENCE), Ok(()));
        let failed = sh("echo no such set >&2; exit 1", PATIENCE).unwrap_err();
        assert!(failed.contains("no such set"), "{failed}");
        let missing = run(Path::new("/no/such/nft"), &["-f"], String::new(), PATIENCE).unwrap_err();
        assert!(missing.contains("cannot run /no/such/nft"), "{missing}");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let hung = sh("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert!(hung.contains("did not end"), "{hung}");
    }
}
