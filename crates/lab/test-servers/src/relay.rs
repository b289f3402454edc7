//! A TCP relay to a server, which can be slow, hold replies back, be silent, be cut and restored.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Chunks on their way in one direction; more make the sender wait, as a full link does.
const CHUNKS_MAX: usize = 4_096;

/// Bytes of one chunk.
const CHUNK_BYTES: usize = 64 * 1024;

/// Listens on loopback and forwards to a server, unless it is cut.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    line: Arc<Line>,
}

#[derive(Debug)]
struct Line {
    to: u16,
    cut: AtomicBool,
    ends: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    pace: Mutex<Pace>,
    /// Wakes the threads that wait until they may forward.
    released: Condvar,
}

/// How a relay forwards.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The delay of each direction: half of the round trip.
    delay: Duration,
    /// The maximum of the random delay on top, in each direction.
    jitter: Duration,
    holds_replies: bool,
    /// Neither direction forwards.
    is_silent: bool,
    /// The state of the generator of jitter.
    random: u64,
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Bytes, and when they arrive.
type Chunk = (Instant, Vec<u8>);

impl Relay {
    /// A relay to the server on this port.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let line = Arc::new(Line {
            to: port,
            cut: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            streams: Mutex::default(),
            pace: Mutex::default(),
            released: Condvar::new(),
        });
        let accepting = Arc::clone(&line);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.ends.load(Ordering::SeqCst) {
                    return;
                }
                // A connection that cannot be forwarded is closed.
                let _ = accepting.pass_on(stream);
            }
        });
        Relay { port: own, line }
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes round trips take this long, and up to `jitter` longer.
    pub fn delay(&self, round_trip: Duration, jitter: Duration) {
        let mut pace = self.line.pace.lock();
        (pace.delay, pace.jitter) = (round_trip / 2, jitter / 2);
    }

    /// Keeps replies back, while requests reach the server.
    pub fn hold_replies(&self) {
        self.line.pace.lock().holds_replies = true;
    }

    /// Forwards the replies that were kept back.
    pub fn release_replies(&self) {
        self.line.pace.lock().holds_replies = false;
        self.line.released.notify_all();
    }

    /// Closes every connection, and each new one.
    pub fn cut(&self) {
        self.line.cut.store(true, Ordering::SeqCst);
        self.line.hang_up();
    }

    /// Stops forwarding and leaves connections open, like a network that loses every packet. What was sent meanwhile
    /// arrives once the line is mended, as TCP would send it again.
    pub fn silence(&self) {
        self.line.pace.lock().is_silent = true;
    }

    /// Forwards connections again.
    pub fn mend(&self) {
        self.line.cut.store(false, Ordering::SeqCst);
        self.line.pace.lock().is_silent = false;
        self.line.released.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.line.ends.store(true, Ordering::SeqCst);
        self.line.pace.lock().is_silent = false;
        self.release_replies();
        self.line.hang_up();
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Line {
    fn pass_on(self: &Arc<Self>, near: TcpStream) -> io::Result<()> {
        let mut streams = self.streams.lock();
        if self.cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        let far = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to))?;
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
            streams.push(stream.try_clone()?);
        }
        let requests = (near.try_clone()?, far.try_clone()?);
        self.forward(Direction::Requests, requests.0, requests.1);
        self.forward(Direction::Replies, far, near);
        Ok(())
    }

    /// Forwards one direction: one thread reads and stamps chunks, another writes them when they are due.
    fn forward(self: &Arc<Self>, direction: Direction, from: TcpStream, to: TcpStream) {
        let (send, receive) = sync_channel(CHUNKS_MAX);
        let (reader, writer) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || reader.read(from, &send));
        thread::spawn(move || writer.write(direction, to, &receive));
    }

    fn read(&self, mut from: TcpStream, send: &SyncSender<Chunk>) {
        let mut bytes = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let arrives = now() + self.next_delay();
            if send.send((arrives, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    }

    /// Ends with either side; then the other is closed.
    fn write(&self, direction: Direction, mut to: TcpStream, receive: &Receiver<Chunk>) {
        // A chunk that is due before an earlier one waits for it: TCP keeps the order.
        while let Ok((arrives, bytes)) = receive.recv() {
            wait_until(arrives);
            let mut pace = self.pace.lock();
            self.released.wait_while(&mut pace, |pace| {
                pace.is_silent || (pace.holds_replies && direction == Direction::Replies)
            });
            drop(pace);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn next_delay(&self) -> Duration {
        let mut pace = self.pace.lock();
        // A linear congruential generator is random enough for jitter.
        pace.random = pace.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let thousandths = u32::try_from((pace.random >> 33) % 1_000).unwrap_or_default();
        pace.delay + pace.jitter * thousandths / 1_000
    }

    fn hang_up(&self) {
        for stream in self.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn wait_until(instant: Instant) {
    while let Some(left) = instant.checked_duration_since(now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

#[expect(clippy::disallowed_methods, reason = "delays between real processes")]
fn now() -> Instant {
    Instant::now()
}
