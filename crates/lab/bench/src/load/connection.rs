//! A connection: a non-blocking socket and the state of its protocol.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::{Protocol, Reply};

/// The size of the read buffer: more than all answers in flight.
const INPUT_BYTES: usize = 256 * 1024;

/// One connection.
pub(super) struct Connection<P> {
    socket: TcpStream,
    protocol: P,
    input: Box<[u8]>,
    /// Bytes of the input that are filled.
    filled: usize,
    output: Vec<u8>,
    /// Bytes of the output that are sent.
    sent: usize,
}

impl<P: Protocol> Connection<P> {
    /// Connects, waits until the connection is established, and sends the preface.
    ///
    /// # Errors
    /// When no server listens there.
    pub(super) fn connect(
        address: SocketAddr,
        protocol: P,
        registry: &Registry,
        token: Token,
    ) -> anyhow::Result<Self> {
        let socket = std::net::TcpStream::connect(address).context("cannot connect")?;
        socket.set_nonblocking(true)?;
        Connection::over(TcpStream::from_std(socket), protocol, INPUT_BYTES, registry, token)
    }

    /// Begins to connect, with a buffer for answers of at most this size.
    ///
    /// # Errors
    /// When the system has no sockets left.
    pub(super) fn begin(
        address: SocketAddr,
        protocol: P,
        input_bytes: usize,
        registry: &Registry,
        token: Token,
    ) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).context("cannot begin to connect")?;
        Connection::over(socket, protocol, input_bytes, registry, token)
    }

    fn over(
        mut socket: TcpStream,
        mut protocol: P,
        input_bytes: usize,
        registry: &Registry,
        token: Token,
    ) -> anyhow::Result<Self> {
        socket.set_nodelay(true)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut output = Vec::new();
        protocol.open(&mut output);
        let input = vec![0; input_bytes].into_boxed_slice();
        Ok(Connection { socket, protocol, input, filled: 0, output, sent: 0 })
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.protocol.has_room()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.protocol.in_flight()
    }

    /// Adds a request to the output of the next [`Connection::send`].
    #[inline]
    pub(super) fn ask(&mut self, question: &[u8], asked: Duration) {
        self.protocol.ask(question, asked, &mut self.output);
    }

    /// Sends as much as the socket takes without blocking.
    ///
    /// # Errors
    /// When the connection is broken.
    #[inline]
    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(sent) => self.sent += sent,
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads all that has arrived.
    ///
    /// # Errors
    /// When the connection is broken or the server fails a call.
    #[inline]
    pub(super) fn receive(&mut self, replies: &mut Vec<Reply>) -> anyhow::Result<()> {
        loop {
            let room = self.input.get_mut(self.filled..).unwrap_or_default();
            ensure!(!room.is_empty(), "an answer is longer than any can be");
            let wanted = room.len();
            let read = match self.socket.read(room) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(read) => read,
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error).context("cannot receive"),
            };
            self.filled += read;
            let input = self.input.get(..self.filled).unwrap_or_default();
            let done = self.protocol.hear(input, &mut self.output, replies)?;
            self.input.copy_within(done..self.filled, 0);
            self.filled -= done;
            // A short read has emptied the socket; another would cost a system call.
            if read < wanted {
                return Ok(());
            }
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    // A socket that is still connecting returns an error; the event queue reports it once it can be written to.
    let kinds = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::NotConnected];
    kinds.contains(&error.kind())
}
