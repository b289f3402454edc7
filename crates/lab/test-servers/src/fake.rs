//! Fake servers with faults that a real server cannot be made to have.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// What a fake server does with a connection.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Reads and never answers.
    Silence,
    /// Answers each command with these bytes.
    Says(&'static [u8]),
    /// Closes the connection at once.
    HangsUp,
}

/// A listener on loopback that misbehaves.
#[derive(Debug)]
pub struct Fake {
    port: u16,
    ends: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
}

impl Fake {
    /// Starts a listener with this fault on a free port.
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ends, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ended, count) = (Arc::clone(&ends), Arc::clone(&accepted));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                if let Ok(stream) = stream {
                    thread::spawn(move || misbehave(stream, fault));
                }
            }
        });
        Fake { port, ends, accepted }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn misbehave(mut stream: TcpStream, fault: Fault) {
    let mut heard = [0; 4096];
    loop {
        match fault {
            Fault::HangsUp => return,
            Fault::Silence | Fault::Says(_) => {}
        }
        let count = match stream.read(&mut heard) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if let Fault::Says(bytes) = fault {
            // Each command begins with an asterisk, and no argument in these tests has one.
            let commands = heard.iter().take(count).filter(|&&byte| byte == b'*').count();
            if stream.write_all(&bytes.repeat(commands)).is_err() {
                return;
            }
        }
    }
}
