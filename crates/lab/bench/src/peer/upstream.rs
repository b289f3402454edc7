//! A server that answers every GET with the same kibibyte, for gateways to stand in front of.
//!
//! It polls its sockets on one thread, because it shares a processor with the generator: an answer costs
//! one read, one write and a search for the end of the head. It reads nothing else of a request.
//!
//! It runs in its own process, or on the thread of a generator that measures latency and calls it
//! between two polls, so that neither waits for the scheduler.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::ANYWHERE;

/// The body of the goal's answers.
pub(crate) const PAGE_BYTES: usize = 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";
const INPUT_BYTES: usize = 16 * 1024;
/// More than any gateway opens.
const CONNECTIONS_MAX: usize = 4096;
const LISTENER: Token = Token(CONNECTIONS_MAX);

/// The server, which answers when its owner calls it.
pub(crate) struct Upstream {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    connections: Vec<Option<UpstreamConnection>>,
    input: Box<[u8]>,
    answer: Vec<u8>,
}

/// One connection. The beginning of an incomplete head stays at the front of the buffer.
struct UpstreamConnection {
    socket: TcpStream,
    head: Vec<u8>,
}

pub(super) fn serve(announce: impl Fn(&str, SocketAddr)) -> anyhow::Result<()> {
    let mut upstream = Upstream::listen()?;
    announce("http", upstream.address()?);
    loop {
        upstream.wait(None)?;
    }
}

impl Upstream {
    /// # Errors
    /// When the system gives no port.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(ANYWHERE)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Upstream {
            poll,
            events: Events::with_capacity(1024),
            listener,
            connections: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            answer: answer(),
        })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Answers the requests that have arrived, without blocking.
    ///
    /// # Errors
    /// When nothing can be accepted any more.
    pub(crate) fn answer(&mut self) -> anyhow::Result<()> {
        self.wait(Some(Duration::ZERO))
    }

    /// Waits at most this long for requests, and answers them.
    fn wait(&mut self, timeout: Option<Duration>) -> anyhow::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("cannot wait for requests")?,
        }
        for event in &self.events {
            if event.token() == LISTENER {
                accept(&self.listener, &self.poll, &mut self.connections)?;
                continue;
            }
            let Some(index) = self.connections.get_mut(event.token().0) else { continue };
            let answered =
                index.as_mut().map(|connection| connection.answer(&mut self.input, &self.answer));
            // The client has closed the connection.
            if !matches!(answered, Some(Ok(()))) {
                *index = None;
            }
        }
        Ok(())
    }
}

fn answer() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: upstream\r\ncontent-type: text/plain\r\ncontent-length: {PAGE_BYTES}\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + PAGE_BYTES, b'x');
    answer
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    connections: &mut Vec<Option<UpstreamConnection>>,
) -> anyhow::Result<()> {
    loop {
        let mut socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("cannot accept"),
        };
        socket.set_nodelay(true)?;
        let free = connections.iter().position(Option::is_none);
        let index = free.unwrap_or(connections.len());
        if index >= CONNECTIONS_MAX {
            continue;
        }
        poll.registry().register(&mut socket, Token(index), Interest::READABLE)?;
        let connection = Some(UpstreamConnection { socket, head: Vec::new() });
        match connections.get_mut(index) {
            Some(free) => *free = connection,
            None => connections.push(connection),
        }
    }
}

impl UpstreamConnection {
    /// Answers each complete head.
    fn answer(&mut self, input: &mut [u8], answer: &[u8]) -> io::Result<()> {
        loop {
            let read = match self.socket.read(input) {
                Ok(0) => return Err(ErrorKind::ConnectionAborted.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let news = input.get(..read).unwrap_or_default();
            if self.head.is_empty() && news.ends_with(HEAD_END) {
                // The common case: exactly one head.
                self.socket.write_all(answer)?;
            } else {
                self.head.extend_from_slice(news);
                while let Some(end) = ends_at(&self.head) {
                    self.head.drain(..end);
                    self.socket.write_all(answer)?;
                }
            }
            // A short read has emptied the socket; another would cost a system call.
            if read < input.len() {
                return Ok(());
            }
        }
    }
}

fn ends_at(head: &[u8]) -> Option<usize> {
    let end = head.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END)?;
    Some(end + HEAD_END.len())
}
