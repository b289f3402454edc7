//! What went wrong, in words that say what to do about it.
//!
//! The one place that knows the servers' error codes. Every error of a server,
//! of the client library and of the system becomes a [`StoreError`] here.

use std::io;

use redis::{ErrorKind, RedisError, ServerError};

use crate::counter_store::{FailureKind, StoreError};

/// Servers may quote what they were sent; nobody reads further than this.
const QUOTE_CHARS_MAX: usize = 160;

/// A failure of this kind.
pub(crate) fn failure(kind: FailureKind, reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable { kind, reason: reason.into() }
}

/// The server was asked and answered with an error.
pub(crate) fn of_answer(error: &ServerError) -> StoreError {
    of_code(error.code(), error.details().unwrap_or_default())
}

/// A connection, or an attempt to make one, failed.
pub(crate) fn of_connection(error: &RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            failure(FailureKind::Timeout, "it did not answer in time")
        }
        ErrorKind::Io => failure(FailureKind::Refused, quote(&error.to_string())),
        ErrorKind::Parse => of_garbage(),
        _ => match error.code() {
            Some(code) => of_code(code, error.detail().unwrap_or_default()),
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                of_login(error.detail().unwrap_or_default())
            }
            None => failure(FailureKind::Other, quote(&error.to_string())),
        },
    }
}

/// The system could not connect.
pub(crate) fn of_system(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            failure(FailureKind::Timeout, "it could not be connected to in time")
        }
        io::ErrorKind::InvalidData => failure(FailureKind::Protocol, quote(&error.to_string())),
        _ => failure(FailureKind::Refused, quote(&error.to_string())),
    }
}

/// The answer is not one that the script gives.
pub(crate) fn of_garbage() -> StoreError {
    failure(
        FailureKind::Protocol,
        "it answers what no Redis answers: is something else listening there?",
    )
}

/// The connection ended while a call was out: whether it ran, nobody knows.
pub(crate) fn of_lost_call(why: &StoreError) -> StoreError {
    let reason = format!("the connection was lost while it was asked: {}", reason(why));
    failure(FailureKind::Lost, reason)
}

/// The same failure, with the address of the server that it happened at.
pub(crate) fn at(address: &impl std::fmt::Display, error: &StoreError) -> StoreError {
    failure(error.kind(), format!("{address}: {}", reason(error)))
}

fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { reason, .. } => reason.clone(),
        StoreError::Timeout { .. } => error.to_string(),
    }
}

/// Redis 6 tells an error of a script's command inside one about the script.
fn within_script<'a>(code: &str, detail: &'a str) -> Option<(&'a str, &'a str)> {
    let (_, inner) = detail.rsplit_once(": -").filter(|_| code == "ERR")?;
    let (code, detail) = inner.split_once(' ')?;
    let is_code = code != "ERR" && code.bytes().all(|letter| letter.is_ascii_uppercase());
    is_code.then_some((code, detail))
}

/// The error that a login ends in may carry its code only in its text.
fn of_login(detail: &str) -> StoreError {
    match detail.split_once([' ', ':']) {
        Some((code @ ("WRONGPASS" | "NOAUTH" | "LOADING" | "NOPERM" | "DENIED"), rest)) => {
            of_code(code, rest)
        }
        _ => of_code("WRONGPASS", detail),
    }
}

/// The server's own code and words.
pub(crate) fn of_code(code: &str, detail: &str) -> StoreError {
    use FailureKind as Kind;
    if let Some((code, detail)) = within_script(code, detail) {
        return of_code(code, detail);
    }
    let (kind, words) = match code {
        "OOM" => (Kind::Full, "it has no memory left: raise maxmemory, or let it evict keys"),
        "READONLY" => (Kind::ReadOnly, "it is a replica and takes no writes: name the master"),
        "MASTERDOWN" => (Kind::ReadOnly, "it is a replica that has lost its master"),
        "LOADING" => (Kind::Loading, "it still reads its data from disk"),
        "NOAUTH" => (Kind::Auth, "it asks for a password: give user and password"),
        "WRONGPASS" => (Kind::Auth, "it does not accept the user or the password"),
        "NOPERM" => (Kind::Auth, "the user lacks a right: it needs EVALSHA, SCRIPT LOAD and keys"),
        "DENIED" => (Kind::Auth, "it is in protected mode: give it a password, or let it listen"),
        "MOVED" | "ASK" => (Kind::Cluster, "it is a node of a cluster: write redis-cluster://"),
        "TRYAGAIN" => (Kind::Cluster, "the keys are on their way to another node"),
        "CLUSTERDOWN" => (Kind::Cluster, "the cluster is down: some slots have no master"),
        "CROSSSLOT" => (Kind::Cluster, "keys of one call lie in several slots"),
        "NOREPLICAS" => (Kind::Other, "it has fewer replicas than min-replicas-to-write asks for"),
        "MISCONF" => (Kind::Other, "it cannot save to disk and refuses writes until it can"),
        "BUSY" => (Kind::Other, "it runs a script that does not end; SCRIPT KILL would end it"),
        "NOSCRIPT" => (Kind::Other, "it forgets scripts as fast as they are loaded"),
        "ERR" if detail.contains("max number of clients") => {
            (Kind::Refused, "it has no room for another connection: raise maxclients")
        }
        // To strangers a server listens only briefly, and our script is long.
        "ERR" if detail.contains("unauthenticated") => return of_code("NOAUTH", detail),
        _ => return failure(Kind::Other, quote(&format!("it answered {code} {detail}"))),
    };
    // The details of a missing right say which; the others repeat the code.
    let quoted = if code == "NOPERM" { quote(&format!(": {detail}")) } else { String::new() };
    failure(kind, format!("{words} ({code}){quoted}"))
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
        of_code(code, detail).to_string()
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
        let told = "Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM \
                    command not allowed when used memory > 'maxmemory'.";
        assert_eq!(of_code("ERR", told).kind(), FailureKind::Full);
        assert_eq!(of_code("ERR", "Error running script: -1: -ERR no").kind(), FailureKind::Other);
        assert_eq!(of_code("ERR", "wrong number: -").kind(), FailureKind::Other);
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
    fn a_code_that_nobody_knows_is_quoted_in_part() {
        let text = answered("ERR", &"x".repeat(10_000));
        assert!(text.contains("ERR x") && text.len() < 400, "{text}");
        assert_eq!(of_code("ERR", "max number of clients reached").kind(), FailureKind::Refused);
    }

    #[test]
    fn a_refused_connection_is_told_from_a_slow_one() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(of_system(&refused).kind(), FailureKind::Refused);
        let slow = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(of_system(&slow).kind(), FailureKind::Timeout);
    }

    #[test]
    fn a_failure_keeps_its_kind_when_it_is_told_where() {
        let told = at(&"10.0.0.7:6379", &of_code("OOM", ""));
        assert_eq!(told.kind(), FailureKind::Full);
        assert!(told.to_string().contains("10.0.0.7:6379"), "{told}");
    }

    #[test]
    fn a_call_that_was_lost_may_have_run_whatever_ended_the_connection() {
        let told = of_lost_call(&of_system(&io::Error::from(io::ErrorKind::ConnectionReset)));
        assert_eq!(told.kind(), FailureKind::Lost);
        assert!(told.may_have_run());
    }
}
