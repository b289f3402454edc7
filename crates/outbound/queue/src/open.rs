//! Opens a store by its URL.

use std::sync::Arc;

use crate::error::QueueError;
use crate::queue::QueueStore;

/// Opens the store that a URL names.
///
/// | URL | Store | Feature |
/// |---|---|---|
/// | `sqlite:/var/lib/tidegate` | SQLite in a data directory | `sqlite` |
/// | `sqlite::memory:` | SQLite in memory | `sqlite` |
/// | `postgres://user@host/database?schema=tidegate` | PostgreSQL, without TLS | `postgres` |
/// | `redis://host:6379?prefix=tidegate`, and the other schemes of Redis | Redis Streams | `redis` |
///
/// # Errors
/// When no store has this scheme, this build lacks its feature, or it cannot be opened.
pub async fn open_store(url: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    let url = url.trim();
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "sqlite" => open_sqlite(url),
        "postgres" | "postgresql" => open_postgres(url).await,
        _ if scheme.contains("redis") || scheme.starts_with("valkey") => open_redis(url).await,
        _ => Err(invalid(
            "a queue has a URL such as sqlite:/var/lib/tidegate, postgres://user@host/database or redis://host:6379",
        )),
    }
}

fn invalid(text: &str) -> QueueError {
    QueueError::InvalidSettings(text.to_owned())
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "redis")))]
fn lacks(feature: &str) -> QueueError {
    invalid(&format!("this build has no queue of that kind: the feature `{feature}` is off"))
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    use crate::sqlite::SqliteStore;
    let path = url.strip_prefix("sqlite:").unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    Ok(match path {
        "" => return Err(invalid("sqlite: names no directory; write sqlite:/var/lib/tidegate")),
        ":memory:" => Arc::new(SqliteStore::in_memory(Arc::new(crate::clock::WallClock::new()))?),
        path => Arc::new(SqliteStore::open(path.as_ref())?),
    })
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    Err(lacks("sqlite"))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    use crate::postgres::{PostgresSettings, PostgresStore};
    let mut settings = PostgresSettings::default();
    let (url, schema) = take_option(url, "schema");
    settings.schema = schema.unwrap_or(settings.schema);
    Ok(Arc::new(PostgresStore::connect(&url, settings).await?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    Err(lacks("postgres"))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    use crate::redis::{RedisQueueSettings, RedisStore};
    let servers = tidegate_redis_link::RedisSettings::parse(url);
    let servers = servers.map_err(|error| QueueError::InvalidSettings(error.to_string()))?;
    Ok(Arc::new(RedisStore::connect(RedisQueueSettings::new(servers)).await?))
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str) -> Result<Arc<dyn QueueStore>, QueueError> {
    Err(lacks("redis"))
}

/// Takes an option out of the query of a URL whose client does not know it.
#[cfg(feature = "postgres")]
fn take_option(url: &str, name: &str) -> (String, Option<String>) {
    let (rest, query) = url.split_once('?').unwrap_or((url, ""));
    let mut value = None;
    let mut kept = Vec::new();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some((own, text)) if own == name => value = Some(text.to_owned()),
            _ => kept.push(option),
        }
    }
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    (format!("{rest}{query}"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn an_option_is_taken_out_of_the_query() {
        let take = |url| take_option(url, "schema");
        assert_eq!(take("postgres://h/d"), ("postgres://h/d".to_owned(), None));
        assert_eq!(
            take("postgres://h/d?schema=s"),
            ("postgres://h/d".to_owned(), Some("s".to_owned()))
        );
        let (url, schema) = take("postgres://h/d?a=1&schema=s&b=2");
        assert_eq!((url.as_str(), schema.as_deref()), ("postgres://h/d?a=1&b=2", Some("s")));
    }

    #[tokio::test]
    async fn urls_without_a_store_are_refused() {
        for url in
            ["", "orders", "kafka://host", "sqs://queue", "http://host", "sqlite:", "sqlite://"]
        {
            let refused = open_store(url).await.err();
            assert!(matches!(refused, Some(QueueError::InvalidSettings(_))), "{url}: {refused:?}");
        }
        #[cfg(not(feature = "redis"))]
        assert!(
            open_store("redis://h")
                .await
                .err()
                .is_some_and(|error| error.to_string().contains("`redis` is off"))
        );
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_data_directory_and_memory_are_opened() {
        let files = tempfile::tempdir().expect("a directory");
        for path in [format!("{}/data", files.path().display()), ":memory:".to_owned()] {
            let store = open_store(&format!("sqlite:{path}")).await.expect(&path);
            store.open_queue("orders", crate::QueueSettings::default()).await.expect("a queue");
        }
        assert!(files.path().join("data/queue.db").exists());
    }
}
