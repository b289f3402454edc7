//! Sockets that listen: bound, readable by the acceptor, gone when dropped.
//!
//! A Unix socket's file is removed when nobody answers on it any more, and its mode
//! is set between binding and listening, so that nobody connects before.
//! What is accepted is a plain socket that no runtime knows yet: it is
//! registered where it will be served.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::settings::Address;

/// Connections that wait to be accepted. A burst of reconnecting clients fits.
const BACKLOG: i32 = 1_024;

/// A client that is gone without a word is noticed after a minute and a few tries.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another door, has the address.
    #[error("{address} is in use already")]
    InUse {
        /// The address asked for.
        address: Address,
    },
    /// There is a file where the socket should be, and it is no socket.
    #[error("{} is there already and is no socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address asked for.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

/// A bound socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _file: SocketFile },
}

/// An accepted socket, before a runtime knows it.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    /// Listens, and says where: port 0 has become a real one. Must be called where a
    /// runtime is entered, which will tell of connections.
    pub(super) fn bind(address: &Address) -> Result<(Self, Address), OpenError> {
        match address {
            Address::Tcp(at) => bind_tcp(*at).map_err(|source| not_open(address, source)),
            Address::Unix { path, mode } => {
                make_way(path, address)?;
                let listener =
                    bind_unix(path, *mode).map_err(|source| not_open(address, source))?;
                Ok((listener, address.clone()))
            }
        }
    }

    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are small, and written together already.
                stream.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE);
                SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok(Accepted::Tcp(stream.into_std()?, peer))
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream.into_std()?))
            }
        }
    }
}

/// The file of a Unix socket; removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have put its own socket there.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Nobody is left to be told; a stale file is replaced at the next start.
            drop(fs::remove_file(mem::take(&mut self.path)));
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn not_open(address: &Address, source: io::Error) -> OpenError {
    let address = address.clone();
    if source.kind() == ErrorKind::AddrInUse {
        return OpenError::InUse { address };
    }
    OpenError::Listen { address, source }
}

fn bind_tcp(at: SocketAddr) -> io::Result<(Listener, Address)> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // A restart need not wait until connections of the last run are forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into())?;
    let bound = listener.local_addr()?;
    Ok((Listener::Tcp(listener), Address::Tcp(bound)))
}

fn bind_unix(path: &Path, mode: Option<u32>) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(BACKLOG)?;
    Ok(Listener::Unix { listener: UnixListener::from_std(socket.into())?, _file: file })
}

/// Removes a socket that nobody answers on.
fn make_way(path: &Path, address: &Address) -> Result<(), OpenError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(not_open(address, source)),
    };
    if !found.file_type().is_socket() {
        return Err(OpenError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replaced a socket that nobody answered on");
            fs::remove_file(path).map_err(|source| not_open(address, source))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) if source.kind() == ErrorKind::PermissionDenied => {
            Err(not_open(address, source))
        }
        // It answers, or is too busy to.
        Ok(_) | Err(_) => Err(OpenError::InUse { address: address.clone() }),
    }
}
