//! Errors of the Redis client as errors of a store.

use tidegate_redis_link::LinkError;
use tidegate_words::FailureKind;

use crate::counter_store::StoreError;

impl From<LinkError> for StoreError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Timeout { waited } => StoreError::Timeout { waited },
            LinkError::Unavailable { kind, reason } => StoreError::Unavailable { kind, reason },
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
        for kind in FailureKind::ALL {
            let error = LinkError::Unavailable { kind, reason: String::new() };
            let may_have_run = error.may_have_run();
            assert_eq!(StoreError::from(error).may_have_run(), may_have_run, "{kind:?}");
        }
        let timeout = LinkError::Timeout { waited: std::time::Duration::ZERO };
        assert!(StoreError::from(timeout).may_have_run());
    }
}
