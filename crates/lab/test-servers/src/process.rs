//! A server's process, which is killed when its handle is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

/// How many lines of the log a failing test prints.
const LINES_SHOWN: usize = 20;

/// A running process that writes a log.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the command with an empty environment; it writes to `log`.
    #[track_caller]
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        command.env_clear().stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Process { child, log: log.to_owned() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Stops the process (`SIGSTOP`): the kernel accepts connections, but nothing answers.
    #[track_caller]
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a stopped process.
    #[track_caller]
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to stop (`SIGTERM`).
    #[track_caller]
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills it, as a crash would, and waits until it has ended.
    #[track_caller]
    pub fn kill(&mut self) {
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
