//! A server's process, which ends with its handle.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

/// How many lines of its log a failing test shows.
const LINES_SHOWN: usize = 20;

/// A running process that writes a log.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the command with an empty environment; it writes to `log`.
    #[track_caller]
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        command.env_clear().stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Process { child, log: log.to_owned() }
    }

    /// What the system calls it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Holds the process where it is: it accepts connections and answers nothing.
    #[track_caller]
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    #[track_caller]
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once, as a crash would, and waits until it has ended.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that was waited for is not signalled again.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let skipped = lines.len().saturating_sub(LINES_SHOWN);
            for line in lines.into_iter().skip(skipped) {
                eprintln!("server: {line}");
            }
        }
    }
}
