//! How the database is opened, created and migrated.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use tidegate_data_dir::{DataDir, Schema};

use super::session::Session;
use crate::error::PlaneError;

/// Statements a connection keeps prepared.
const PREPARED_MAX: usize = 64;

/// The tables. Written for PostgreSQL; [`for_sqlite`] says what differs. Published entries never change.
const MIGRATIONS: &[&str] = &[VERSION_1];

const VERSION_1: &str = "
CREATE TABLE heads (
    id BIGINT PRIMARY KEY,
    version BIGINT NOT NULL,
    writes BIGINT NOT NULL,
    audit_sequence BIGINT NOT NULL,
    audit_hash BYTEA NOT NULL
);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    kind TEXT NOT NULL,
    collection TEXT NOT NULL,
    name TEXT NOT NULL,
    from_version BIGINT NOT NULL,
    to_version BIGINT,
    body TEXT NOT NULL,
    until_at BIGINT,
    owner TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_at BIGINT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (kind, collection, name, from_version)
);
CREATE INDEX entries_begun ON entries (from_version);
CREATE INDEX entries_ended ON entries (to_version) WHERE to_version IS NOT NULL;
CREATE TABLE totals (
    kind TEXT NOT NULL,
    collection TEXT NOT NULL,
    terms TEXT NOT NULL,
    entries BIGINT NOT NULL,
    PRIMARY KEY (kind, collection, terms)
);
CREATE TABLE versions (
    number BIGINT PRIMARY KEY,
    author TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    why TEXT NOT NULL,
    ticket TEXT NOT NULL,
    changes BIGINT NOT NULL,
    restored BIGINT,
    digest BYTEA NOT NULL
);
CREATE TABLE drafts (
    name TEXT PRIMARY KEY,
    base BIGINT NOT NULL,
    author TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    why TEXT NOT NULL,
    state TEXT NOT NULL,
    changes TEXT NOT NULL,
    notes TEXT NOT NULL
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    roles TEXT NOT NULL,
    owner TEXT NOT NULL,
    expires TEXT NOT NULL,
    made_by TEXT NOT NULL,
    made_at BIGINT NOT NULL
);
CREATE TABLE audit (
    sequence BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    outcome TEXT NOT NULL,
    version BIGINT,
    why TEXT NOT NULL,
    digest BYTEA NOT NULL,
    hash BYTEA NOT NULL
);
CREATE TABLE nodes (id TEXT PRIMARY KEY, reported_at BIGINT NOT NULL, report TEXT NOT NULL);
CREATE TABLE publisher (
    id BIGINT PRIMARY KEY,
    owner TEXT NOT NULL,
    fence BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    published TEXT NOT NULL,
    allowed TEXT NOT NULL
);
INSERT INTO heads VALUES (1, 0, 0, 0, '');
INSERT INTO publisher VALUES (1, '', 0, 0, 1, 0, '', '');
";

/// SQLite compares texts by their bytes, as the other database is told to, and knows integers and bytes by other names.
fn for_sqlite(sql: &str) -> String {
    sql.replace("BIGINT", "INTEGER")
        .replace("BYTEA", "BLOB")
        .replace(");\n", ") STRICT;\n")
        .replace("WHERE to_version IS NOT NULL) STRICT;", "WHERE to_version IS NOT NULL;")
        .replace("(from_version) STRICT;", "(from_version);")
        .replace("0, '') STRICT;", "0, x'');")
        .replace("0, '', '') STRICT;", "0, '', '');")
}

static SQLITE_TEXTS: LazyLock<Vec<String>> =
    LazyLock::new(|| MIGRATIONS.iter().map(|sql| for_sqlite(sql)).collect());
static SQLITE_MIGRATIONS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| SQLITE_TEXTS.iter().map(String::as_str).collect());

/// Makes connections to one database.
#[derive(Debug)]
pub(super) enum Connector {
    Sqlite {
        directory: Arc<DataDir>,
        schema: Schema,
    },
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresConnector>),
}

impl Connector {
    pub(super) fn sqlite(directory: &Path) -> Result<Self, PlaneError> {
        let directory = Arc::new(DataDir::open(directory)?);
        let schema =
            Schema { name: "control", application_id: 0x7467_6370, migrations: &SQLITE_MIGRATIONS };
        Ok(Connector::Sqlite { directory, schema })
    }

