//! A client that shows what Envoy answers: status, header fields, body.
//!
//! One connection for each request. Small on purpose: a client library would
//! follow, retry and tidy up, and so hide what came over the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

/// A request to be sent.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Ask {
    address: SocketAddr,
    head: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Ask {
    /// A GET of this path.
    pub(crate) fn get(address: SocketAddr, path: &str) -> Self {
        let head = format!("GET {path} HTTP/1.1\r\nhost: service\r\nconnection: close\r\n");
        Ask { address, head }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    #[track_caller]
    pub(crate) fn send(&self) -> Answer {
        self.try_send().unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// The status only.
    #[track_caller]
    pub(crate) fn status(&self) -> u16 {
        self.send().status
    }

    /// The status of each of so many, one after the other.
    #[track_caller]
    pub(crate) fn statuses(&self, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.status()).collect()
    }

    fn try_send(&self) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{}\r\n", self.head).as_bytes())?;
        Answer::read(BufReader::new(stream))
    }
}

impl Answer {
    fn read(mut reader: impl BufRead) -> std::io::Result<Self> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no status: {line:?}")))?;
        let mut fields = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            fields.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, fields, body: String::new() };
        if answer.field("transfer-encoding") == Some("chunked") {
            answer.body = read_chunks(reader)?;
        } else {
            reader.read_to_string(&mut answer.body)?;
        }
        Ok(answer)
    }

    /// The value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// The names of all header fields with this in them.
    pub(crate) fn fields_with(&self, part: &str) -> Vec<&str> {
        let names = self.fields.iter().map(|(name, _)| name.as_str());
        names.filter(|name| name.contains(part)).collect()
    }
}

fn read_chunks(mut reader: impl BufRead) -> std::io::Result<String> {
    let mut body = String::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = u64::from_str_radix(size.trim_end(), 16).map_err(std::io::Error::other)?;
        if size == 0 {
            return Ok(body);
        }
        reader.by_ref().take(size).read_to_string(&mut body)?;
        reader.read_line(&mut String::new())?;
    }
}
