//! The socket of a server, and the beat on which it is written to.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::lines::{LineWriter, StatsReading, packets};
use super::settings::{StatsdAddress, StatsdSettings};

/// The payload that fits an Ethernet frame, and so is not fragmented.
const UDP_BYTES_MAX: usize = 1_432;

/// The size that Datadog's agent reads from a Unix socket.
const UNIX_BYTES_MAX: usize = 8_192;

/// The most time that a flush may take; the next beat tries again.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// Sends statistics to one server.
#[derive(Debug)]
pub struct Sender {
    settings: StatsdSettings,
    writer: LineWriter,
    socket: Option<Socket>,
    /// Whether the last flush failed: only changes are logged.
    failing: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Sender {
    /// A sender that connects with its first flush.
    pub fn new(settings: StatsdSettings) -> Self {
        let StatsdSettings { format, tags, mogrifiers, .. } = &settings;
        let writer = LineWriter::new(*format, tags, mogrifiers.clone());
        Sender { settings, writer, socket: None, failing: false }
    }

    /// Flushes on every beat, until it is dropped.
    pub async fn run(mut self, read: impl Fn() -> StatsReading) {
        let mut beat = interval(self.settings.flush_interval.max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            self.flush_and_log(&read()).await;
        }
    }

    async fn flush_and_log(&mut self, reading: &StatsReading) {
        let flushed = timeout(FLUSH_TIME_MAX, self.flush(reading)).await;
        let error = match flushed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) if self.failing => {
                tracing::info!(address = %self.settings.address, "statistics are sent again");
                self.failing = false;
                return;
            }
            Ok(()) => return,
            Err(error) => error,
        };
        self.socket = None;
        if !self.failing {
            self.failing = true;
            let address = &self.settings.address;
            tracing::warn!(%address, %error, "statistics cannot be sent; the next flush tries again");
        }
    }

    /// Sends the growth since the last successful flush.
    ///
    /// # Errors
    /// When the server cannot be reached or does not accept the lines.
    pub async fn flush(&mut self, reading: &StatsReading) -> io::Result<()> {
        let lines = self.writer.lines(reading);
        if !lines.text().is_empty() {
            // Taken out, so that a flush that is given up halfway leaves no stream with half a line.
            let mut socket = match self.socket.take() {
                Some(socket) => socket,
                None => Socket::connect(&self.settings.address).await?,
            };
            socket.send(lines.text()).await?;
            self.socket = Some(socket);
        }
        self.writer.sent(lines);
        Ok(())
    }
}

impl Socket {
    async fn connect(address: &StatsdAddress) -> io::Result<Self> {
        Ok(match address {
            StatsdAddress::Tcp(address) => Socket::Tcp(TcpStream::connect(address).await?),
            StatsdAddress::Udp(address) => {
                let mut last = io::ErrorKind::AddrNotAvailable.into();
                for address in tokio::net::lookup_host(address).await? {
                    let any: std::net::SocketAddr =
                        if address.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
                    let socket = UdpSocket::bind(any).await?;
                    match socket.connect(address).await {
                        Ok(()) => return Ok(Socket::Udp(socket)),
                        Err(error) => last = error,
                    }
                }
                return Err(last);
            }
            StatsdAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Socket::Unix(socket)
            }
        })
    }

    async fn send(&mut self, text: &str) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.write_all(text.as_bytes()).await,
            Socket::Udp(socket) => {
                for packet in packets(text, UDP_BYTES_MAX) {
                    socket.send(packet.as_bytes()).await?;
                }
                Ok(())
            }
            Socket::Unix(socket) => {
                for packet in packets(text, UNIX_BYTES_MAX) {
                    socket.send(packet.as_bytes()).await?;
                }
                Ok(())
            }
        }
    }
}