    /// A new connection, to a database that has the newest tables.
    pub(super) async fn connect(&self) -> Result<Session, PlaneError> {
        match self {
            Connector::Sqlite { directory, schema } => {
                let connection = directory.open_database(schema)?;
                connection.set_prepared_statement_cache_capacity(PREPARED_MAX);
                let path: PathBuf = directory.database_path(schema);
                // The publisher reads while changes are written; a checkpoint may make it wait.
                connection
                    .busy_timeout(std::time::Duration::from_secs(30))
                    .map_err(|error| tidegate_data_dir::DataDirError::from_sqlite(&path, error))?;
                Ok(Session::Sqlite { connection, path })
            }
            #[cfg(feature = "postgres")]
            Connector::Postgres(connector) => connector.connect().await,
        }
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        match self {
            Connector::Sqlite { directory, schema } => {
                directory.database_path(schema).display().to_string()
            }
            #[cfg(feature = "postgres")]
            Connector::Postgres(connector) => connector.location(),
        }
    }

    /// The data directory, if that is where the database is.
    pub(super) fn directory(&self) -> Option<&Path> {
        match self {
            Connector::Sqlite { directory, .. } => Some(directory.path()),
            #[cfg(feature = "postgres")]
            Connector::Postgres(_) => None,
        }
    }
}

#[cfg(feature = "postgres")]
pub(super) use postgres::PostgresConnector;

#[cfg(feature = "postgres")]
mod postgres {
    use std::collections::HashMap;
    use std::fmt;
    use std::time::Duration;

    use tokio_postgres::{Config, NoTls};

    use super::{MIGRATIONS, PlaneError, Session};

    /// How long a connection may take to be made.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Bytes of a schema's name: PostgreSQL cuts longer ones.
    const SCHEMA_BYTES_MAX: usize = 63;
    /// Migrations of processes that start together run one after the other.
    const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(8246174201)";

    /// Makes connections to a PostgreSQL server.
    pub(crate) struct PostgresConnector {
        config: Config,
        schema: String,
    }

    impl fmt::Debug for PostgresConnector {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("PostgresConnector")
                .field("schema", &self.schema)
                .finish_non_exhaustive()
        }
    }

    impl PostgresConnector {
        pub(crate) fn new(url: &str, schema: &str) -> Result<Self, PlaneError> {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || !schema.chars().all(plain) {
                let what = "a schema has 1 to 63 letters, digits or `_`";
                return Err(PlaneError::invalid("database schema", what));
            }
            // The message of the parser may repeat the password.
            let mut config: Config = url.parse().map_err(|_| {
                PlaneError::invalid(
                    "database URL",
                    "expected postgres://user:password@host/database",
                )
            })?;
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT);
            }
            if config.get_application_name().is_none() {
                config.application_name("tidegate-control");
            }
            Ok(PostgresConnector { config, schema: schema.to_owned() })
        }

        pub(crate) fn location(&self) -> String {
            let database = self.config.get_dbname().unwrap_or("postgres");
            format!("PostgreSQL, database {database}, schema {}", self.schema)
        }

        pub(crate) async fn connect(&self) -> Result<Session, PlaneError> {
            let (client, connection) = self.config.connect(NoTls).await?;
            // It ends with the client; its error reaches the caller of the client too.
            tokio::spawn(connection);
            let schema = &self.schema;
            client
                .batch_execute(&format!(
                    "SET statement_timeout = '60s'; SET lock_timeout = '30s';
                     SET idle_in_transaction_session_timeout = '60s'; SET search_path TO \"{schema}\""
                ))
                .await?;
            self.migrate(&client).await?;
            Ok(Session::Postgres { client, statements: HashMap::new() })
        }

        async fn migrate(&self, client: &tokio_postgres::Client) -> Result<(), PlaneError> {
            client
                .batch_execute(&format!(
                    "BEGIN; {MIGRATION_LOCK}; CREATE SCHEMA IF NOT EXISTS \"{}\";
                     CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY)",
                    self.schema
                ))
                .await?;
            let found =
                client.query_one("SELECT coalesce(max(number), 0) FROM migrations", &[]).await?;
            let found: i64 = found.try_get(0)?;
            let done = usize::try_from(found).unwrap_or(usize::MAX);
            if done > MIGRATIONS.len() {
                let text = format!(
                    "its tables have version {done}, and this version of Tidegate knows up to {}; upgrade Tidegate",
                    MIGRATIONS.len()
                );
                return Err(PlaneError::Unavailable(text));
            }
            for (number, sql) in (1_i64..).zip(MIGRATIONS).skip(done) {
                // Texts are compared by their bytes, so that pages and exports have one order everywhere.
                client.batch_execute(&sql.replace(" TEXT", " TEXT COLLATE \"C\"")).await?;
                client.execute("INSERT INTO migrations VALUES ($1)", &[&number]).await?;
            }
            Ok(client.batch_execute("COMMIT").await?)
        }
    }
}
