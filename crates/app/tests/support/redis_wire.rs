//! Redis's protocol with bytes as they are: commands to send, replies to read.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// A reply that takes longer than this does not come.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A command: its words.
pub(crate) type Words = Vec<Vec<u8>>;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Number(i64),
    Bytes(Vec<u8>),
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    /// The bytes of a string, the digits of a number.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Reply::Bytes(bytes) => bytes.clone(),
            Reply::Number(number) => number.to_string().into_bytes(),
            Reply::Nil | Reply::Error(_) | Reply::List(_) => Vec::new(),
        }
    }

    /// The elements of a list.
    pub(crate) fn list(&self) -> &[Reply] {
        if let Reply::List(list) = self { list } else { &[] }
    }
}

/// A connection to a server on loopback.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it accepts");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Connection { stream: BufReader::new(stream) }
    }

    /// Sends a command that has to succeed.
    #[track_caller]
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.stream.get_mut().write_all(&encode(words)).expect("sent");
        let reply = read_reply(&mut self.stream).expect("a reply");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        reply
    }
}

/// A command as it is sent.
pub(crate) fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads a command.
pub(crate) fn read_command(from: &mut impl BufRead) -> io::Result<Words> {
    Ok(read_reply(from)?.list().iter().map(Reply::bytes).collect())
}

/// Reads one reply.
pub(crate) fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a reply");
    let kind = *line.as_bytes().first().ok_or(io::ErrorKind::UnexpectedEof)?;
    let rest = line.get(1..).ok_or_else(wrong)?.trim_end().to_owned();
    let number = || rest.parse::<i64>().map_err(|_| wrong());
    Ok(match kind {
        b'+' => Reply::Bytes(rest.into_bytes()),
        b'-' => Reply::Error(rest),
        b':' => Reply::Number(number()?),
        b'$' => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bytes(bytes)
            }
            Err(_) => Reply::Nil,
        },
        b'*' => match usize::try_from(number()?) {
            Ok(length) => {
                Reply::List((0..length).map(|_| read_reply(from)).collect::<io::Result<_>>()?)
            }
            Err(_) => Reply::Nil,
        },
        _ => return Err(wrong()),
    })
}
