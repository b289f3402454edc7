//! A process that ends with its handle, and the lines that it wrote to stderr.
//!
//! Waiting is for lines: a process says there when it is ready, and the end of
//! its stderr is the end of the process.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::PATIENCE;

/// Enough to hold a start, and what went wrong last.
const LINES_MAX: usize = 2_000;

/// How many lines a failing test shows.
const LINES_SHOWN: usize = 40;

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    written: Mutex<Written>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Written {
    lines: VecDeque<String>,
    ended: bool,
}

impl Process {
    /// Starts the command with an empty environment but for what it sets.
    #[track_caller]
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Log::default());
        let kept = Arc::clone(&log);
        // Somebody has to read, or the process waits for the pipe.
        thread::spawn(move || {
            let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
            lines.for_each(|line| kept.add(String::from_utf8_lossy(&line).into_owned()));
            kept.end();
        });
        Process { name, child, log }
    }

    /// Waits for a line, which may have been written already.
    #[track_caller]
    pub(crate) fn waits_for<T>(&self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let first = |written: &Written| written.lines.iter().find_map(|line| find(line));
        let written = self.log.wait_until(|written| written.ended || first(written).is_some());
        match first(&written) {
            Some(found) => found,
            None => {
                let ended = written.ended;
                drop(written);
                panic!("{} did not say {what} (ended: {ended})", self.name)
            }
        }
    }

    /// Asks the process to end, and waits until it has.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let asked = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(asked.unwrap().success(), "{} is not there to be stopped", self.name);
        let ended = self.log.wait_until(|written| written.ended).ended;
        assert!(ended, "{} does not stop", self.name);
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let written = self.log.written.lock().unwrap();
            let skipped = written.lines.len().saturating_sub(LINES_SHOWN);
            for line in written.lines.iter().skip(skipped) {
                eprintln!("{}: {line}", self.name);
            }
        }
    }
}

impl Log {
    fn add(&self, line: String) {
        let mut written = self.written.lock().unwrap();
        if written.lines.len() == LINES_MAX {
            written.lines.pop_front();
        }
        written.lines.push_back(line);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.written.lock().unwrap().ended = true;
        self.changed.notify_all();
    }

    /// The output once it is as wanted, or when the patience ends.
    fn wait_until(&self, wanted: impl Fn(&Written) -> bool) -> std::sync::MutexGuard<'_, Written> {
        let written = self.written.lock().unwrap();
        let wait = self.changed.wait_timeout_while(written, PATIENCE, |written| !wanted(written));
        wait.unwrap().0
    }
}
