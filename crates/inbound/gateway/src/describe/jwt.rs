//! JSON Web Tokens of callers: verified, then cached.
//!
//! A token with a wrong signature, one that has expired and one for another audience yield no claims: the request is
//! then described as one without a token, or rejected if the settings say so.
//!
//! Verification takes tens of microseconds, so its result is cached by the token's hash, also for invalid tokens: a
//! flood of one bad token costs no more than one of a good token. `exp` and `nbf` are checked on every request against
//! the engine's clock, which `jsonwebtoken` cannot do: it reads the system clock, once, when it decodes.

mod key_set;
mod remote_key_set;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use jsonwebtoken::decode_header;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use tidegate_engine::{Nanos, Timestamp};

use super::credential::{ValueMatch, credential};
use super::identity::Credential;
use crate::settings::{JwtKey, JwtSettings, PresentedIn};
use crate::watched_file::WatchedFile;
use key_set::KeySet;
use remote_key_set::RemoteKeySet;

/// The maximum length of a token; usual ones have some hundred bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// The maximum size of a file with a secret or a set of keys; usual ones have some kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The claims of a verified token.
pub(super) type Claims = Map<String, Value>;

/// The cached result of a verification.
#[derive(Clone, Debug)]
struct CachedToken {
    /// The version of the keys that verified it.
    version: u64,
    /// `None` for an invalid token.
    claims: Option<Arc<Claims>>,
}

/// Verifies tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    presented_in: PresentedIn,
    keys: ArcSwap<KeySet>,
    file: Option<WatchedFile>,
    remote: Option<RemoteKeySet>,
    /// Whether the file holds a secret rather than a set of keys.
    holds_secret: bool,
    /// Incremented when the keys change, which invalidates the cache.
    version: AtomicU64,
    issuer: Option<Box<str>>,
    audience: Option<Box<str>>,
    leeway_secs: u64,
    cache: Cache<[u8; 32], CachedToken>,
}

impl Tokens {
    /// Loads the keys. Blocks.
    pub(crate) fn load(settings: &JwtSettings) -> Result<Self, String> {
        let mut remote = None;
        let (keys, file) = match &settings.key {
            JwtKey::Secret(secret) if secret.is_empty() => return Err("the secret is empty".into()),
            JwtKey::Secret(secret) => (KeySet::of_secret(secret), None),
            JwtKey::SecretFile(path) | JwtKey::KeySet(path) => {
                (KeySet::default(), Some(WatchedFile::new(Path::new(path), FILE_BYTES_MAX)))
            }
            JwtKey::KeySetUrl(set) => {
                remote = Some(RemoteKeySet::new(set)?);
                (KeySet::default(), None)
            }
        };
        let tokens = Tokens {
            presented_in: settings.presented_in.clone(),
            keys: ArcSwap::from_pointee(keys),
            file,
            remote,
            holds_secret: matches!(settings.key, JwtKey::SecretFile(_)),
            version: AtomicU64::new(0),
            issuer: settings.issuer.as_deref().map(Into::into),
            audience: settings.audience.as_deref().map(Into::into),
            leeway_secs: settings.leeway_secs,
            cache: Cache::new(settings.remembered_max),
        };
        tokens.refresh()?;
        Ok(tokens)
    }

    /// Reloads the keys if their file has changed, and returns whether it has. An invalid file leaves the old keys in
    /// use. Blocks.
    pub(crate) fn refresh(&self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        file.refresh(|text| {
            let keys = match text.trim() {
                "" if self.holds_secret => return Err("the secret is empty".to_owned()),
                secret if self.holds_secret => KeySet::of_secret(secret.as_bytes()),
                _ => KeySet::parse(text)?,
            };
            self.replace(keys);
            Ok(())
        })
    }

    fn replace(&self, keys: KeySet) {
        self.keys.store(Arc::new(keys));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Fetches the keys as long as it is polled, if they are at a URL.
    pub(crate) async fn keep_fetching(&self) {
        match &self.remote {
            Some(remote) => remote.keep_fetching(|keys| self.replace(keys)).await,
            None => std::future::pending().await,
        }
    }

    /// How often the keys were fetched, and how often that failed.
    pub(crate) fn fetches(&self) -> (u64, u64) {
        self.remote.as_ref().map_or((0, 0), RemoteKeySet::fetches)
    }

    /// The claims of the request's token.
    pub(super) fn claims(&self, head: &Parts, now: Timestamp) -> Credential<Arc<Claims>> {
        match credential(head, &self.presented_in) {
            // Without any keys no token can be judged.
            ValueMatch::One(_) if self.remote.is_some() && self.keys.load().is_empty() => {
                Credential::Absent
            }
            ValueMatch::One(token) => {
                let claims = self.claims_of(&token, now);
                claims.map_or(Credential::Invalid, Credential::Valid)
            }
            ValueMatch::Missing => Credential::Absent,
            ValueMatch::Several => Credential::Ambiguous,
        }
    }

    fn claims_of(&self, token: &str, now: Timestamp) -> Option<Arc<Claims>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash: [u8; 32] = digest(&SHA256, token.as_bytes()).as_ref().try_into().ok()?;
        let version = self.version.load(Ordering::Acquire);
        let cached = self.cache.get(&hash).filter(|cached| cached.version == version);
        let cached = cached.unwrap_or_else(|| {
            let cached = CachedToken { version, claims: self.verify(token).map(Arc::new) };
            self.cache.insert(hash, cached.clone());
            cached
        });
        cached.claims.filter(|claims| self.is_current(claims, now))
    }

    /// The claims of a token with a valid signature and the configured issuer and audience.
    fn verify(&self, token: &str) -> Option<Claims> {
        let header = decode_header(token).ok()?;
        // `crit` lists extensions that the verifier must understand. We support none.
        if header.crit.is_some() {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let keys = self.keys.load();
        if let Some(remote) = self.remote.as_ref().filter(|_| keys.lacks(&header)) {
            remote.fetch_soon();
        }
        if !keys.verify(&header, message, signature) {
            return None;
        }
        let (_, payload) = message.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let claims: Claims = serde_json::from_slice(&payload).ok()?;
        // A list of issuers is malformed (RFC 7519 §4.1.1); only an audience may be one.
        let (issuer, audience) = (claims.get("iss"), claims.get("aud"));
        let single = issuer.is_none_or(Value::is_string);
        let issued =
            self.issuer.as_deref().is_none_or(|wanted| issuer.is_some_and(|by| by == wanted));
        let meant = self.audience.as_deref().is_none_or(|wanted| contains(audience, wanted));
        (single && issued && meant).then_some(claims)
    }

    /// Whether `now` lies between `nbf` and `exp`. A time that is not a number rejects the token.
    fn is_current(&self, claims: &Claims, now: Timestamp) -> bool {
        let now = Nanos::new(now.as_nanos()).as_secs_ceil();
        let expired = claims.get("exp").is_some_and(|end| {
            seconds(end).is_none_or(|end| now > end.saturating_add(self.leeway_secs))
        });
        let begun = claims.get("nbf").is_none_or(|begin| {
            seconds(begin).is_some_and(|begin| now.saturating_add(self.leeway_secs) >= begin)
        });
        begun && !expired
    }
}

/// Whether a claim is this text, or a list that contains it.
fn contains(claim: Option<&Value>, text: &str) -> bool {
    match claim {
        Some(Value::String(claim)) => claim == text,
        Some(Value::Array(claims)) => claims.iter().any(|claim| claim == text),
        _ => false,
    }
}

/// Whole seconds since the epoch, rounded down.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let text = value.as_number()?.to_string();
        text.split('.').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests;
