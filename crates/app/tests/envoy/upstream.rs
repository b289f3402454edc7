//! The service behind Envoy: answers 200 with the request's head as the body.
//!
//! Every connection is closed after its answer, so that Envoy never writes to
//! one that is just being closed.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::PATIENCE;

/// A running service; stops with its handle.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // A client that goes away is its own affair.
                thread::spawn(move || answer(stream).ok());
            }
        });
        Upstream { address, stopping }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the listener, so that it sees that it is to stop.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }
}

/// Answers one request. Bodies of requests are not read; tests send none.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while reader.read_line(&mut head)? > 2 {}
    let length = head.len();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{head}")
}
