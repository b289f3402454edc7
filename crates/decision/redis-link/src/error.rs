//! Errors, in words that say what to do about them.
//!
//! Maps every error of a server, of the `redis` crate and of the system to a [`LinkError`]. The only module that knows
//! the servers' error codes.

use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};
pub use tidegate_words::FailureKind;

/// Servers may quote the command in their error; a longer text is cut.
const QUOTE_CHARS_MAX: usize = 160;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No reply in time.
    #[error("Redis did not answer within {waited:?}")]
    Timeout {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The server cannot be reached, rejected the call, or sent a malformed reply.
    #[error("Redis cannot be used: {reason}")]
    Unavailable {
        /// The kind of failure, for metrics.
        kind: FailureKind,
        /// The reason, and what to do about it.
        reason: String,
    },
}

impl LinkError {
    /// The kind of failure.
    pub const fn kind(&self) -> FailureKind {
        match self {
            LinkError::Timeout { .. } => FailureKind::Timeout,
            LinkError::Unavailable { kind, .. } => *kind,
        }
    }

    /// Whether the server may have executed the call. If so, sending it again could execute it twice.
    pub const fn may_have_run(&self) -> bool {
        matches!(self, LinkError::Timeout { .. }) || self.kind().may_have_run()
    }
}

/// An error of this kind.
pub(crate) fn unavailable(kind: FailureKind, reason: impl Into<String>) -> LinkError {
    LinkError::Unavailable { kind, reason: reason.into() }
}

/// The error that a server replied with.
pub(crate) fn of_server(error: &ServerError) -> LinkError {
    LinkError::of_code(error.code(), error.details().unwrap_or_default())
}

/// The error of a connection, or of an attempt to open one.
pub(crate) fn of_connection(error: &RedisError) -> LinkError {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            unavailable(FailureKind::Timeout, "it did not answer in time")
        }
        ErrorKind::Io => unavailable(FailureKind::Refused, quote(&error.to_string())),
        ErrorKind::Parse => not_redis(),
        _ => match error.code() {
            Some(code) => LinkError::of_code(code, error.detail().unwrap_or_default()),
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                of_login(error.detail().unwrap_or_default())
            }
            None => unavailable(FailureKind::Other, quote(&error.to_string())),
        },
    }
}

/// The error of a socket.
pub(crate) fn of_system(error: &io::Error) -> LinkError {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            unavailable(FailureKind::Timeout, "it could not be connected to in time")
        }
        io::ErrorKind::InvalidData => unavailable(FailureKind::Protocol, quote(&error.to_string())),
        _ => unavailable(FailureKind::Refused, quote(&error.to_string())),
    }
}

/// The error of a reply that no Redis sends.
pub(crate) fn not_redis() -> LinkError {
    unavailable(
        FailureKind::Protocol,
        "it answers what no Redis answers: is something else listening there?",
    )
}

/// The error of a call that was in flight when the connection was lost: it may have run.
pub(crate) fn of_lost_call(cause: &LinkError) -> LinkError {
    let reason = format!("the connection was lost while a call was in flight: {}", reason(cause));
    unavailable(FailureKind::Lost, reason)
}

/// The same error, with the address of the server.
pub(crate) fn at(address: &impl std::fmt::Display, error: &LinkError) -> LinkError {
    unavailable(error.kind(), format!("{address}: {}", reason(error)))
}

/// An error of a node, with its address if that is known.
pub(crate) fn at_node(
    address: Option<&crate::settings::RedisAddress>,
    error: &LinkError,
) -> LinkError {
    address.map_or_else(|| error.clone(), |address| at(address, error))
}

fn reason(error: &LinkError) -> String {
    match error {
        LinkError::Unavailable { reason, .. } => reason.clone(),
        LinkError::Timeout { .. } => error.to_string(),
    }
}

/// Redis 6 wraps the error of a script's command in an error of the script.
fn within_script<'a>(code: &str, detail: &'a str) -> Option<(&'a str, &'a str)> {
    let (_, inner) = detail.rsplit_once(": -").filter(|_| code == "ERR")?;
    let (code, detail) = inner.split_once(' ')?;
    let is_code = code != "ERR" && code.bytes().all(|letter| letter.is_ascii_uppercase());
    is_code.then_some((code, detail))
}

/// The error of a login; its code may be only in its text.
fn of_login(detail: &str) -> LinkError {
    match detail.split_once([' ', ':']) {
        Some((code @ ("WRONGPASS" | "NOAUTH" | "LOADING" | "NOPERM" | "DENIED"), rest)) => {
            LinkError::of_code(code, rest)
        }
        _ => LinkError::of_code("WRONGPASS", detail),
    }
}

