//! The login at a server; secrets never appear in debug output.

use std::path::PathBuf;
use std::{fmt, fs, io};

/// Longer than any password or token in use.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;

/// A text that only the server sees; its debug output is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Where the password is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Password {
    /// No password.
    #[default]
    None,
    /// The password itself.
    Text(Secret),
    /// A file with the password, which may change at any time.
    File(PathBuf),
}

/// A user and a password, both optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; none means the server's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

impl Secret {
    /// Wraps a text.
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
    /// Whether there is a user without a password.
    pub(crate) fn lacks_password(&self) -> bool {
        self.user.is_some() && self.password == Password::None
    }

    /// The current password. May block: it may read a file.
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
                // Editors and `echo` add a line break at the end of a file.
                Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
            }
        }
    }
}
