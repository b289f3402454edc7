//! The identity of a caller: verified claims, and the owner of its API key.

use std::sync::Arc;

use compact_str::{CompactString, ToCompactString};
use http::request::Parts;
use serde_json::Value;
use tidegate_engine::Timestamp;

use super::api_keys::{ApiKeys, KeyOwner};
use super::jwt::{Claims, Tokens};
use crate::settings::ValueFrom;

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

/// Verifies the credentials of callers.
#[derive(Debug, Default)]
pub(crate) struct IdentitySources {
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) keys: Option<Arc<ApiKeys>>,
}

impl IdentitySources {
    pub(crate) fn identify(&self, needs: IdentityNeeds, head: &Parts, now: Timestamp) -> Identity {
        let claims = self.tokens.as_ref().filter(|_| needs.claims);
        let key = self.keys.as_ref().filter(|_| needs.key);
        Identity {
            claims: claims.and_then(|tokens| tokens.claims(head, now)),
            key: key.and_then(|keys| keys.owner(head)),
        }
    }
}

/// The identity of one caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    claims: Option<Arc<Claims>>,
    key: Option<Arc<KeyOwner>>,
}

impl Identity {
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
