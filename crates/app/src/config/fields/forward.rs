//! The fields of the forwarder.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_document::{Size, section};

use super::{DAY, GIB, HOUR, KIB, MANY, SECOND, Tls};
use crate::config::kinds::{Address, LeaseUrl, QueueUrl, Token};

section! {
    /// The forwarder, which `tidegate forward serve` and `tidegate forward work` run.
    Forward {
        /// The document with its targets and record types; see docs/forwarder.md.
        file: Option<PathBuf> = "off",
        /// Where records are kept: `postgres://USER@HOST/DATABASE?schema=tidegate`, `redis://HOST:6379?prefix=tidegate`,
        /// `sqlite:DIRECTORY`, or `sqlite::memory:` to lose them with the process. Off: in `data_dir`. Prefer the
        /// environment variable if it has a password.
        queue: Option<QueueUrl> = "off",
        /// Where processes lease their shares of a target: `redis://HOST:6379`, `postgres://USER@HOST/DATABASE`,
        /// `etcd://HOST:2379`, `s3://BUCKET/PREFIX?region=REGION`, `sqlite:FILE` for processes of one machine, or
        /// `memory:` for one process. Off: at the queue's server, or in memory if one process owns the queue.
        leases: Option<LeaseUrl> = "off",
        /// The name of this process among the members of a target; a random part follows. Off: the host and the process
        /// id.
        name: Option<String> = "off",
        /// Where the API of `tidegate forward serve` listens: `ADDRESS:PORT` or `unix:PATH`. Addresses that other
        /// machines can reach need a token.
        listen: Vec<Address> = "127.0.0.1:8090",
        /// Where `tidegate forward work` answers the same API, apart from new records.
        worker_listen: Vec<Address> = "",
        /// TLS of both; off without a certificate.
        tls: Tls,
        /// Access tokens, as in `http.tokens`: `check` enqueues and follows jobs, `read` looks at everything, `change`
        /// pauses, sets limits and treats dead letters. The document says which of them belong to a tenant.
        tokens: Vec<Token> = "",
        /// The largest request body.
        body_bytes_max: Size = "32MiB" in KIB..=GIB,
        /// The maximum of connections.
        connections_max: u32 = "1000" in 1..=MANY,
        /// How long a client may take to send its header.
        header_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a client may take to send its body.
        body_timeout: Duration = "30s" in SECOND..=HOUR,
        /// How long a connection may be idle.
        idle_timeout: Duration = "75s" in SECOND..=DAY,
    }
}

impl Forward {
    /// Whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        self.listen.iter().chain(&self.worker_listen).all(Address::is_local)
    }
}
