//! Opens a lease store by its URL.

#![cfg_attr(
    not(all(feature = "etcd", feature = "s3")),
    allow(dead_code, reason = "only URLs of etcd and S3 have these parts")
)]

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::CapacityStoreError;
use crate::lease_store::LeaseStore;

/// The parts of a URL, not decoded yet.
struct UrlParts<'a> {
    scheme: &'a str,
    /// What follows the scheme.
    rest: &'a str,
    login: Option<(&'a str, &'a str)>,
    hosts: &'a str,
    path: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> UrlParts<'a> {
    fn read(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let body = rest.strip_prefix("//").unwrap_or(rest);
        let (body, query) = body.split_once('?').unwrap_or((body, ""));
        let (authority, path) = body.split_once('/').unwrap_or((body, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login.split_once(':').unwrap_or((login, ""))), hosts),
            None => (None, authority),
        };
        let options = query.split('&').filter(|option| !option.is_empty());
        let options = options.map(|option| option.split_once('=').unwrap_or((option, "")));
        Some(UrlParts { scheme, rest, login, hosts, path, options: options.collect() })
    }

    /// The options that a store knows; another one is an error.
    fn check_options(&self, known: &[&str]) -> Result<(), CapacityStoreError> {
        let unknown = self.options.iter().find(|(name, _)| !known.contains(name));
        unknown.map_or(Ok(()), |(name, _)| {
            Err(CapacityStoreError::new(format!(
                "{}: has no option `{name}`; it has: {}",
                self.scheme,
                known.join(", ")
            )))
        })
    }

    fn option(&self, name: &str) -> Result<Option<String>, CapacityStoreError> {
        let found = self.options.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| decode(value)).transpose()
    }

    fn flag(&self, name: &str) -> Result<bool, CapacityStoreError> {
        match self.option(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(CapacityStoreError::new(format!("{name} is true or false"))),
        }
    }

    fn decoded_login(&self) -> Result<Option<(String, String)>, CapacityStoreError> {
        let decoded = |(name, secret)| Ok((decode(name)?, decode(secret)?));
        self.login.map(decoded).transpose()
    }
}

/// The text without percent signs. The message does not repeat it: it may be a password.
fn decode(text: &str) -> Result<String, CapacityStoreError> {
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| CapacityStoreError::new("a part of the URL is no UTF-8"))
}

impl LeaseStore {
    /// Opens the store that a URL names.
    ///
    /// | URL | Store | Feature |
    /// |---|---|---|
    /// | `memory:` | memory of this process | |
    /// | `sqlite:/var/lib/leases.db` | a file | `sqlite` |
    /// | `redis://host:6379?prefix=tidegate`, and the other schemes of Redis | Redis, Valkey | `redis` |
    /// | `postgres://user@host/database?schema=tidegate` | PostgreSQL, without TLS | `postgres` |
    /// | `etcd://user:password@host:2379,other:2379/prefix/`, `etcds://` with TLS | etcd | `etcd` |
    /// | `s3://bucket/prefix?region=eu-west-1&endpoint=http://host:9000&allow_http=true` | S3 | `s3` |
    ///
    /// S3 takes its keys from the URL (`s3://id:secret@bucket`), the environment or the machine's role.
    ///
    /// # Errors
    /// When no store has this scheme, this build lacks its feature, or the URL cannot be used. No message repeats a
    /// password.
    pub fn open(url: &str) -> Result<Self, CapacityStoreError> {
        let url = url.trim();
        let Some(parts) = UrlParts::read(url) else { return Err(unknown()) };
        match parts.scheme {
            "memory" if parts.rest.is_empty() => {
                Ok(LeaseStore::new(super::MemoryCapacityStore::default()))
            }
            "sqlite" => open_sqlite(&parts),
            "postgres" | "postgresql" => open_postgres(url, &parts),
            "etcd" | "etcds" => open_etcd(&parts),
            "s3" => open_s3(&parts),
            scheme if scheme.contains("redis") || scheme.starts_with("valkey") => open_redis(url),
            _ => Err(unknown()),
        }
    }
}

fn unknown() -> CapacityStoreError {
    CapacityStoreError::new(
        "a lease store has a URL such as memory:, sqlite:/var/lib/leases.db, redis://host:6379, \
         postgres://user@host/database, etcd://host:2379 or s3://bucket/prefix?region=eu-west-1",
    )
}

#[cfg(not(all(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "etcd",
    feature = "s3"
)))]
fn lacks(feature: &str) -> CapacityStoreError {
    CapacityStoreError::new(format!(
        "this build has no lease store of that kind: the feature `{feature}` is off"
    ))
}

