//! Keys that verify tokens, as RFC 7517 and RFC 7518 write them.
//!
//! Each key does only what its kind is for: a public key is never taken for a shared secret,
//! whatever a token says of its algorithm.

use aws_lc_rs::{hmac, signature};
use serde::Deserialize;

use super::base64::decoded;

/// More than anybody rotates through. A token without a key's name is tried with each.
const KEYS_MAX: usize = 100;

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// By its name; `none` is no algorithm.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Algorithm::Hs256,
            "HS384" => Algorithm::Hs384,
            "HS512" => Algorithm::Hs512,
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }
}

/// All keys that are accepted.
#[derive(Default)]
pub(super) struct KeySet(Vec<Key>);

struct Key {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Secret(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    crv: Option<String>,
    k: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// One secret for every token.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        let material = Material::Secret(secret.to_vec());
        KeySet(vec![Key { id: None, algorithm: None, material }])
    }

    /// Reads a document. Keys of kinds that are not known are left out, as the standard asks.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| format!("it is no set of keys: {error}"))?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<Key> = document.keys.iter().filter_map(Written::key).collect();
        if keys.is_empty() {
            return Err("it has no key that verifies tokens".to_owned());
        }
        Ok(KeySet(keys))
    }

    /// Whether one of the keys made the signature. A token that names a key means that one.
    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let fits = |key: &&Key| {
            key.algorithm.is_none_or(|other| other == algorithm)
                && match (id, &key.id) {
                    (Some(id), Some(other)) => id == other,
                    _ => true,
                }
        };
        self.0.iter().filter(fits).any(|key| key.material.verify(algorithm, message, signature))
    }
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeySet").field(&self.0.len()).finish()
    }
}

impl Written {
    fn key(&self) -> Option<Key> {
        if self.r#use.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let part = |part: &Option<String>| decoded(part.as_deref()?);
        // Both halves have the length of the curve; what stands before is the mark of a whole point.
        let point = |bytes: usize| {
            let (x, y) = (part(&self.x)?, part(&self.y)?);
            let whole = x.len() == bytes && y.len() == bytes;
            whole.then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (self.kty.as_str(), self.crv.as_deref()) {
            ("oct", _) => Material::Secret(part(&self.k).filter(|secret| !secret.is_empty())?),
            ("RSA", _) => Material::Rsa { n: part(&self.n)?, e: part(&self.e)? },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(part(&self.x)?),
            _ => return None,
        };
        let algorithm = match &self.alg {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        Some(Key { id: self.kid.clone(), algorithm, material })
    }
}

impl Material {
    fn verify(&self, algorithm: Algorithm, message: &[u8], made: &[u8]) -> bool {
        let keyed = |key: &[u8], kind: &'static dyn signature::VerificationAlgorithm| {
            signature::UnparsedPublicKey::new(kind, key).verify(message, made).is_ok()
        };
        match self {
            Material::Secret(secret) => {
                let kind = match algorithm {
                    Algorithm::Hs256 => hmac::HMAC_SHA256,
                    Algorithm::Hs384 => hmac::HMAC_SHA384,
                    Algorithm::Hs512 => hmac::HMAC_SHA512,
                    _ => return false,
                };
                hmac::verify(&hmac::Key::new(kind, secret), message, made).is_ok()
            }
            Material::Rsa { n, e } => {
                let kind = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                signature::RsaPublicKeyComponents { n, e }.verify(kind, message, made).is_ok()
            }
            Material::P256(point) => {
                algorithm == Algorithm::Es256 && keyed(point, &signature::ECDSA_P256_SHA256_FIXED)
            }
            Material::P384(point) => {
                algorithm == Algorithm::Es384 && keyed(point, &signature::ECDSA_P384_SHA384_FIXED)
            }
            Material::Ed25519(point) => {
                algorithm == Algorithm::EdDsa && keyed(point, &signature::ED25519)
            }
        }
    }
}
