//! Lines of a log, written by a separate thread.
//!
//! A request only puts a record into a bounded queue, without waiting and without formatting. When the queue is full
//! the line is dropped and counted, so that a slow disk does not slow requests.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The maximum number of lines per write.
const BATCH_MAX: u64 = 1_024;

/// The queue of a thread that writes lines.
#[derive(Debug)]
pub struct LogQueue<L> {
    lines: SyncSender<L>,
    dropped: AtomicU64,
    /// The number of lines put into the queue.
    queued: AtomicU64,
    written: Arc<WrittenLines>,
}

/// The number of lines that the thread has written.
#[derive(Debug, Default)]
struct WrittenLines {
    lines: Mutex<u64>,
    more: Condvar,
}

impl<L: Send + 'static> LogQueue<L> {
    /// Starts the thread, called `tidegate-` and the name. `write` adds a line with its end to a text.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        name: &str,
        waiting_max: usize,
        out: Box<dyn Write + Send>,
        write: impl Fn(&L, &mut String) + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, queue) = sync_channel(waiting_max.max(1));
        let written: Arc<WrittenLines> = Arc::default();
        let progress = Arc::clone(&written);
        let log = name.to_owned();
        thread::Builder::new()
            .name(format!("tidegate-{name}"))
            .spawn(move || write_all(&log, &queue, write, out, &progress))?;
        let (dropped, queued) = Default::default();
        Ok(LogQueue { lines, dropped, queued, written })
    }

    /// Puts a line into the queue; if it is full, the line is dropped and counted. Returns whether it was put.
    pub fn push(&self, line: L) -> bool {
        let sent = self.lines.try_send(line).is_ok();
        let count = if sent { &self.queued } else { &self.dropped };
        count.fetch_add(1, Ordering::Release);
        sent
    }

    /// Waits until all lines so far are written, with a timeout. Returns whether they are. Blocks.
    pub fn flush(&self, patience: Duration) -> bool {
        let queued = self.queued.load(Ordering::Acquire);
        let mut written = self.written.lines.lock();
        self.written.more.wait_while_for(&mut written, |written| *written < queued, patience);
        *written >= queued
    }

    /// How many lines were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many lines were put into the queue.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Writes until the queue is closed: all queued lines with one write, then a flush.
fn write_all<L>(
    name: &str,
    queue: &Receiver<L>,
    write: impl Fn(&L, &mut String),
    mut out: Box<dyn Write + Send>,
    written: &WrittenLines,
) {
    let mut text = String::new();
    while let Ok(first) = queue.recv() {
        text.clear();
        let mut lines: u64 = 0;
        let mut next = Some(first);
        while let Some(line) = next {
            write(&line, &mut text);
            lines = lines.saturating_add(1);
            // Bounded, so that a steady stream of lines cannot delay the write forever.
            next = if lines < BATCH_MAX { queue.try_recv().ok() } else { None };
        }
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!(%error, log = name, "cannot write a log");
        }
        // Also after an error, so that `flush` does not wait for these lines.
        let mut done = written.lines.lock();
        *done = done.saturating_add(lines);
        drop(done);
        written.more.notify_all();
    }
}
