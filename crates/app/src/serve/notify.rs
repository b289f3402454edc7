//! What systemd is told: ready, stopping, still alive.
//!
//! A datagram to the socket that `NOTIFY_SOCKET` names; nothing when it names none.

use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The service manager, if there is one that listens.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, OsString)>,
    /// How often it wants to hear that the server is alive.
    pub(crate) beat: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    #[expect(clippy::disallowed_methods, reason = "systemd speaks through the environment")]
    pub(crate) fn from_environment() -> Self {
        let beat = std::env::var("WATCHDOG_USEC").ok().and_then(|micros| micros.parse().ok());
        Self::at(std::env::var_os("NOTIFY_SOCKET"), beat.map(Duration::from_micros))
    }

    /// The one at this socket; `watchdog` is how long it waits for a sign of life.
    fn at(socket: Option<OsString>, watchdog: Option<Duration>) -> Self {
        let socket = socket.filter(|path| !path.is_empty()).and_then(|path| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, path))
        });
        // Twice as often as it asks for, as systemd's own library advises.
        let beat = watchdog.filter(|_| socket.is_some()).map(|wait| wait / 2);
        ServiceManager { socket, beat: beat.filter(|beat| !beat.is_zero()) }
    }

    /// Requests are answered from now on.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// Stopping has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Still alive.
    pub(crate) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, message: &str) {
        let Some((socket, path)) = &self.socket else { return };
        if let Err(error) = send(socket, path, message) {
            tracing::debug!(%error, "the service manager could not be told");
        }
    }
}

#[cfg(target_os = "linux")]
fn send(socket: &UnixDatagram, path: &OsString, message: &str) -> std::io::Result<usize> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => {
            socket.send_to_addr(message.as_bytes(), &SocketAddr::from_abstract_name(name)?)
        }
        None => socket.send_to(message.as_bytes(), path),
    }
}

#[cfg(not(target_os = "linux"))]
fn send(socket: &UnixDatagram, path: &OsString, message: &str) -> std::io::Result<usize> {
    socket.send_to(message.as_bytes(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_ready_alive_and_stopping() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let listening = UnixDatagram::bind(&path).expect("a socket");
        let manager = ServiceManager::at(Some(path.into()), Some(Duration::from_secs(10)));
        assert_eq!(manager.beat, Some(Duration::from_secs(5)));
        let heard = |tell: &dyn Fn()| {
            tell();
            let mut bytes = [0; 256];
            let length = listening.recv(&mut bytes).expect("a datagram");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert_eq!(heard(&|| manager.ready("two\ndoors")), "READY=1\nSTATUS=two doors");
        assert_eq!(heard(&|| manager.alive()), "WATCHDOG=1");
        assert_eq!(heard(&|| manager.stopping()), "STOPPING=1");
    }

    #[test]
    fn without_a_service_manager_nothing_is_told() {
        let manager = ServiceManager::at(None, Some(Duration::from_secs(10)));
        assert_eq!(manager.beat, None);
        manager.ready("nobody listens");
    }
}
