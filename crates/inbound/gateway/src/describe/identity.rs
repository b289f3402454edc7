//! The identity of a caller: verified claims, and the owner of its API key.

use std::sync::Arc;

use compact_str::{CompactString, ToCompactString};
use http::request::Parts;
use serde_json::Value;
use tidegate_engine::Timestamp;
use tidegate_overload::Caller;

use super::api_keys::{ApiKeys, KeyOwner};
use super::jwt::{Claims, Tokens};
use crate::encode::Fault;
use crate::settings::{InvalidCredential, ValueFrom};

/// What must be known about the caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentityNeeds {
    pub(crate) claims: bool,
    pub(crate) key: bool,
}

impl IdentityNeeds {
    pub(crate) fn add(&mut self, value: &ValueFrom) {
        match value {
            ValueFrom::Claim(_) => self.claims = true,
            ValueFrom::Plan | ValueFrom::ApiKeyName => self.key = true,
            _ => {}
        }
    }
}

impl std::ops::BitOr for IdentityNeeds {
    type Output = IdentityNeeds;

    fn bitor(self, other: IdentityNeeds) -> IdentityNeeds {
        IdentityNeeds { claims: self.claims || other.claims, key: self.key || other.key }
    }
}

/// The result of verifying a credential.
#[derive(Clone, Debug)]
pub(crate) enum Credential<T> {
    Absent,
    /// Several that differ: the upstream may use another one.
    Ambiguous,
    Invalid,
    Valid(T),
}

impl<T> Credential<T> {
    /// What it says of the caller, or why the request is rejected.
    fn accept(self, when_invalid: InvalidCredential, fault: Fault) -> Result<Option<T>, Fault> {
        match (self, when_invalid) {
            (Credential::Valid(value), _) => Ok(Some(value)),
            (Credential::Ambiguous, _) => Err(Fault::AmbiguousValue),
            (Credential::Invalid, InvalidCredential::Reject) => Err(fault),
            (Credential::Invalid, InvalidCredential::Ignore) | (Credential::Absent, _) => Ok(None),
        }
    }
}

/// Verifies the credentials of callers.
#[derive(Debug, Default)]
pub(crate) struct IdentitySources {
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) keys: Option<Arc<ApiKeys>>,
    /// What happens to invalid tokens.
    pub(crate) when_invalid: InvalidCredential,
    /// What happens to unknown API keys.
    pub(crate) when_unknown: InvalidCredential,
}

impl IdentitySources {
    /// What must be known about every caller.
    pub(crate) fn needs(&self) -> IdentityNeeds {
        IdentityNeeds {
            claims: self.when_invalid == InvalidCredential::Reject,
            key: self.when_unknown == InvalidCredential::Reject,
        }
    }

    /// Identifies the caller of a request.
    ///
    /// # Errors
    /// Why its credentials are rejected.
    pub(crate) fn identify(
        &self,
        needs: IdentityNeeds,
        head: &Parts,
        now: Timestamp,
    ) -> Result<Identity, Fault> {
        let mut identity = Identity::default();
        if let Some(tokens) = self.tokens.as_ref().filter(|_| needs.claims) {
            let claims = tokens.claims(head, now);
            identity.claims = claims.accept(self.when_invalid, Fault::InvalidToken)?;
        }
        if let Some(keys) = self.keys.as_ref().filter(|_| needs.key) {
            let owner = keys.owner(head);
            identity.key = owner.accept(self.when_unknown, Fault::UnknownApiKey)?;
        }
        Ok(identity)
    }
}

/// The identity of one caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    claims: Option<Arc<Claims>>,
    key: Option<Arc<KeyOwner>>,
}

impl Identity {
    /// A number for the caller whose credentials are valid: the owner of the key, or else the subject of the token.
    pub(crate) fn number(&self) -> Option<u64> {
        let owner = self.key.as_ref().map(|owner| Caller::named(owner.name.as_bytes()));
        let subject = || {
            let subject = self.claims.as_ref()?.get("sub")?.as_str()?;
            Some(Caller::named(subject))
        };
        owner.or_else(subject).map(Caller::number)
    }

    /// A claim that is a string, a number or a boolean.
    pub(super) fn claim(&self, name: &str) -> Option<CompactString> {
        let claims = self.claims.as_ref()?;
        // A name may contain dots: the claim of that name takes precedence over a nested one.
        let found = claims.get(name).or_else(|| {
            let mut parts = name.split('.');
            let first = claims.get(parts.next()?)?;
            parts.try_fold(first, |inside, part| inside.get(part))
        });
        match found? {
            Value::String(text) => Some(text.into()),
            Value::Number(number) => Some(number.to_compact_string()),
            Value::Bool(boolean) => Some(boolean.to_compact_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    pub(crate) fn plan(&self) -> Option<&str> {
        self.key.as_ref().map(|key| &*key.plan)
    }

    pub(super) fn key_name(&self) -> Option<&str> {
        self.key.as_ref().map(|key| &*key.name)
    }
}