impl LinkError {
    /// The error for a server's error code and its text.
    pub fn of_code(code: &str, detail: &str) -> LinkError {
        use FailureKind as Kind;
        if let Some((code, detail)) = within_script(code, detail) {
            return LinkError::of_code(code, detail);
        }
        let (kind, words) = match code {
            "OOM" => (Kind::Full, "it has no memory left: raise maxmemory, or let it evict keys"),
            "READONLY" => (Kind::ReadOnly, "it is a replica and takes no writes: name the master"),
            "MASTERDOWN" => (Kind::ReadOnly, "it is a replica that has lost its master"),
            "LOADING" => (Kind::Loading, "it still reads its data from disk"),
            "NOAUTH" => (Kind::Auth, "it asks for a password: give user and password"),
            "WRONGPASS" => (Kind::Auth, "it does not accept the user or the password"),
            "NOPERM" => {
                (Kind::Auth, "the user lacks a right: it needs EVALSHA, SCRIPT LOAD and keys")
            }
            "DENIED" => {
                (Kind::Auth, "it is in protected mode: give it a password, or let it listen")
            }
            "MOVED" | "ASK" => (Kind::Cluster, "it is a node of a cluster: write redis-cluster://"),
            "TRYAGAIN" => (Kind::Cluster, "the keys are being moved to another node"),
            "CLUSTERDOWN" => (Kind::Cluster, "the cluster is down: some slots have no master"),
            "CROSSSLOT" => (Kind::Cluster, "the keys of one call lie in several slots"),
            "NOREPLICAS" => {
                (Kind::Other, "it has fewer replicas than min-replicas-to-write demands")
            }
            "MISCONF" => (Kind::Other, "it cannot save to disk and refuses writes until it can"),
            "BUSY" => (Kind::Other, "it runs a script that does not end; SCRIPT KILL would end it"),
            "NOSCRIPT" => (Kind::Other, "it forgets scripts as fast as they are loaded"),
            "ERR" if detail.contains("max number of clients") => {
                (Kind::Refused, "it has no room for another connection: raise maxclients")
            }
            // Before a login a server accepts only short arguments, and the script is long.
            "ERR" if detail.contains("unauthenticated") => {
                return LinkError::of_code("NOAUTH", detail);
            }
            _ => return unavailable(Kind::Other, quote(&format!("it answered {code} {detail}"))),
        };
        // Only the details of NOPERM add anything: they name the missing right.
        let quoted = if code == "NOPERM" { quote(&format!(": {detail}")) } else { String::new() };
        unavailable(kind, format!("{words} ({code}){quoted}"))
    }
}

fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str, detail: &str) -> String {
        LinkError::of_code(code, detail).to_string()
    }

    #[test]
    fn an_error_of_the_server_says_its_code_and_what_to_do() {
        for (code, words) in [
            ("OOM", "maxmemory"),
            ("READONLY", "master"),
            ("LOADING", "disk"),
            ("NOAUTH", "password"),
            ("CLUSTERDOWN", "slots"),
            ("BUSY", "SCRIPT KILL"),
        ] {
            let text = answered(code, "");
            assert!(text.contains(words) && text.contains(code), "{text}");
        }
    }

    #[test]
    fn an_error_of_a_scripts_command_is_found_inside_that_of_the_script() {
        let error = "Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM \
                    command not allowed when used memory > 'maxmemory'.";
        assert_eq!(LinkError::of_code("ERR", error).kind(), FailureKind::Full);
        assert_eq!(
            LinkError::of_code("ERR", "Error running script: -1: -ERR no").kind(),
            FailureKind::Other
        );
        assert_eq!(LinkError::of_code("ERR", "wrong number: -").kind(), FailureKind::Other);
    }

    #[test]
    fn a_script_that_is_too_long_for_a_stranger_is_a_missing_password() {
        let text = answered("ERR", "Protocol error: unauthenticated bulk length");
        assert!(text.contains("password") && text.contains("NOAUTH"), "{text}");
    }

    #[test]
    fn a_missing_right_says_which() {
        let text = answered("NOPERM", "User u has no permissions to run the 'evalsha' command");
        assert!(text.contains("'evalsha'"), "{text}");
    }

    #[test]
    fn an_unknown_code_is_quoted_in_part() {
        let text = answered("ERR", &"x".repeat(10_000));
        assert!(text.contains("ERR x") && text.len() < 400, "{text}");
        assert_eq!(
            LinkError::of_code("ERR", "max number of clients reached").kind(),
            FailureKind::Refused
        );
    }

    #[test]
    fn a_refused_connection_is_distinguished_from_a_slow_one() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(of_system(&refused).kind(), FailureKind::Refused);
        let slow = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(of_system(&slow).kind(), FailureKind::Timeout);
    }

    #[test]
    fn an_error_keeps_its_kind_when_the_address_is_added() {
        let error = at(&"10.0.0.7:6379", &LinkError::of_code("OOM", ""));
        assert_eq!(error.kind(), FailureKind::Full);
        assert!(error.to_string().contains("10.0.0.7:6379"), "{error}");
    }

    #[test]
    fn a_call_that_was_lost_may_have_run_whatever_ended_the_connection() {
        let error = of_lost_call(&of_system(&io::Error::from(io::ErrorKind::ConnectionReset)));
        assert_eq!(error.kind(), FailureKind::Lost);
        assert!(error.may_have_run());
    }

    #[test]
    fn a_call_that_was_not_sent_or_was_rejected_has_not_run() {
        for kind in [FailureKind::Refused, FailureKind::Overloaded, FailureKind::ReadOnly] {
            assert!(!unavailable(kind, "").may_have_run(), "{}", kind.as_str());
        }
        assert!(unavailable(FailureKind::Lost, "").may_have_run());
        assert!(LinkError::Timeout { waited: Duration::ZERO }.may_have_run());
    }

    #[test]
    fn every_kind_has_its_index() {
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.as_str());
        }
    }
}
