//! Where the servers are, and how to reach them.
//!
//! One URL holds all settings, in the forms that users of Redis know; the fields can also be set one by one. Parsing
//! opens no connection and reads no file: a password file is read when a connection is opened, and again when it
//! changes.

mod secret;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_macros::defaults;

pub use secret::{Login, Password, Secret};
pub use tidegate_client_tls::{ClientTls, NameCheck};

/// Slots are renewed at a third of their lease, by a loop that runs ten times a second.
const SLOT_LEASE_MIN: Duration = Duration::from_millis(300);

/// More connections to a server do not help: it executes commands on one thread.
const CONNECTIONS_MAX: usize = 64;

/// Keeps instants far from overflow.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// A million waiting calls take a few hundred megabytes; so many mean an outage.
const QUEUE_MAX: usize = 1_000_000;

/// The prefix is part of every key, so it costs memory for each.
const PREFIX_BYTES_MAX: usize = 64;

defaults! {
    /// Where the servers are, and how to reach them.
    ///
    /// `prefix` and `slot_lease` are for the users of the client: one URL configures both.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RedisSettings {
        /// The servers. Default: one on this machine.
        pub servers: RedisServers = RedisServers::Single(RedisAddress::tcp("localhost", 6379)),
        /// The login at the servers.
        pub login: Login,
        /// The login at the sentinels, which do not share the servers' users.
        pub sentinel_login: Login,
        /// The database. A cluster has only 0.
        pub database: u32,
        /// The prefix of every key. Default `tg`.
        pub prefix: String = "tg".to_owned(),
        /// TLS settings, for servers and sentinels; none connects without TLS.
        pub tls: Option<ClientTls>,
        /// Connections to each server. Default 1: concurrent calls share pipelines, so one connection carries many.
        pub connections: usize = 1,
        /// The deadline of a call that does not set its own. Default 250 ms: a server in another region of the same
        /// continent answers in time.
        pub deadline: Duration = Duration::from_millis(250),
        /// How long opening a connection may take, from the first packet to the loaded script, and how long an open one may
        /// be silent while calls are in flight, unless the deadline is longer. Default 1 s.
        pub connect_timeout: Duration = Duration::from_secs(1),
        /// The lease of slots that this process holds and renews, unless their time to live is shorter: how long they stay
        /// taken after it was killed. Default 10 s.
        pub slot_lease: Duration = Duration::from_secs(10),
        /// How many calls may wait in this process. Default 16,384: at 50,000 a second more than a deadline of 250 ms, and a
        /// few megabytes.
        pub queue: usize = 16_384,
    }
}

/// The servers and their topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One server.
    Single(RedisAddress),
    /// The master that these sentinels name.
    Sentinels {
        /// The sentinels; any that replies will do.
        sentinels: Vec<RedisAddress>,
        /// The master's name.
        master: String,
    },
    /// A cluster; the other nodes are read from these.
    Cluster(Vec<RedisAddress>),
}

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedisAddress {
    /// A host name or IP address, and a port.
    Tcp {
        /// The host, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// Why settings are invalid. Never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisSettingsError(pub(crate) String);

pub(crate) type SettingsResult<T> = Result<T, RedisSettingsError>;

impl RedisSettingsError {
    /// An error with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        RedisSettingsError(reason.into())
    }
}

impl RedisSettings {
    /// Settings for these servers, with defaults for all other fields.
    pub fn new(servers: RedisServers) -> Self {
        RedisSettings { servers, ..RedisSettings::default() }
    }

    /// How long a connection may be silent while calls are in flight before it counts as dead. Never shorter than the
    /// deadline: until then the server may answer in time.
    pub fn silence_max(&self) -> Duration {
        self.connect_timeout.max(self.deadline)
    }

    /// Parses a URL. Special characters in users and passwords are written as `%XX`.
    ///
    /// | URL | Meaning |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | one server |
    /// | `redis+unix:///path`, `unix:///path` | one server, over a Unix socket |
    /// | `redis-sentinel://[user:password@]host[:port],host…/master[/database]` | the master that the sentinels name |
    /// | `redis-cluster://[user:password@]host[:port],host…` | a cluster; any of its nodes will do |
    /// | `rediss://`, `rediss-sentinel://`, `rediss-cluster://` | the same with TLS |
    ///
    /// Options follow as `?name=value&…`:
    ///
    /// | Option | Meaning |
    /// |---|---|
    /// | `user`, `password`, `password_file` | the login; a file is read again when it changes |
    /// | `sentinel_user`, `sentinel_password`, `sentinel_password_file` | the same for sentinels |
    /// | `db` | the database |
    /// | `prefix` | the prefix of every key |
    /// | `roots`, `certificate`, `key` | PEM files for TLS |
    /// | `name_check` | `on`, or `off` to accept certificates for other names |
    /// | `connections` | connections to each server |
    /// | `deadline`, `connect_timeout` | as `250ms`, `1s` |
    /// | `slot_lease` | the lease of slots that this process renews, as `10s` |
    /// | `queue` | how many calls may wait |
    ///
    /// # Errors
    /// When the URL is invalid; the error says what would be valid.
    pub fn parse(url: &str) -> Result<Self, RedisSettingsError> {
        let settings = url::read(url)?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks all fields.
    ///
    /// # Errors
    /// With the first invalid field.
    pub fn check(&self) -> Result<(), RedisSettingsError> {
        let wrong = |words: &str| Err(RedisSettingsError(words.to_owned()));
        let (addresses, cluster) = match &self.servers {
            RedisServers::Single(address) => (std::slice::from_ref(address), false),
            RedisServers::Sentinels { sentinels, .. } => (sentinels.as_slice(), false),
            RedisServers::Cluster(nodes) => (nodes.as_slice(), true),
        };
        if addresses.is_empty() {
            return wrong("no server is named");
        }
        if matches!(&self.servers, RedisServers::Sentinels { master, .. } if master.is_empty()) {
            return wrong("sentinels need the master's name: redis-sentinel://host1,host2/master");
        }
        if cluster && self.database != 0 {
            return wrong("a cluster has no databases but 0");
        }
        if self.prefix.len() > PREFIX_BYTES_MAX || self.prefix.contains(['{', '}']) {
            return wrong("a prefix has at most 64 bytes and no braces: braces choose the slot");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("connections go from 1 to 64");
        }
        if self.deadline.is_zero() || self.connect_timeout.is_zero() || self.queue == 0 {
            return wrong("deadline, connect_timeout and queue must be more than nothing");
        }
        if self.deadline > WAIT_MAX || self.connect_timeout > WAIT_MAX || self.queue > QUEUE_MAX {
            return wrong("deadline and connect_timeout are at most 1h, queue 1000000");
        }
        if !(SLOT_LEASE_MIN..=WAIT_MAX).contains(&self.slot_lease) {
            return wrong("slot_lease goes from 300ms to 1h");
        }
        let identity = self.tls.as_ref().and_then(|tls| tls.identity.as_ref());
        if identity
            .is_some_and(|(one, other)| [one, other].iter().any(|path| path.as_os_str().is_empty()))
        {
            return wrong("certificate and key come together");
        }
        if self.login.lacks_password() || self.sentinel_login.lacks_password() {
            return wrong("a user needs a password or a password_file");
        }
        Ok(())
    }
}

impl RedisAddress {
    /// This host and port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        RedisAddress::Tcp { host: host.into(), port }
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            RedisAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            RedisAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests;
