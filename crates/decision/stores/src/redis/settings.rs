//! Where the shared store is, and how it is asked.
//!
//! One URL says everything, in the forms that users of Redis know, so that one
//! flag or one line of a file is enough. The fields are there for those who
//! have the parts and no URL. Opens nothing and reads no file: a password
//! file is read when a connection is made, and again when it changes.

mod secret;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use secret::{Login, Password, Secret};

/// How long a check may wait for the server unless said otherwise.
const DEADLINE: Duration = Duration::from_millis(10);

/// How long a connection may take to be made, from the first packet to the
/// loaded script; also how long one may be silent before it is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// For how long slots are taken that this process renews: so late, and no later,
/// they come back when it is killed.
const SLOT_LEASE: Duration = Duration::from_secs(10);

/// Slots are looked after ten times a second, and are due at a third of their lease.
const SLOT_LEASE_MIN: Duration = Duration::from_millis(300);

/// How many checks may wait in this process. At 100,000 a second that is more
/// than ten deadlines of 10 ms hold, and it costs a few megabytes.
const QUEUE: usize = 16_384;

/// More than this many connections to a server help nobody: it answers on one thread.
const CONNECTIONS_MAX: usize = 64;

/// Longer than anybody waits, and far from where clocks overflow.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// A million checks that wait are a few hundred megabytes, and an outage.
const QUEUE_MAX: usize = 1_000_000;

/// Key prefixes are in every key, so they cost memory each time.
const PREFIX_BYTES_MAX: usize = 64;

/// Where the shared store is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// The servers.
    pub servers: RedisServers,
    /// Who we are to the servers.
    pub login: Login,
    /// Who we are to sentinels. They do not share the servers' users.
    pub sentinel_login: Login,
    /// The database. A cluster has only 0.
    pub database: u32,
    /// What every key begins with. Default `tg`.
    pub prefix: String,
    /// Speak TLS, and how; to sentinels too.
    pub tls: Option<RedisTls>,
    /// Connections to each server. Default 1: checks share calls, so one carries many.
    pub connections: usize,
    /// How long a check may wait unless its batch says otherwise. Default 10 ms.
    pub deadline: Duration,
    /// How long a connection may take to be made, or be silent. Default 1 s.
    pub connect_timeout: Duration,
    /// For how long slots of concurrency limits are taken that this process
    /// holds and renews, unless their time to live is shorter. Default 10 s.
    pub slot_lease: Duration,
    /// How many checks may wait in this process. Default 16,384.
    pub queue: usize,
}

/// Which servers, and how they stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One server.
    Single(RedisAddress),
    /// The master that these sentinels name.
    Sentinels {
        /// Where sentinels are; any one that answers will do.
        sentinels: Vec<RedisAddress>,
        /// What they call the master.
        master: String,
    },
    /// A cluster, of which these nodes tell the rest.
    Cluster(Vec<RedisAddress>),
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedisAddress {
    /// A name or an address, and a port.
    Tcp {
        /// The name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Authorities to believe, as PEM; those of the system when not given.
    pub roots: Option<PathBuf>,
    /// Our own certificate and its key, as PEM, for servers that ask.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the certificate has to carry the server's name.
    pub names: NameCheck,
}

/// Whether a certificate has to carry the name that was connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameCheck {
    /// It has to.
    #[default]
    Strict,
    /// Any name will do, if an authority that is believed signed the certificate.
    Any,
}

/// Why settings cannot be used. Never tells a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisSettingsError(pub(crate) String);

impl RedisSettings {
    /// These servers, with defaults for everything else.
    pub fn new(servers: RedisServers) -> Self {
        RedisSettings {
            servers,
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            prefix: "tg".to_owned(),
            tls: None,
            connections: 1,
            deadline: DEADLINE,
            connect_timeout: CONNECT_TIMEOUT,
            slot_lease: SLOT_LEASE,
            queue: QUEUE,
        }
    }

    /// Reads a URL. Special characters in users and passwords are written as `%XX`.
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
    /// | `user`, `password`, `password_file` | who we are; a file is read again when it changes |
    /// | `sentinel_user`, `sentinel_password`, `sentinel_password_file` | the same for sentinels |
    /// | `db` | the database |
    /// | `prefix` | what every key begins with |
    /// | `roots`, `certificate`, `key` | PEM files for TLS |
    /// | `name_check` | `on`, or `off` to accept certificates for other names |
    /// | `connections` | connections to each server |
    /// | `deadline`, `connect_timeout` | as `10ms`, `1s` |
    /// | `slot_lease` | for how long slots are taken that this process renews, as `10s` |
    /// | `queue` | how many checks may wait |
    ///
    /// # Errors
    /// When the URL says something that makes no sense; tells what would.
    pub fn parse(url: &str) -> Result<Self, RedisSettingsError> {
        let settings = url::read(url)?;
        settings.check()?;
        Ok(settings)
    }

    /// Finds what cannot be used.
    ///
    /// # Errors
    /// With the first thing that makes no sense.
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
            return wrong("deadline, connect_timeout and queue are more than nothing");
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
        if self.login.is_half() || self.sentinel_login.is_half() {
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