#[cfg(feature = "sqlite")]
fn open_sqlite(parts: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    let path = parts.rest.strip_prefix("//").unwrap_or(parts.rest);
    if path.is_empty() || path == ":memory:" {
        let text = "sqlite: names no file; write sqlite:/var/lib/leases.db, or memory:";
        return Err(CapacityStoreError::new(text));
    }
    Ok(LeaseStore::new(super::SqliteCapacityStore::open(path.as_ref())?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    Err(lacks("sqlite"))
}

#[cfg(feature = "redis")]
fn open_redis(url: &str) -> Result<LeaseStore, CapacityStoreError> {
    let settings =
        tidegate_redis_link::RedisSettings::parse(url).map_err(CapacityStoreError::new)?;
    let store = super::RedisCapacityStore::connect(settings).map_err(CapacityStoreError::new)?;
    Ok(LeaseStore::new(store))
}

#[cfg(not(feature = "redis"))]
fn open_redis(_: &str) -> Result<LeaseStore, CapacityStoreError> {
    Err(lacks("redis"))
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, parts: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    use super::PostgresCapacityStore;
    // The client does not know the option and takes the others.
    let schema = parts.option("schema")?;
    let kept = parts.options.iter().filter(|(name, _)| *name != "schema");
    let kept: Vec<String> = kept.map(|(name, value)| format!("{name}={value}")).collect();
    let plain = url.split_once('?').map_or(url, |(plain, _)| plain);
    let plain =
        if kept.is_empty() { plain.to_owned() } else { format!("{plain}?{}", kept.join("&")) };
    let schema = schema.as_deref().unwrap_or(PostgresCapacityStore::SCHEMA_DEFAULT);
    Ok(LeaseStore::new(PostgresCapacityStore::new(&plain, schema)?))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &str, _: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    Err(lacks("postgres"))
}

#[cfg(feature = "etcd")]
fn open_etcd(parts: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    parts.check_options(&[])?;
    let scheme = if parts.scheme == "etcds" { "https" } else { "http" };
    let hosts = parts.hosts.split(',').filter(|host| !host.is_empty());
    let endpoints = hosts.map(|host| format!("{scheme}://{host}")).collect();
    let mut settings = super::EtcdSettings::new(endpoints);
    if !parts.path.is_empty() {
        settings.prefix = decode(parts.path)?;
    }
    settings.login = parts.decoded_login()?;
    Ok(LeaseStore::new(super::EtcdCapacityStore::new(settings)?))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    Err(lacks("etcd"))
}

#[cfg(feature = "s3")]
fn open_s3(parts: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    parts.check_options(&["region", "endpoint", "allow_http"])?;
    if parts.hosts.is_empty() {
        return Err(CapacityStoreError::new("s3: names no bucket; write s3://bucket/prefix"));
    }
    let region = parts.option("region")?.unwrap_or_else(|| "us-east-1".to_owned());
    let mut settings = super::S3Settings::new(parts.hosts, region);
    settings.endpoint = parts.option("endpoint")?;
    settings.allow_http = parts.flag("allow_http")?;
    settings.keys = parts.decoded_login()?;
    if !parts.path.is_empty() {
        settings.prefix = decode(parts.path)?;
    }
    Ok(LeaseStore::new(super::ObjectCapacityStore::s3(settings)?))
}

#[cfg(not(feature = "s3"))]
fn open_s3(_: &UrlParts<'_>) -> Result<LeaseStore, CapacityStoreError> {
    Err(lacks("s3"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_parts_of_a_url_are_read() {
        let parts = UrlParts::read("etcd://user:p%40ss@a:1,b:2/x/y?k=v&flag").unwrap();
        assert_eq!((parts.scheme, parts.hosts, parts.path), ("etcd", "a:1,b:2", "x/y"));
        assert_eq!(parts.decoded_login().unwrap(), Some(("user".to_owned(), "p@ss".to_owned())));
        assert_eq!(parts.options, [("k", "v"), ("flag", "")]);
        assert_eq!(parts.option("k").unwrap().as_deref(), Some("v"));
        let wrong = parts.check_options(&["k"]).unwrap_err().to_string();
        assert!(wrong.contains("no option `flag`") && !wrong.contains("ss@"), "{wrong}");
    }

    #[tokio::test]
    async fn urls_without_a_store_are_refused() {
        for url in ["", "leases", "memory:x", "consul://host", "gs://bucket", "http://host"] {
            let refused = LeaseStore::open(url).unwrap_err().to_string();
            assert!(refused.contains("a lease store has a URL such as"), "{url}: {refused}");
        }
        LeaseStore::open("memory:").unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_opened() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("leases.db");
        let store = LeaseStore::open(&format!("sqlite:{}", path.display())).unwrap();
        assert!(store.document("target").await.unwrap().is_none());
        assert!(path.exists());
        assert!(LeaseStore::open("sqlite:").is_err());
    }

    #[cfg(all(feature = "etcd", feature = "s3", feature = "postgres", feature = "redis"))]
    #[tokio::test]
    async fn stores_of_servers_are_opened_without_a_connection() {
        for url in [
            "etcd://127.0.0.1:1,127.0.0.1:2/prefix/",
            "etcds://user:secret@host:2379",
            "s3://id:secret@bucket/prefix?region=eu-west-1&endpoint=http://127.0.0.1:1&allow_http=true",
            "postgres://tidegate@127.0.0.1:1/db?schema=own&connect_timeout=1",
            "redis://127.0.0.1:1?prefix=own",
        ] {
            LeaseStore::open(url).unwrap();
        }
        for url in
            ["etcd://", "s3://", "s3://b?colour=red", "s3://b?allow_http=maybe", "redis://h?x=1"]
        {
            assert!(LeaseStore::open(url).is_err(), "{url}");
        }
    }
}
