//! Secrets of clients: their hashes, the bearer field that carries them, and random ids that cannot be guessed.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

/// A SHA-256.
pub type Sha256Hash = [u8; 32];

/// The SHA-256 of a secret.
pub fn sha256(secret: &[u8]) -> Sha256Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

/// Parses a SHA-256 in hexadecimal; `None` if the text is not one.
pub fn parse_sha256(text: &str) -> Option<Sha256Hash> {
    let (high, low) = text.split_at_checked(32)?;
    let mut hash = [0; 32];
    let (first, second) = hash.split_at_mut(16);
    first.copy_from_slice(&RandomId::parse(high)?.0.to_be_bytes());
    second.copy_from_slice(&RandomId::parse(low)?.0.to_be_bytes());
    Some(hash)
}

/// The token in the value of an `authorization` field with the scheme `Bearer`.
pub fn bearer_token(field: &[u8]) -> Option<&[u8]> {
    let space = field.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = field.split_at_checked(space)?;
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

/// An id of 128 random bits, in 32 hexadecimal digits: only a client that was given it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RandomId(u128);

impl RandomId {
    /// The id with these bits, which should be random.
    pub const fn new(bits: u128) -> Self {
        RandomId(bits)
    }

    /// Parses an id; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(RandomId)
    }
}

impl fmt::Display for RandomId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}
