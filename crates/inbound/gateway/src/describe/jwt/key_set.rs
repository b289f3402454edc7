//! The keys that verify tokens: a shared secret, or a JSON Web Key Set (RFC 7517).
//!
//! `jsonwebtoken` parses the keys and verifies the signatures. Each key is bound to the algorithms of its type when
//! it is loaded, so that a public key is never used as an HMAC secret, whatever algorithm a token names.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, crypto};

/// The maximum number of keys in a set. A token without a key id is tried with each of them.
const KEYS_MAX: usize = 100;

/// Characters of a coordinate of the curves P-256 (32 bytes) and P-384 (48 bytes) in base64.
const P256_COORDINATE_CHARS: usize = 43;
const P384_COORDINATE_CHARS: usize = 64;

/// All keys that verify tokens.
#[derive(Default)]
pub(super) struct KeySet(Vec<VerificationKey>);

struct VerificationKey {
    id: Option<String>,
    /// The algorithms that this key may be used with.
    algorithms: Box<[Algorithm]>,
    key: DecodingKey,
}

impl KeySet {
    /// A set with one secret, which verifies every token.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        let algorithms = AlgorithmFamily::Hmac.algorithms().into();
        let key = DecodingKey::from_secret(secret);
        KeySet(vec![VerificationKey { id: None, algorithms, key }])
    }

    /// Parses a JSON Web Key Set. Skips keys of unknown types, as RFC 7517 §5 asks.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let set: JwkSet =
            serde_json::from_str(text).map_err(|error| format!("it is no set of keys: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<_> = set.keys.iter().filter_map(VerificationKey::from_jwk).collect();
        if keys.is_empty() {
            return Err("it has no key that verifies tokens".to_owned());
        }
        Ok(KeySet(keys))
    }

    /// Whether there is no key.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a token's key id is that of no key.
    pub(super) fn lacks(&self, header: &Header) -> bool {
        let has = |id: &String| self.0.iter().any(|key| key.id.as_ref() == Some(id));
        header.kid.as_ref().is_some_and(|id| !has(id))
    }

    /// Whether one of the keys verifies the signature. A token with a key id is verified by the key with that id, and
    /// by keys without an id.
    pub(super) fn verify(&self, header: &Header, message: &str, signature: &str) -> bool {
        let applies = |key: &&VerificationKey| {
            key.algorithms.contains(&header.alg)
                && match (&header.kid, &key.id) {
                    (Some(named), Some(id)) => named == id,
                    _ => true,
                }
        };
        let verifies = |key: &VerificationKey| {
            crypto::verify(signature, message.as_bytes(), &key.key, header.alg)
        };
        self.0.iter().filter(applies).any(|key| verifies(key).unwrap_or(false))
    }
}

impl VerificationKey {
    /// `None` for a key of an unknown type, of the wrong size, or for another purpose than signatures.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let purpose = jwk.common.public_key_use.as_ref();
        if purpose.is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        let supported: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::OctetKey(secret) if !secret.value.is_empty() => {
                AlgorithmFamily::Hmac.algorithms()
            }
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms(),
            AlgorithmParameters::EllipticCurve(point) => {
                let (chars, algorithm) = match point.curve {
                    EllipticCurve::P256 => (P256_COORDINATE_CHARS, &[Algorithm::ES256]),
                    EllipticCurve::P384 => (P384_COORDINATE_CHARS, &[Algorithm::ES384]),
                    _ => return None,
                };
                (point.x.len() == chars && point.y.len() == chars).then_some(algorithm)?
            }
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                AlgorithmFamily::Ed.algorithms()
            }
            _ => return None,
        };
        let algorithms: Box<[Algorithm]> = match jwk.common.key_algorithm {
            None => supported.into(),
            Some(only) => {
                let only = Algorithm::try_from(only).ok()?;
                supported.contains(&only).then(|| [only].into())?
            }
        };
        Some(VerificationKey { id: jwk.common.key_id.clone(), algorithms, key })
    }
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeySet").field(&self.0.len()).finish()
    }
}
