//! `tidegate guard`: hands the server's list of floods to nftables.
//!
//! A process of its own, because only it needs the right to change the packet filter (CAP_NET_ADMIN); the server has
//! none. The server sends the whole list each second. It is applied when it has changed, when half a minute has passed,
//! and when the table is not there: whatever was lost is made up for by the next message. Every entry has a timeout of
//! at most 90 seconds in the kernel, so that everybody gets in again soon after this process or the server has ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_kernel_rules::{
    LIST_LINE_BYTES_MAX, LIST_TABLE, ListMessage, ListMessageReader, create_table, replace_list,
};
use tidegate_server::connect_private;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;
use crate::packet_filter::{self, PATIENCE};

/// How long the server may be silent. It sends the list each second.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt to connect.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// Entries are renewed this often: three times before the kernel forgets them.
const RENEW_EVERY: Duration = Duration::from_secs(30);

/// The arguments of `tidegate guard`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GuardArgs {
    /// The server's socket, as `floods.socket` of its configuration names it.
    #[arg(long, value_name = "PATH", default_value = "/run/tidegate/floods.sock")]
    pub(crate) socket: PathBuf,
    /// The program that changes nftables.
    #[arg(long, value_name = "PATH", default_value = "nft")]
    pub(crate) nft: PathBuf,
    /// Print what would be handed to nftables instead, and change nothing.
    #[arg(long)]
    pub(crate) print: bool,
    /// End after the first list.
    #[arg(long)]
    pub(crate) once: bool,
}

pub(crate) fn run(args: &GuardArgs, out: &mut Output) -> Result<Exit, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Complaint::new(format!("the runtime cannot be started: {error}"), "check open files")
    })?;
    runtime.block_on(guard(args, out))
}

/// Takes lists until the process is ended; one if it should take only one.
async fn guard(args: &GuardArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut kernel = KernelList { nft: args.nft.clone(), applied: None };
    let mut logged = String::new();
    loop {
        let ended = session(args, &mut kernel, out).await;
        let problem = match ended {
            Ok(()) => return Ok(Exit::Fine),
            Err(problem) if args.once => {
                let help =
                    "start the server with `floods.list` and `floods.socket`, as the same user";
                return Err(Complaint::new(problem, help).into());
            }
            Err(problem) => problem,
        };
        // The same problem once: the server may be away for long.
        if problem != logged {
            eprintln!("{problem}; trying again each second");
            logged = problem;
        }
        sleep(RECONNECT_AFTER).await;
    }
}

/// Takes lists over one connection. Returns after the first list if that is all, and otherwise why it ended.
async fn session(
    args: &GuardArgs,
    kernel: &mut KernelList,
    out: &mut Output,
) -> Result<(), String> {
    let path = args.socket.display();
    let stream = connect_private(args.socket.clone()).await;
    let stream = stream.map_err(|error| format!("cannot read the list at {path}: {error}"))?;
    let mut lines =
        LineReader { stream: BufReader::new(stream), reader: ListMessageReader::default() };
    loop {
        let message = timeout(SILENCE_MAX, lines.next_message()).await;
        let message = message.map_err(|_| format!("the server at {path} is silent"))??;
        if args.print {
            let text = format!("{}{}", create_table(), replace_list(&message.entries));
            crate::print(text, out).map_err(|_| "standard output is closed".to_owned())?;
        } else {
            match kernel.apply(&message) {
                Ok(()) => {}
                Err(problem) if args.once => return Err(problem),
                // The next list is another attempt.
                Err(problem) => eprintln!("{problem}"),
            }
        }
        if args.once {
            return Ok(());
        }
    }
}

/// Reads messages, with lines of bounded length.
struct LineReader {
    stream: BufReader<UnixStream>,
    reader: ListMessageReader,
}

impl LineReader {
    async fn next_message(&mut self) -> Result<ListMessage, String> {
        let mut line = Vec::new();
        loop {
            let byte = self.stream.read_u8().await;
            match byte.map_err(|error| format!("the server has gone: {error}"))? {
                b'\n' => {
                    let text = std::str::from_utf8(&line).map_err(|error| error.to_string())?;
                    if let Some(message) =
                        self.reader.take(text).map_err(|error| error.to_string())?
                    {
                        return Ok(message);
                    }
                    line.clear();
                }
                byte if line.len() < LIST_LINE_BYTES_MAX => line.push(byte),
                _ => return Err("a line of the list is too long".to_owned()),
            }
        }
    }
}

/// The list in the kernel.
struct KernelList {
    nft: PathBuf,
    /// The version that was applied last, and when.
    applied: Option<(u64, Instant)>,
}

impl KernelList {
    /// Applies a list if it differs from the kernel's, or is due.
    fn apply(&mut self, message: &ListMessage) -> Result<(), String> {
        let is_due = self
            .applied
            .is_none_or(|(version, at)| version != message.version || at.elapsed() >= RENEW_EVERY);
        // Somebody else may have deleted the table: it costs one short process to see.
        let is_there = nft(
            &self.nft,
            &["-t", "list", "chain", "inet", "tidegate_list", "early"],
            String::new(),
        )
        .is_ok();
        if !is_due && is_there {
            return Ok(());
        }
        let mut script = if is_there { String::new() } else { create_table() };
        script.push_str(&replace_list(&message.entries));
        self.applied = None;
        nft(&self.nft, &["-f", "-"], script)
            .map_err(|error| format!("the list of {LIST_TABLE} was not changed: {error}"))?;
        self.applied = Some((message.version, Instant::now()));
        Ok(())
    }
}

fn nft(program: &Path, args: &[&str], script: String) -> Result<(), String> {
    packet_filter::run(program, args, script, PATIENCE)
}
