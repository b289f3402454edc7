//! Errors in the words of envoyproxy/ratelimit ("upstream"), so that logs and alerts of its clients keep working.
//!
//! Upstream passes on the text of its Redis client, in Go. For commands that Redis rejects it quotes the command first,
//! which is left out.

use crate::counter_store::{FailureKind, StoreError};

impl StoreError {
    /// The same error in upstream's words.
    pub(super) fn in_upstream_words(self) -> Self {
        let kind = self.kind();
        let text = match &self {
            StoreError::Upstream { .. } => return self,
            StoreError::Timeout { .. } => of_connection("i/o timeout"),
            StoreError::Unavailable { reason, .. } => text(kind, reason),
        };
        StoreError::Upstream { kind, text }
    }
}

/// The text for a failure with this reason, which begins with the address of the server and ends with the server's
/// code in parentheses, as far as they are known.
fn text(kind: FailureKind, reason: &str) -> String {
    let has_code = |code: &str| reason.contains(&format!("({code})"));
    // The client closes a connection on which the server is silent.
    if reason.contains("it said nothing for") {
        return of_connection("i/o timeout");
    }
    // A server that dies resets connections that were open; Go names both ends of them, which nothing can rely on.
    if let Some(cause) = BROKEN.into_iter().find(|broken| reason.to_lowercase().contains(broken)) {
        return of_connection(&format!("read: {cause}"));
    }
    match kind {
        FailureKind::Timeout => of_connection("i/o timeout"),
        FailureKind::Refused => match refused_address(reason) {
            Some(address) if address.starts_with('/') => {
                format!("dial unix {address}: connect: {}", cause(reason))
            }
            Some(address) => format!("dial tcp {address}: connect: {}", cause(reason)),
            None => of_connection("EOF"),
        },
        FailureKind::Lost => of_connection("EOF"),
        FailureKind::Full => {
            of_connection("OOM command not allowed when used memory > 'maxmemory'.")
        }
        FailureKind::ReadOnly => {
            of_connection("READONLY You can't write against a read only replica.")
        }
        FailureKind::Loading => of_connection("LOADING Redis is loading the dataset in memory"),
        FailureKind::Auth if has_code("WRONGPASS") => {
            of_connection("WRONGPASS invalid username-password pair or user is disabled.")
        }
        FailureKind::Auth if has_code("NOAUTH") => of_connection("NOAUTH Authentication required."),
        FailureKind::Overloaded
        | FailureKind::Auth
        | FailureKind::Cluster
        | FailureKind::Protocol
        | FailureKind::Other => of_connection(reason),
    }
}

/// How an open connection breaks, as Go says it.
const BROKEN: [&str; 2] = ["connection reset by peer", "broken pipe"];

fn of_connection(what: &str) -> String {
    format!("response returned from Conn: {what}")
}

/// The address of a server that could not be connected to.
fn refused_address(reason: &str) -> Option<&str> {
    let (address, rest) = reason.split_once(": ")?;
    let is_address = address.starts_with('/') || address.contains(':');
    (is_address && rest.contains("os error")).then_some(address)
}

/// Why a server could not be connected to, as Go says it: in small letters, without the number.
fn cause(reason: &str) -> String {
    let (_, rest) = reason.split_once(": ").unwrap_or(("", reason));
    rest.split(" (os error").next().unwrap_or(rest).to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn words(kind: FailureKind, reason: &str) -> String {
        let error = StoreError::Unavailable { kind, reason: reason.to_owned() };
        error.in_upstream_words().to_string()
    }

    #[test]
    fn a_server_that_does_not_listen_is_named_as_go_names_it() {
        let reason = "127.0.0.1:6379: Connection refused (os error 111)";
        assert_eq!(
            words(FailureKind::Refused, reason),
            "dial tcp 127.0.0.1:6379: connect: connection refused"
        );
        let reason = "/run/redis.sock: No such file or directory (os error 2)";
        assert_eq!(
            words(FailureKind::Refused, reason),
            "dial unix /run/redis.sock: connect: no such file or directory"
        );
    }

    #[test]
    fn a_closed_connection_is_an_end_of_file() {
        let eof = "response returned from Conn: EOF";
        assert_eq!(words(FailureKind::Refused, "127.0.0.1:6379: it closed the connection"), eof);
        assert_eq!(words(FailureKind::Lost, "the connection was lost"), eof);
    }

    #[test]
    fn a_connection_that_was_reset_was_open_and_not_dialed() {
        let reset = "127.0.0.1:6379: Connection reset by peer (os error 104)";
        for kind in [FailureKind::Refused, FailureKind::Lost] {
            let text = "response returned from Conn: read: connection reset by peer";
            assert_eq!(words(kind, reset), text);
        }
    }

    #[test]
    fn a_connection_that_was_closed_because_of_silence_has_timed_out() {
        let reason = "the connection was lost while a call was in flight: 127.0.0.1:6379: it said nothing for 10s";
        for kind in [FailureKind::Lost, FailureKind::Refused] {
            assert_eq!(words(kind, reason), "response returned from Conn: i/o timeout");
        }
    }

    #[test]
    fn an_error_of_the_server_is_quoted() {
        let reason = "it does not accept the user or the password (WRONGPASS)";
        assert_eq!(
            words(FailureKind::Auth, reason),
            "response returned from Conn: WRONGPASS invalid username-password pair or user is disabled."
        );
        let reason = "it asks for a password: give user and password (NOAUTH)";
        let noauth = "response returned from Conn: NOAUTH Authentication required.";
        assert_eq!(words(FailureKind::Auth, reason), noauth);
        assert!(words(FailureKind::Full, "").ends_with("'maxmemory'."));
    }

    #[test]
    fn the_kind_stays_and_words_are_chosen_once() {
        let timeout = StoreError::Timeout { waited: Duration::from_secs(10) };
        let error = timeout.in_upstream_words();
        assert_eq!(error.kind(), FailureKind::Timeout);
        assert_eq!(error.to_string(), "response returned from Conn: i/o timeout");
        assert_eq!(error.clone().in_upstream_words(), error);
    }
}
