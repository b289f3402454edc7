//! Tokens of callers: verified, then remembered.
//!
//! A token whose signature does not fit, that has expired or is for somebody else has no claims:
//! the request is then described as one without a token. Whether such a request may pass is the
//! upstream's matter; here it only decides which limits it meets.
//!
//! Verifying takes tens of microseconds, so what was found is remembered by the token's hash,
//! also of tokens that are wrong: a flood of one bad token costs no more than one of a good one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use http::request::Parts;
use quick_cache::sync::Cache;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_engine::{Nanos, Timestamp};

use super::base64::decoded;
use super::key_set::{Algorithm, KeySet};
use super::presented::presented;
use crate::settings::{JwtKey, JwtSettings, PresentedIn};
use crate::watched_file::WatchedFile;

/// Tokens are some hundred bytes; heads are bounded anyway.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// A set of keys is some kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a verified token says.
pub(super) type Claims = Map<String, Value>;

/// What was found out about a token.
#[derive(Clone, Debug)]
struct Found {
    /// Under which keys.
    version: u64,
    claims: Option<Arc<Claims>>,
}

/// How tokens are verified.
#[derive(Debug)]
pub(crate) struct Tokens {
    presented_in: PresentedIn,
    keys: ArcSwap<KeySet>,
    file: Option<WatchedFile>,
    /// Whether the file has a secret in it; otherwise a set of keys.
    holds_secret: bool,
    /// Counts changes of the keys: what was found before does not hold any more.
    version: AtomicU64,
    issuer: Option<Box<str>>,
    audience: Option<Box<str>>,
    leeway_secs: u64,
    remembered: Cache<[u8; 32], Found>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that have to be understood. None is.
    crit: Option<Value>,
}

impl Tokens {
    /// Reads the keys. Blocks.
    pub(crate) fn load(settings: &JwtSettings) -> Result<Self, String> {
        let (keys, file) = match &settings.key {
            JwtKey::Secret(secret) if secret.is_empty() => return Err("the secret is empty".into()),
            JwtKey::Secret(secret) => (KeySet::of_secret(secret), None),
            JwtKey::SecretFile(path) | JwtKey::KeySet(path) => {
                (KeySet::default(), Some(WatchedFile::new(Path::new(path), FILE_BYTES_MAX)))
            }
        };
        let tokens = Tokens {
            presented_in: settings.presented_in.clone(),
            keys: ArcSwap::from_pointee(keys),
            file,
            holds_secret: matches!(settings.key, JwtKey::SecretFile(_)),
            version: AtomicU64::new(0),
            issuer: settings.issuer.as_deref().map(Into::into),
            audience: settings.audience.as_deref().map(Into::into),
            leeway_secs: settings.leeway_secs,
            remembered: Cache::new(settings.remembered_max),
        };
        tokens.refresh()?;
        Ok(tokens)
    }

    /// Reads the keys again if their file has changed; the old ones stay when it is wrong.
    /// Blocks.
    pub(crate) fn refresh(&self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        file.refresh(|text| {
            let keys = match text.trim() {
                "" if self.holds_secret => return Err("the secret is empty".to_owned()),
                secret if self.holds_secret => KeySet::of_secret(secret.as_bytes()),
                _ => KeySet::parse(text)?,
            };
            self.keys.store(Arc::new(keys));
            self.version.fetch_add(1, Ordering::Release);
            Ok(())
        })
    }

    /// The claims of the request's token, if it is good.
    pub(super) fn claims(&self, head: &Parts, now: Timestamp) -> Option<Arc<Claims>> {
        let token = presented(head, &self.presented_in)?;
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash: [u8; 32] = digest(&SHA256, token.as_bytes()).as_ref().try_into().ok()?;
        let version = self.version.load(Ordering::Acquire);
        let found = self.remembered.get(&hash).filter(|found| found.version == version);
        let found = found.unwrap_or_else(|| {
            let found = Found { version, claims: self.verified(&token).map(Arc::new) };
            self.remembered.insert(hash, found.clone());
            found
        });
        found.claims.filter(|claims| self.is_current(claims, now))
    }

    /// The claims of a token that somebody with a key made for us.
    fn verified(&self, token: &str) -> Option<Claims> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let header: Header = serde_json::from_slice(&decoded(header)?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        let algorithm = Algorithm::named(&header.alg)?;
        let keys = self.keys.load();
        let signature = decoded(signature)?;
        if !keys.verify(algorithm, header.kid.as_deref(), message.as_bytes(), &signature) {
            return None;
        }
        let claims: Claims = serde_json::from_slice(&decoded(payload)?).ok()?;
        let is_ours = self.issuer.as_deref().is_none_or(|issuer| says(claims.get("iss"), issuer))
            && self.audience.as_deref().is_none_or(|audience| says(claims.get("aud"), audience));
        is_ours.then_some(claims)
    }

    /// Whether the token has begun and not ended. A time that is no number is never now.
    fn is_current(&self, claims: &Claims, now: Timestamp) -> bool {
        let now = Nanos::new(now.as_nanos()).as_secs_ceil();
        let ended = claims.get("exp").is_some_and(|end| {
            seconds(end).is_none_or(|end| now > end.saturating_add(self.leeway_secs))
        });
        let begun = claims.get("nbf").is_none_or(|begin| {
            seconds(begin).is_some_and(|begin| now.saturating_add(self.leeway_secs) >= begin)
        });
        begun && !ended
    }
}

/// Whether a claim is this text, or a list with it.
fn says(claim: Option<&Value>, text: &str) -> bool {
    match claim {
        Some(Value::String(claim)) => claim == text,
        Some(Value::Array(claims)) => claims.iter().any(|claim| claim == text),
        _ => false,
    }
}

/// Whole seconds since the epoch; numbers may have fractions.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let text = value.as_number()?.to_string();
        text.split('.').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests;
