//! Listening sockets, bound until they are dropped.
//!
//! A stale Unix socket file (one that refuses connections) is replaced. The mode of a new file is set between `bind`
//! and `listen`, so that no client connects before. An accepted socket is not registered with a runtime yet: the
//! worker that serves it does that.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::consume_budget;

use super::settings::Address;

/// The queue of a socket for the processes of one user.
pub(super) const PRIVATE_BACKLOG: u32 = 16;

/// A client that vanished is detected after a minute and a few probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// The kernel accepts more data for a client when fewer unsent bytes than this wait in its socket. Otherwise it buffers
/// up to several megabytes for each client that does not read.
const UNSENT_BYTES: u32 = 128 * 1024;

/// Why an endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another endpoint, uses the address.
    #[error("{address} is in use already")]
    InUse {
        /// The requested address.
        address: Address,
    },
    /// The path of the Unix socket is a file of another kind.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The system call failed.
    #[error("cannot listen at {address}")]
    Listen {
        /// The requested address.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

/// A bound socket.
#[derive(Debug)]
pub(super) enum Listener {
    /// The same socket twice. What waits is taken from the plain one, because tokio's registers each accepted socket
    /// with the runtime, and a refused connection should cost little.
    Tcp {
        plain: std::net::TcpListener,
        notified: TcpListener,
    },
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

/// An accepted socket that is not registered with a runtime yet.
#[derive(Debug)]
pub(super) enum AcceptedSocket {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    /// Listens, and returns the bound address: port 0 is replaced by the actual port. Must be called inside the runtime
    /// that will poll for connections.
    pub(super) fn bind(address: &Address, backlog: u32) -> Result<(Self, Address), OpenError> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        match address {
            Address::Tcp(at) => {
                bind_tcp(*at, backlog).map_err(|source| open_error(address, source))
            }
            Address::Unix { path, mode } => {
                remove_stale_socket(path, address)?;
                let listener = bind_unix(path, *mode, backlog)
                    .map_err(|source| open_error(address, source))?;
                Ok((listener, address.clone()))
            }
        }
    }

    /// Waits for a connection. Its socket is [prepared](AcceptedSocket::prepare) once it is admitted.
    pub(super) async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            Listener::Tcp { plain, notified } => {
                // Other endpoints of this thread get their turn in a flood.
                consume_budget().await;
                let (stream, peer) = match plain.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let (stream, peer) = notified.accept().await?;
                        (stream.into_std()?, peer)
                    }
                    accepted => accepted?,
                };
                Ok(AcceptedSocket::Tcp(stream, peer))
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedSocket::Unix(stream.into_std()?))
            }
        }
    }
}

impl Listener {
    /// Waits for a connection to a Unix socket, registered with this runtime.
    pub(super) async fn accept_unix(&self) -> io::Result<tokio::net::UnixStream> {
        match self {
            Listener::Unix { listener, .. } => Ok(listener.accept().await?.0),
            Listener::Tcp { .. } => Err(ErrorKind::Unsupported.into()),
        }
    }
}

impl AcceptedSocket {
    /// Sets the options of a socket that is going to be served.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let AcceptedSocket::Tcp(stream, _) = self else { return Ok(()) };
        stream.set_nonblocking(true)?;
        // Responses are small and already written in batches.
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE);
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)
    }

    /// The address of the other end; `None` at a Unix socket.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        match self {
            AcceptedSocket::Tcp(_, address) => Some(*address),
            AcceptedSocket::Unix(_) => None,
        }
    }

    /// Closes the socket with a reset. Neither side keeps anything of the connection.
    pub(super) fn reset(self) {
        if let AcceptedSocket::Tcp(stream, _) = &self {
            reset_on_close(&SockRef::from(stream));
        }
    }
}

/// Lets the kernel reset the connection when its socket is closed.
pub(super) fn reset_on_close(socket: &SockRef<'_>) {
    // If that fails, the connection is closed with FIN.
    let _ = socket.set_linger(Some(Duration::ZERO));
}

/// The file of a Unix socket, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have replaced the file by its own.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // On failure the stale file is replaced at the next start.
            drop(fs::remove_file(mem::take(&mut self.path)));
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn open_error(address: &Address, source: io::Error) -> OpenError {
    let address = address.clone();
    if source.kind() == ErrorKind::AddrInUse {
        return OpenError::InUse { address };
    }
    OpenError::Listen { address, source }
}

fn bind_tcp(at: SocketAddr, backlog: i32) -> io::Result<(Listener, Address)> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // Allows a restart while connections of the last run are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(backlog)?;
    let plain = std::net::TcpListener::from(socket);
    let notified = TcpListener::from_std(plain.try_clone()?)?;
    let bound = plain.local_addr()?;
    Ok((Listener::Tcp { plain, notified }, Address::Tcp(bound)))
}

fn bind_unix(path: &Path, mode: Option<u32>, backlog: i32) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(backlog)?;
    Ok(Listener::Unix { listener: UnixListener::from_std(socket.into())?, _file: file })
}

/// Removes the file of a socket that no process listens at.
fn remove_stale_socket(path: &Path, address: &Address) -> Result<(), OpenError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(open_error(address, source)),
    };
    if !found.file_type().is_socket() {
        return Err(OpenError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replaced a stale socket file");
            fs::remove_file(path).map_err(|source| open_error(address, source))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) if source.kind() == ErrorKind::PermissionDenied => {
            Err(open_error(address, source))
        }
        // A process listens at it, or its backlog is full.
        Ok(_) | Err(_) => Err(OpenError::InUse { address: address.clone() }),
    }
}
