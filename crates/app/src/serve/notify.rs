//! Notifies systemd: ready, stopping, alive.
//!
//! Each notification is a datagram to the socket in `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, OsString)>,
    /// How often it expects a sign of life.
    pub(crate) beat: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that the environment names.
    #[expect(clippy::disallowed_methods, reason = "systemd speaks through the environment")]
    pub(crate) fn from_environment() -> Self {
        let beat = std::env::var("WATCHDOG_USEC").ok().and_then(|micros| micros.parse().ok());
        Self::at(std::env::var_os("NOTIFY_SOCKET"), beat.map(Duration::from_micros))
    }

    /// The service manager at this socket; `watchdog` is how long it waits for a sign of life.
    fn at(socket: Option<OsString>, watchdog: Option<Duration>) -> Self {
        let socket = socket.filter(|path| !path.is_empty()).and_then(|path| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, path))
        });
        // Twice as often as required, as systemd's documentation advises.
        let beat = watchdog.filter(|_| socket.is_some()).map(|wait| wait / 2);
        ServiceManager { socket, beat: beat.filter(|beat| !beat.is_zero()) }
    }

    /// Reports that requests are served from now on.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// Reports that the service is stopping.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a sign of life.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some((socket, path)) = &self.socket else { return };
        if let Err(error) = send_to(socket, path, message) {
            tracing::debug!(%error, "the service manager could not be notified");
        }
    }
}

#[cfg(target_os = "linux")]
fn send_to(socket: &UnixDatagram, path: &OsString, message: &str) -> std::io::Result<usize> {
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
fn send_to(socket: &UnixDatagram, path: &OsString, message: &str) -> std::io::Result<usize> {
    socket.send_to(message.as_bytes(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_is_notified_of_ready_alive_and_stopping() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let listening = UnixDatagram::bind(&path).expect("a socket");
        let manager = ServiceManager::at(Some(path.into()), Some(Duration::from_secs(10)));
        assert_eq!(manager.beat, Some(Duration::from_secs(5)));
        let received = |notify: &dyn Fn()| {
            notify();
            let mut bytes = [0; 256];
            let length = listening.recv(&mut bytes).expect("a datagram");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert_eq!(received(&|| manager.ready("two\ndoors")), "READY=1\nSTATUS=two doors");
        assert_eq!(received(&|| manager.alive()), "WATCHDOG=1");
        assert_eq!(received(&|| manager.stopping()), "STOPPING=1");
    }

    #[test]
    fn without_a_service_manager_nothing_is_sent() {
        let manager = ServiceManager::at(None, Some(Duration::from_secs(10)));
        assert_eq!(manager.beat, None);
        manager.ready("nobody listens");
    }
}
