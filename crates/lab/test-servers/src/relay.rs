//! A TCP relay to a server, which can be cut, silenced and restored.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::PAUSE;

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
    silent: AtomicBool,
    ends: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// A relay to the server on this port.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let line = Arc::new(Line {
            to: port,
            cut: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            streams: Mutex::default(),
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

    /// Closes every connection, and each new one.
    pub fn cut(&self) {
        self.line.cut.store(true, Ordering::SeqCst);
        self.line.hang_up();
    }

    /// Stops forwarding and leaves connections open, like a network that loses every packet. What was sent meanwhile
    /// arrives once the line is mended, as TCP would send it again.
    pub fn silence(&self) {
        self.line.silent.store(true, Ordering::SeqCst);
    }

    /// Forwards connections again.
    pub fn mend(&self) {
        self.line.cut.store(false, Ordering::SeqCst);
        self.line.silent.store(false, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.line.ends.store(true, Ordering::SeqCst);
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
        let ways = [(near.try_clone()?, far.try_clone()?), (far, near)];
        for (mut from, mut to) in ways {
            let line = Arc::clone(self);
            thread::spawn(move || {
                // Ends with either side; then the other is closed.
                let _ = line.copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn copy(&self, from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer)?;
            while self.silent.load(Ordering::SeqCst) && !self.ends.load(Ordering::SeqCst) {
                thread::park_timeout(PAUSE);
            }
            if read == 0 {
                return Ok(());
            }
            to.write_all(buffer.get(..read).unwrap_or_default())?;
        }
    }

    fn hang_up(&self) {
        for stream in self.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
