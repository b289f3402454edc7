//! A Unix socket for other processes of the same user.
//!
//! Its file has mode 0600 before anybody can connect, and each process that connects is asked for its user: the kernel
//! answers (`SO_PEERCRED`), not the process. Only the user of this process and root are let in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::listener::{Listener, OpenError, PRIVATE_BACKLOG};
use super::settings::Address;

/// The mode of the file: its owner may connect.
const MODE: u32 = 0o600;

/// Who may connect beside the user of this process.
const ROOT: u32 = 0;

/// A listening socket for processes of the same user. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: Listener,
    user: u32,
}

/// Why a process may not have a connection.
#[derive(Debug, thiserror::Error)]
pub enum PrivateSocketError {
    /// The system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The process belongs to another user.
    #[error("a process of user {user} may not connect")]
    OtherUser {
        /// The user's number.
        user: u32,
    },
}

impl PrivateSocket {
    /// Listens at a path. A stale file, which no process listens at, is replaced. Must be called inside a runtime.
    ///
    /// # Errors
    /// When another process listens there, or the file cannot be made.
    pub fn bind(path: &Path) -> Result<Self, OpenError> {
        let address = Address::Unix { path: path.to_owned(), mode: Some(MODE) };
        let (listener, _) = Listener::bind(&address, PRIVATE_BACKLOG)?;
        let user = own_user().map_err(|source| OpenError::Listen { address, source })?;
        Ok(PrivateSocket { listener, user })
    }

    /// Waits for a process.
    ///
    /// # Errors
    /// When it may not connect, or the system call fails. The socket goes on listening.
    pub async fn accept(&self) -> Result<UnixStream, PrivateSocketError> {
        let stream = self.listener.accept_unix().await?;
        check_user(&stream, self.user)?;
        Ok(stream)
    }
}

/// Connects to such a socket, and checks that a process of the same user or of root listens there.
///
/// # Errors
/// When nobody listens, or somebody else does.
pub async fn connect_private(path: PathBuf) -> Result<UnixStream, PrivateSocketError> {
    let stream = UnixStream::connect(path).await?;
    check_user(&stream, own_user()?)?;
    Ok(stream)
}

fn check_user(stream: &UnixStream, own: u32) -> Result<(), PrivateSocketError> {
    let user = stream.peer_cred()?.uid();
    if is_allowed(user, own) { Ok(()) } else { Err(PrivateSocketError::OtherUser { user }) }
}

const fn is_allowed(user: u32, own: u32) -> bool {
    user == own || user == ROOT
}

/// The user of this process, who owns its entry in `/proc`.
fn own_user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_file_is_for_its_owner_and_a_process_of_the_same_user_gets_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("floods.sock");
        let socket = PrivateSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (accepted, connected) = tokio::join!(socket.accept(), connect_private(path.clone()));
        assert!(accepted.is_ok() && connected.is_ok());
        assert!(PrivateSocket::bind(&path).is_err(), "somebody listens there");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn the_same_user_and_root_are_let_in_and_nobody_else() {
        assert!(is_allowed(1_000, 1_000) && is_allowed(0, 1_000));
        assert!(!is_allowed(1_001, 1_000) && !is_allowed(1_000, 0));
    }
}
