//! Leases in PostgreSQL: one row for each target, replaced if it is unchanged. Leases end by the server's clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Socket};

use super::{CapacityStore, CapacityStoreError, StoredDocument};

/// How long a read or a write may take, with the connection that it may need.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes of a schema's name: PostgreSQL cuts longer ones.
const SCHEMA_BYTES_MAX: usize = 63;
/// Processes that start together create the table one after the other.
const CREATION_LOCK: i64 = 7_311_434_771_225_342_024;

type ConnectFuture = Pin<Box<dyn Future<Output = Result<Client, tokio_postgres::Error>> + Send>>;

/// Keeps documents in a table of a PostgreSQL database that all members reach.
pub struct PostgresCapacityStore {
    connect: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
    schema: String,
    /// The connection; `None` before the first exchange and after one that failed.
    client: Mutex<Option<Client>>,
}

impl fmt::Debug for PostgresCapacityStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCapacityStore")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl PostgresCapacityStore {
    /// The schema of the table unless the operator chooses another.
    pub const SCHEMA_DEFAULT: &'static str = "tidegate";

    /// A store on this server, without TLS. It connects at the first heartbeat, and again after each failure. `url` is a
    /// connection string such as `postgres://user@host/database`.
    ///
    /// # Errors
    /// When the connection string or the schema cannot be used.
    pub fn new(url: &str, schema: &str) -> Result<Self, CapacityStoreError> {
        Self::with_tls(url, schema, NoTls)
    }

    /// A store on this server, with a TLS connector of your choice.
    ///
    /// # Errors
    /// When the connection string or the schema cannot be used.
    pub fn with_tls<T>(url: &str, schema: &str, tls: T) -> Result<Self, CapacityStoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || !schema.chars().all(plain) {
            return Err(CapacityStoreError::new("a schema has 1 to 63 letters, digits or `_`"));
        }
        // The message of the parser may repeat the password.
        let parsed = url.parse::<Config>();
        let mut config =
            parsed.map_err(|_| CapacityStoreError::new("the connection string is not readable"))?;
        if config.get_application_name().is_none() {
            config.application_name("tidegate");
        }
        let connect = move || -> ConnectFuture {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                // It ends with the client; its error reaches the caller of the client too.
                tokio::spawn(connection);
                Ok(client)
            })
        };
        let schema = schema.to_owned();
        Ok(PostgresCapacityStore { connect: Box::new(connect), schema, client: Mutex::new(None) })
    }

    /// Runs an exchange on the connection. After a failure or a timeout the connection is given up: its next reply
    /// could be the one to this exchange.
    async fn run<T>(
        &self,
        exchange: impl AsyncFnOnce(&Client, &str) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, CapacityStoreError> {
        let within = async {
            let mut kept = self.client.lock().await;
            let client = match kept.take().filter(|client| !client.is_closed()) {
                Some(client) => client,
                None => self.open().await?,
            };
            let answer = exchange(&client, &self.schema).await?;
            *kept = Some(client);
            Ok::<T, tokio_postgres::Error>(answer)
        };
        match timeout(DEADLINE, within).await {
            Ok(answer) => answer.map_err(CapacityStoreError::new),
            Err(_) => Err(CapacityStoreError::new("PostgreSQL did not answer in time")),
        }
    }

    async fn open(&self) -> Result<Client, tokio_postgres::Error> {
        let client = (self.connect)().await?;
        let schema = &self.schema;
        let create = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({CREATION_LOCK}); \
             CREATE SCHEMA IF NOT EXISTS \"{schema}\"; \
             CREATE TABLE IF NOT EXISTS \"{schema}\".capacity (target text PRIMARY KEY, document bytea NOT NULL); \
             COMMIT"
        );
        client.batch_execute(&create).await?;
        Ok(client)
    }
}

impl CapacityStore for PostgresCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let row = self.run(async |client, schema| {
            let sql = format!(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
                 (SELECT document FROM \"{schema}\".capacity WHERE target = $1)"
            );
            // Typed, so that it takes one round trip.
            let rows = client.query_typed(&sql, &[(&target, Type::TEXT)]).await?;
            let row = rows.first();
            row.map(|row| Ok((row.try_get::<_, i64>(0)?, row.try_get(1)?))).transpose()
        });
        let no_row = || CapacityStoreError::new("PostgreSQL returned no row");
        let (time_ms, bytes) = row.await?.ok_or_else(no_row)?;
        Ok(StoredDocument { bytes, version: Vec::new(), time_ms: u64::try_from(time_ms).ok() })
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        let changed = self.run(async |client, schema| match &read.bytes {
            None => {
                let sql = format!(
                    "INSERT INTO \"{schema}\".capacity VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
                );
                client.query_typed(&sql, &[(&target, Type::TEXT), (&bytes, Type::BYTEA)]).await
            }
            Some(old) => {
                let sql = format!(
                    "UPDATE \"{schema}\".capacity SET document = $2 WHERE target = $1 AND document = $3 \
                     RETURNING true"
                );
                let values: [(&(dyn ToSql + Sync), Type); 3] =
                    [(&target, Type::TEXT), (&bytes, Type::BYTEA), (old, Type::BYTEA)];
                client.query_typed(&sql, &values).await
            }
        });
        Ok(changed.await?.len() == 1)
    }

    fn outlived_by_members(&self) -> bool {
        true
    }
}
