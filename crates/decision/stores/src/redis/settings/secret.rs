//! Who we are to a server, without ever showing it.

use std::path::PathBuf;
use std::{fmt, fs, io};

/// Longer than any token that is in use.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;

/// A text that is shown to nobody but the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Where the password is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Password {
    /// There is none.
    #[default]
    None,
    /// It is given.
    Text(Secret),
    /// It is in a file, which may change at any time.
    File(PathBuf),
}

/// A user and the password, as far as there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; the server's default user when not given.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Login {
    /// Whether a user is named who has no password.
    pub(crate) fn is_half(&self) -> bool {
        self.user.is_some() && self.password == Password::None
    }

    /// The password as it is now. Reads a file, so it may block.
    pub(crate) fn password_now(&self) -> io::Result<Option<Secret>> {
        match &self.password {
            Password::None => Ok(None),
            Password::Text(secret) => Ok(Some(secret.clone())),
            Password::File(path) => {
                let size = fs::metadata(path)?.len();
                if size > PASSWORD_BYTES_MAX {
                    return Err(io::Error::other("it is too large to be a password"));
                }
                let text = fs::read_to_string(path)?;
                // Editors and `echo` end a file with a line break that nobody typed.
                Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
            }
        }
    }
}
