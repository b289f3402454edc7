//! The socket of a server, and the beat on which it is written to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::figures::{SenderFigures, add};
use super::lines::{LineWriter, packets};
use super::reading::StatsReading;
use super::settings::{StatsdAddress, StatsdSettings};

/// Bytes per write to a stream, as gostats has it.
const TCP_BYTES_MAX: usize = 1 << 16;

/// The payload that fits an Ethernet frame, and so is not fragmented.
const UDP_BYTES_MAX: usize = 1_432;

/// The size that Datadog's agent reads from a Unix socket.
const UNIX_BYTES_MAX: usize = 8_192;

/// The most time that a flush may take; the next beat tries again.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// The most time that the last flush may take, while the process waits to end.
const LAST_FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Sends statistics to one server.
#[derive(Debug)]
pub struct Sender {
    settings: StatsdSettings,
    writer: LineWriter,
    socket: Option<Socket>,
    figures: Arc<SenderFigures>,
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
    pub fn new(settings: StatsdSettings, figures: Arc<SenderFigures>) -> Self {
        let StatsdSettings { format, tags, mogrifiers, .. } = &settings;
        let writer = LineWriter::new(*format, tags, mogrifiers.clone());
        Sender { settings, writer, socket: None, figures, failing: false }
    }

    /// Flushes on every beat until `stop` completes, then once more.
    pub async fn run(mut self, read: impl Fn() -> StatsReading, stop: impl Future<Output = ()>) {
        let mut beat = interval(self.settings.flush_interval.max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                _ = beat.tick() => self.flush_and_log(&read(), FLUSH_TIME_MAX).await,
                () = &mut stop => {
                    self.flush_and_log(&read(), LAST_FLUSH_TIME_MAX).await;
                    return;
                }
            }
        }
    }

    async fn flush_and_log(&mut self, reading: &StatsReading, time_max: Duration) {
        let flushed = timeout(time_max, self.flush(reading)).await;
        let error = match flushed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => {
                add(&self.figures.flushes_sent, 1);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(address = %self.settings.address, "statistics are sent again");
                }
                return;
            }
            Err(error) => error,
        };
        add(&self.figures.flushes_failed, 1);
        if !std::mem::replace(&mut self.failing, true) {
            let address = &self.settings.address;
            tracing::warn!(%address, %error, "statistics cannot be sent; the next flush tries again");
        }
    }

    /// Sends the growth since the last flush. After an error, the lines that were not sent are part of the next flush.
    ///
    /// # Errors
    /// When the server cannot be reached or does not accept the lines.
    pub async fn flush(&mut self, reading: &StatsReading) -> io::Result<()> {
        let mut lines = self.writer.lines(reading);
        self.figures.lines_dropped.fetch_add(lines.dropped(), std::sync::atomic::Ordering::Relaxed);
        let text = lines.text().to_owned();
        if text.is_empty() {
            self.writer.confirm(&mut lines, 0);
            return Ok(());
        }
        let mut unsent = UnsentLines { figures: &self.figures, lines: count(&text) };
        // Taken out, so that a flush that is given up halfway leaves no stream with half a line.
        let mut socket = match self.socket.take().filter(|socket| !socket.has_ended()) {
            Some(socket) => socket,
            None => Socket::connect(&self.settings.address).await?,
        };
        let mut offset = 0;
        for packet in packets(&text, socket.bytes_max()) {
            socket.send(packet.as_bytes()).await?;
            offset += packet.len();
            self.writer.confirm(&mut lines, offset);
            add(&self.figures.lines_sent, count(packet));
            unsent.lines -= count(packet);
        }
        self.socket = Some(socket);
        Ok(())
    }
}

/// Counts the lines that a flush did not send, also when it is given up.
struct UnsentLines<'f> {
    figures: &'f SenderFigures,
    lines: usize,
}

impl Drop for UnsentLines<'_> {
    fn drop(&mut self) {
        add(&self.figures.lines_failed, self.lines);
    }
}

fn count(text: &str) -> usize {
    text.lines().count()
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

    const fn bytes_max(&self) -> usize {
        match self {
            Socket::Tcp(_) => TCP_BYTES_MAX,
            Socket::Udp(_) => UDP_BYTES_MAX,
            Socket::Unix(_) => UNIX_BYTES_MAX,
        }
    }

    /// Whether the server closed the stream: the next write would be lost. A statsd server sends nothing, so that a read
    /// finds only the end.
    fn has_ended(&self) -> bool {
        let Socket::Tcp(stream) = self else { return false };
        match stream.try_read(&mut [0; 64]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    async fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.write_all(packet).await,
            Socket::Udp(socket) => socket.send(packet).await.map(drop),
            Socket::Unix(socket) => socket.send(packet).await.map(drop),
        }
    }
}
