//! What is known of the caller: verified claims, and whose key it has.

use std::sync::Arc;

use compact_str::{CompactString, ToCompactString};
use http::request::Parts;
use serde_json::Value;
use tidegate_engine::Timestamp;

use super::api_keys::{ApiKeys, KeyOwner};
use super::jwt::{Claims, Tokens};
use crate::settings::ValueFrom;

/// What of the caller has to be known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    pub(crate) claims: bool,
    pub(crate) key: bool,
}

impl Needs {
    pub(crate) fn note(&mut self, value: &ValueFrom) {
        match value {
            ValueFrom::Claim(_) => self.claims = true,
            ValueFrom::Plan | ValueFrom::ApiKeyName => self.key = true,
            _ => {}
        }
    }
}

impl std::ops::BitOr for Needs {
    type Output = Needs;

    fn bitor(self, other: Needs) -> Needs {
        Needs { claims: self.claims || other.claims, key: self.key || other.key }
    }
}

/// Who can be known, and how.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) keys: Option<Arc<ApiKeys>>,
}

impl Identities {
    pub(crate) fn identify(&self, needs: Needs, head: &Parts, now: Timestamp) -> Identity {
        let claims = self.tokens.as_ref().filter(|_| needs.claims);
        let key = self.keys.as_ref().filter(|_| needs.key);
        Identity {
            claims: claims.and_then(|tokens| tokens.claims(head, now)),
            key: key.and_then(|keys| keys.owner(head)),
        }
    }
}

/// What is known of one caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    claims: Option<Arc<Claims>>,
    key: Option<Arc<KeyOwner>>,
}

impl Identity {
    /// A claim that is a text, a number or a truth value.
    pub(super) fn claim(&self, name: &str) -> Option<CompactString> {
        let claims = self.claims.as_ref()?;
        // A name may have dots itself; it counts before what is nested.
        let found = claims.get(name).or_else(|| {
            let mut parts = name.split('.');
            let first = claims.get(parts.next()?)?;
            parts.try_fold(first, |inside, part| inside.get(part))
        });
        match found? {
            Value::String(text) => Some(text.into()),
            Value::Number(number) => Some(number.to_compact_string()),
            Value::Bool(truth) => Some(truth.to_compact_string()),
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
