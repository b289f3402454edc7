//! Signed requests: the receiver can verify who sent a body, and when.
//!
//! The field `Tidegate-Signature` holds `t=SECONDS,v1=HEX`: the Unix time of the attempt, and HMAC-SHA256 of
//! `SECONDS.BODY` under a shared secret. While a secret is replaced there is one `v1` for each. To verify, a receiver
//! computes the HMAC over the raw body, compares it in constant time, and rejects times that are too old, so that a
//! request that was overheard cannot be repeated later:
//!
//! ```
//! use std::time::Duration;
//! use tidegate_delivery::signature::{SigningKey, verify};
//! use tidegate_queue::Timestamp;
//!
//! let key = SigningKey::new(b"at least sixteen bytes".to_vec())?;
//! let now = Timestamp::from_secs(1_700_000_000);
//! let field = key.sign(b"{\"state\":\"delivered\"}", now);
//! let tolerance = Duration::from_secs(300);
//! verify(&field, b"{\"state\":\"delivered\"}", &[key], now, tolerance)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::time::Duration;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use tidegate_queue::Timestamp;

/// The name of the field.
pub const SIGNATURE_FIELD: &str = "tidegate-signature";

/// Signatures that are compared for one request; more are not read.
const SIGNATURES_MAX: usize = 8;

/// A secret that sender and receiver share.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

/// A secret is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret for signatures needs at least {} bytes", SigningKey::BYTES_MIN)]
pub struct SecretTooShort;

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The field has another form.
    #[error("the signature does not have the form t=SECONDS,v1=HEX")]
    Malformed,
    /// Its time is too far away.
    #[error("the signature is too old or from the future")]
    Expired,
    /// No key fits.
    #[error("the signature does not fit the body")]
    Mismatch,
}

impl SigningKey {
    /// The fewest bytes of a secret.
    pub const BYTES_MIN: usize = 16;

    /// A key from a secret.
    ///
    /// # Errors
    /// When the secret is shorter than [`SigningKey::BYTES_MIN`].
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, SecretTooShort> {
        let secret = secret.as_ref();
        if secret.len() < Self::BYTES_MIN {
            return Err(SecretTooShort);
        }
        Ok(SigningKey(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The value of the field for a body that is sent at `now`.
    pub fn sign(&self, body: &[u8], now: Timestamp) -> String {
        sign_all(std::slice::from_ref(self), body, now)
    }

    fn compute(&self, body: &[u8], seconds: u64) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{seconds}.").as_bytes());
        context.update(body);
        context.sign()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(***)")
    }
}

/// The value of the field with a signature of each key, while a secret is replaced.
pub fn sign_all(keys: &[SigningKey], body: &[u8], now: Timestamp) -> String {
    let seconds = now.as_nanos() / 1_000_000_000;
    let mut field = format!("t={seconds}");
    for key in keys {
        field.push_str(",v1=");
        for byte in key.compute(body, seconds).as_ref() {
            field.push_str(&format!("{byte:02x}"));
        }
    }
    field
}

/// Verifies a field against a body.
///
/// # Errors
/// When it is malformed, its time is further than `tolerance` from `now`, or no key fits.
pub fn verify(
    field: &str,
    body: &[u8],
    keys: &[SigningKey],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), SignatureError> {
    let (time, signatures) = field
        .trim()
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(','))
        .ok_or(SignatureError::Malformed)?;
    let seconds: u64 = time.parse().map_err(|_| SignatureError::Malformed)?;
    if (now.as_nanos() / 1_000_000_000).abs_diff(seconds) > tolerance.as_secs() {
        return Err(SignatureError::Expired);
    }
    let given: Vec<Vec<u8>> = signatures
        .split(',')
        .take(SIGNATURES_MAX)
        .filter_map(|part| decode_hex(part.trim().strip_prefix("v1=")?))
        .collect();
    if given.is_empty() {
        return Err(SignatureError::Malformed);
    }
    let fits = keys.iter().any(|key| {
        let expected = key.compute(body, seconds);
        given.iter().any(|given| bool::from(given.ct_eq(expected.as_ref())))
    });
    if fits { Ok(()) } else { Err(SignatureError::Mismatch) }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && text.len() == 64;
    let pairs = (0..text.len()).step_by(2);
    digits.then(|| pairs.filter_map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const TOLERANCE: Duration = Duration::from_secs(300);

    fn key(secret: &str) -> SigningKey {
        SigningKey::new(secret).unwrap()
    }

    #[test]
    fn a_signature_is_the_hmac_of_the_time_and_the_body() {
        // printf '1700000000.hello' | openssl dgst -sha256 -hmac 0123456789abcdef
        let field = key("0123456789abcdef").sign(b"hello", NOW);
        assert_eq!(
            field,
            "t=1700000000,v1=adc6dd484b44cd99e9825b07b9475d45999b82cf8071c60272358d4a51fe73e9"
        );
    }

    #[test]
    fn another_body_key_or_time_does_not_fit() {
        let (old, new) = (key("an old secret with bytes"), key("a new secret with bytes"));
        let field = old.sign(b"body", NOW);
        let keys = [old.clone()];
        assert_eq!(verify(&field, b"body", &keys, NOW, TOLERANCE), Ok(()));
        assert_eq!(verify(&field, b"bodY", &keys, NOW, TOLERANCE), Err(SignatureError::Mismatch));
        assert_eq!(
            verify(&field, b"body", std::slice::from_ref(&new), NOW, TOLERANCE),
            Err(SignatureError::Mismatch)
        );
        let later = Timestamp::from_secs(1_700_000_301);
        assert_eq!(verify(&field, b"body", &keys, later, TOLERANCE), Err(SignatureError::Expired));
        let moved = field.replace("t=1700000000", "t=1700000001");
        assert_eq!(verify(&moved, b"body", &keys, NOW, TOLERANCE), Err(SignatureError::Mismatch));
        // While the secret is replaced, either key verifies.
        let both = sign_all(&[old.clone(), new.clone()], b"body", NOW);
        for key in [old, new] {
            assert_eq!(verify(&both, b"body", &[key], NOW, TOLERANCE), Ok(()));
        }
    }

    #[test]
    fn malformed_fields_are_rejected() {
        for field in
            ["", "t=", "t=1", "v1=00,t=1", "t=x,v1=00", "t=1700000000,v1=zz", "t=1700000000,"]
        {
            let verified = verify(field, b"", &[key("0123456789abcdef")], NOW, TOLERANCE);
            assert!(matches!(verified, Err(SignatureError::Malformed)), "{field}: {verified:?}");
        }
        assert!(SigningKey::new("short").is_err());
        assert_eq!(format!("{:?}", key("0123456789abcdef")), "SigningKey(***)");
    }
}
