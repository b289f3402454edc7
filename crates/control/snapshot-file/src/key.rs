//! Ed25519 keys: as text, and what they sign.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const PUBLIC_PREFIX: &str = "ed25519:";
const SECRET_PREFIX: &str = "ed25519-secret:";
const KEY_BYTES: usize = 32;
pub(crate) const SIGNATURE_BYTES: usize = 64;
/// Begins what an epoch key signs, so that its signature means nothing else.
const EPOCH_CONTEXT: &[u8] = b"tidegate epoch certificate 1";

/// A key cannot be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The system has no random numbers.
    #[error("no random numbers are available")]
    NoRandomNumbers,
    /// The text is no public key.
    #[error("expected a public key such as `ed25519:` and 43 letters and digits")]
    NotPublic,
    /// The text is no private key.
    #[error("expected a private key such as `ed25519-secret:` and 43 letters and digits")]
    NotPrivate,
}

/// The key that verifies signatures; written `ed25519:…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    pub(crate) const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        PublicKey(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{PUBLIC_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text, PUBLIC_PREFIX).map(PublicKey).ok_or(KeyError::NotPublic)
    }
}

/// The key that signs; its text is `ed25519-secret:…`. `Debug` shows the public key only.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    seed: [u8; KEY_BYTES],
}

impl SigningKey {
    /// A new key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; KEY_BYTES];
        rand::fill(&mut seed).map_err(|_| KeyError::NoRandomNumbers)?;
        SigningKey::from_seed(seed)
    }

    fn from_seed(seed: [u8; KEY_BYTES]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::NotPrivate)?;
        Ok(SigningKey { pair, seed })
    }

    /// The text to keep, in a file that only its owner may read.
    pub fn to_secret_text(&self) -> String {
        format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.seed))
    }

    /// The key that verifies its signatures.
    pub fn public_key(&self) -> PublicKey {
        let bytes = self.pair.public_key().as_ref().first_chunk();
        PublicKey(bytes.copied().unwrap_or_default())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.pair.sign(message);
        signature.as_ref().first_chunk().copied().unwrap_or([0; SIGNATURE_BYTES])
    }

    /// Allows `signer` to sign in a new epoch of a cell, and no other key. Signed by the epoch key, which is kept offline.
    pub fn certify_epoch(&self, cell: &str, epoch: u64, signer: &PublicKey) -> EpochCertificate {
        EpochCertificate(self.sign(&epoch_message(cell, epoch, signer)))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SigningKey").field("public", &self.public_key()).finish_non_exhaustive()
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text, SECRET_PREFIX).ok_or(KeyError::NotPrivate).and_then(SigningKey::from_seed)
    }
}

/// The permission to begin an epoch: a signature by the epoch key of cell, epoch and the key that signs in it. Its text
/// is base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EpochCertificate(pub(crate) [u8; SIGNATURE_BYTES]);

impl EpochCertificate {
    pub(crate) fn is_valid(
        &self,
        by: &PublicKey,
        cell: &str,
        epoch: u64,
        signer: &PublicKey,
    ) -> bool {
        by.verifies(&epoch_message(cell, epoch, signer), &self.0)
    }
}

impl fmt::Display for EpochCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for EpochCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for EpochCertificate {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok();
        let bytes = bytes.and_then(|bytes| <[u8; SIGNATURE_BYTES]>::try_from(bytes).ok());
        bytes.map(EpochCertificate).ok_or(KeyError::NotPublic)
    }
}

fn epoch_message(cell: &str, epoch: u64, signer: &PublicKey) -> Vec<u8> {
    let mut message = EPOCH_CONTEXT.to_vec();
    message.extend_from_slice(&(cell.len() as u64).to_le_bytes());
    message.extend_from_slice(cell.as_bytes());
    message.extend_from_slice(&epoch.to_le_bytes());
    message.extend_from_slice(signer.as_bytes());
    message
}

fn parse(text: &str, prefix: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(prefix)?).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_from_their_texts() {
        let key = SigningKey::generate().unwrap();
        let again: SigningKey = key.to_secret_text().parse().unwrap();
        assert_eq!(again.public_key(), key.public_key());
        assert_eq!(key.public_key().to_string().parse(), Ok(key.public_key()));
        assert!(key.public_key().verifies(b"text", &again.sign(b"text")));
        assert!(!key.public_key().verifies(b"test", &again.sign(b"text")));
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn a_text_that_is_no_key_is_refused() {
        let key = SigningKey::generate().unwrap();
        assert_eq!(key.to_secret_text().parse::<PublicKey>(), Err(KeyError::NotPublic));
        assert!(key.public_key().to_string().parse::<SigningKey>().is_err());
        assert!("ed25519:AAAA".parse::<PublicKey>().is_err());
    }

    #[test]
    fn a_certificate_is_for_one_cell_epoch_and_key() {
        let (offline, online) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let (by, signer) = (offline.public_key(), online.public_key());
        let certificate = offline.certify_epoch("eu", 2, &signer);
        let certificate: EpochCertificate = certificate.to_string().parse().unwrap();
        assert!(certificate.is_valid(&by, "eu", 2, &signer));
        assert!(!certificate.is_valid(&by, "us", 2, &signer));
        assert!(!certificate.is_valid(&by, "eu", 3, &signer));
        assert!(!certificate.is_valid(&by, "eu", 2, &by));
        assert!(!certificate.is_valid(&signer, "eu", 2, &signer));
    }
}
