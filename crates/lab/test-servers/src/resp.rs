//! A small Redis client, to prepare a test and to inspect a server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The timeout of one command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A null.
    Nil,
    /// An integer.
    Number(i64),
    /// A status or a string of bytes.
    Text(String),
    /// An error.
    Error(String),
    /// An array.
    List(Vec<Reply>),
}

impl Reply {
    /// The text, or the digits of a number; `None` for lists and errors.
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Text(text) => Some(text.clone()),
            Reply::Number(number) => Some(number.to_string()),
            Reply::Nil | Reply::Error(_) | Reply::List(_) => None,
        }
    }

    /// The elements of a list; empty for any other reply.
    pub fn list(&self) -> &[Reply] {
        if let Reply::List(list) = self { list } else { &[] }
    }
}

/// A connection to a server on loopback.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to this port on loopback.
    ///
    /// # Errors
    /// When no server listens.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    /// When the connection fails, or the reply is malformed.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(text.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a reply");
        let kind = *line.as_bytes().first().ok_or(io::ErrorKind::UnexpectedEof)?;
        let rest = line.get(1..).ok_or_else(wrong)?.trim_end();
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        Ok(match kind {
            b'+' => Reply::Text(rest.to_owned()),
            b'-' => Reply::Error(rest.to_owned()),
            b':' => Reply::Number(number()?),
            b'$' => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Reply::Nil,
            },
            b'*' => match usize::try_from(number()?) {
                Ok(length) => {
                    Reply::List((0..length).map(|_| self.reply()).collect::<io::Result<_>>()?)
                }
                Err(_) => Reply::Nil,
            },
            _ => return Err(wrong()),
        })
    }
}
