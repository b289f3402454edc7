//! A Redis for the benchmark, and its statistics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::server::{Door, Server};

/// The longest answer that is read here.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A running Redis without persistence. Dropping this kills it.
#[derive(Debug)]
pub(super) struct Instance {
    server: Server,
    /// Its working directory, which stays empty.
    _folder: TempDir,
}

impl Instance {
    /// Starts the `redis-server` of this machine on a free port.
    ///
    /// # Errors
    /// When there is none, or it does not listen.
    pub(super) fn start() -> anyhow::Result<Self> {
        let folder = TempDir::new().context("cannot make a folder for Redis")?;
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir"]);
        command.arg(folder.path());
        let server = Server::start_at(command, Door::Redis, |address| {
            Ok(vec!["--port".to_owned(), address.port().to_string()])
        })?;
        Ok(Instance { server, _folder: folder })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// When it has no address, which cannot happen after a successful start.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        self.server.door(Door::Redis)
    }

    /// Its process id.
    pub(super) fn process(&self) -> u32 {
        self.server.process()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(self.address()?).context("Redis does not answer")?;
        Ok(Client(BufReader::new(stream)))
    }

    /// Stops the process (`SIGSTOP`): it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues the stopped process.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = i32::try_from(self.process()).ok().and_then(Pid::from_raw);
        let process = process.context("Redis has no process")?;
        kill_process(process, signal).context("Redis has ended")
    }
}

/// A connection to Redis, with one command at a time.
#[derive(Debug)]
pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    /// Sends a command and returns its answer as text.
    ///
    /// # Errors
    /// When Redis answers with an error, with a list, or not at all.
    pub(super) fn ask(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(command.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("Redis closed the connection")?;
        match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "$" => self.text(rest),
            _ => bail!("Redis answers {line:?} to {}", words.join(" ")),
        }
    }

    /// What follows the length of a text.
    fn text(&mut self, length: &str) -> anyhow::Result<String> {
        let length: usize = length.parse().context("Redis has nothing there")?;
        anyhow::ensure!(length <= ANSWER_BYTES_MAX, "Redis answers with {length} bytes");
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(String::from_utf8(bytes)?)
    }

    /// The processor time that Redis has used since it began.
    ///
    /// # Errors
    /// When it does not report it.
    pub(super) fn cpu(&mut self) -> anyhow::Result<Duration> {
        let info = self.ask(&["INFO", "cpu"])?;
        cpu_in(&info).context("Redis does not say what time it used")
    }

    /// How often this command was executed, by clients or by scripts.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) fn calls(&mut self, command: &str) -> anyhow::Result<u64> {
        Ok(calls_in(&self.ask(&["INFO", "commandstats"])?, command))
    }
}

fn cpu_in(info: &str) -> Option<Duration> {
    let seconds = |name: &str| -> Option<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    let spent = seconds("used_cpu_user")? + seconds("used_cpu_sys")?;
    Duration::try_from_secs_f64(spent).ok()
}

fn calls_in(info: &str, command: &str) -> u64 {
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(prefix.as_str()));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_kernel_and_outside_are_added() {
        let info = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\n\
                    used_cpu_sys_children:7.000000\r\n";
        assert_eq!(cpu_in(info), Some(Duration::from_millis(1_750)));
        assert_eq!(cpu_in("# CPU\r\n"), None);
    }

    #[test]
    fn what_was_never_called_was_called_no_times() {
        let info = "cmdstat_set:calls=3,usec=9\r\ncmdstat_evalsha:calls=12,usec=40\r\n";
        assert_eq!(calls_in(info, "evalsha"), 12);
        assert_eq!(calls_in(info, "eval"), 0);
    }
}
