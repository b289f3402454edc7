//! Errors of the Redis client as errors of a store.

use tidegate_redis_link::{LinkError, LinkErrorKind};

use crate::counter_store::{FailureKind, StoreError};

impl From<LinkError> for StoreError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Timeout { waited } => StoreError::Timeout { waited },
            LinkError::Unavailable { kind, reason } => {
                StoreError::Unavailable { kind: kind.into(), reason }
            }
        }
    }
}

/// One to one: a store without Redis does not depend on the client, so each has its own kinds.
impl From<LinkErrorKind> for FailureKind {
    fn from(kind: LinkErrorKind) -> Self {
        match kind {
            LinkErrorKind::Timeout => FailureKind::Timeout,
            LinkErrorKind::Refused => FailureKind::Refused,
            LinkErrorKind::Lost => FailureKind::Lost,
            LinkErrorKind::Overloaded => FailureKind::Overloaded,
            LinkErrorKind::Full => FailureKind::Full,
            LinkErrorKind::ReadOnly => FailureKind::ReadOnly,
            LinkErrorKind::Loading => FailureKind::Loading,
            LinkErrorKind::Auth => FailureKind::Auth,
            LinkErrorKind::Cluster => FailureKind::Cluster,
            LinkErrorKind::Protocol => FailureKind::Protocol,
            LinkErrorKind::Other => FailureKind::Other,
        }
    }
}

/// The error of a malformed or missing reply.
pub(super) fn protocol_error(reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable { kind: FailureKind::Protocol, reason: reason.into() }
}

/// The error that the script reported for one call. An error of a command that the script ran keeps its code.
pub(super) fn script_error(words: &str) -> StoreError {
    let words = words.trim_start_matches('-');
    if words.contains(": -") {
        return LinkError::of_code("ERR", words).into();
    }
    let (code, details) = words.split_once(' ').unwrap_or((words, ""));
    if !code.is_empty() && code.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return LinkError::of_code(code, details).into();
    }
    let reason = format!("the script failed: {words}");
    StoreError::Unavailable { kind: FailureKind::Other, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_client_may_have_run_exactly_if_that_of_the_store_may() {
        for kind in LinkErrorKind::ALL {
            let error = LinkError::Unavailable { kind, reason: String::new() };
            let may_have_run = error.may_have_run();
            assert_eq!(StoreError::from(error).may_have_run(), may_have_run, "{kind:?}");
        }
        let timeout = LinkError::Timeout { waited: std::time::Duration::ZERO };
        assert!(StoreError::from(timeout).may_have_run());
    }
}
