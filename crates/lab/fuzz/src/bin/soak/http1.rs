//! A small HTTP/1.1 client.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

/// The longest answer that is read: `/metrics` of a few rules, with room.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The most lines of an answer's head.
const HEAD_LINES_MAX: usize = 100;

/// A kept connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufStream<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufStream::new(stream) })
    }

    pub(crate) async fn get(&mut self, path: &str) -> io::Result<HttpAnswer> {
        self.exchange("GET", path, b"").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<HttpAnswer> {
        self.exchange("POST", path, body).await
    }

    async fn exchange(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<HttpAnswer> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await?;
        self.stream.flush().await?;
        self.read().await
    }

    async fn read(&mut self) -> io::Result<HttpAnswer> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| strange(&format!("no status in `{line}`")))?;
        let mut length = 0;
        for _ in 0..HEAD_LINES_MAX {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().map_err(|_| strange("a length that is none"))?;
            }
        }
        if length > ANSWER_BYTES_MAX {
            return Err(strange("a very long answer"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(HttpAnswer { status, body })
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
