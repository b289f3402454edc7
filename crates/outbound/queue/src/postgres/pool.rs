//! A small pool of connections, and the failures of the server.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket, Statement};

use crate::error::QueueError;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take for a statement, and to wait for a lock. A dead server ends the connection earlier.
const TIMEOUTS: &str = "SET statement_timeout = '60s'; SET lock_timeout = '30s'; \
                        SET idle_in_transaction_session_timeout = '60s'";

type ConnectFuture = Pin<Box<dyn Future<Output = Result<Client, tokio_postgres::Error>> + Send>>;

/// Connections of this process to one server.
pub(super) struct Pool {
    connect: Box<dyn Fn() -> ConnectFuture + Send + Sync>,
    setup: String,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// A connection with its prepared statements.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) statements: HashMap<&'static str, Statement>,
}

/// A connection in use; it goes back to the pool when this is dropped.
pub(super) struct Session<'a> {
    connection: Option<Connection>,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new<T>(mut config: Config, tls: T, schema: &str, connections_max: usize) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("tidegate");
        }
        let config = Arc::new(config);
        let connect = move || -> ConnectFuture {
            let (config, tls) = (Arc::clone(&config), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                // It ends with the client; its error reaches the caller of the client too.
                tokio::spawn(connection);
                Ok(client)
            })
        };
        Pool {
            connect: Box::new(connect),
            setup: format!("SET search_path TO \"{schema}\"; {TIMEOUTS}"),
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(connections_max),
        }
    }

    /// A connection for one operation: an idle one, or a new one.
    pub(super) async fn session(&self) -> Result<Session<'_>, Failure> {
        let ended = |_| Failure::Final(QueueError::Unavailable("the pool is closed".to_owned()));
        let permit = self.permits.acquire().await.map_err(ended)?;
        let idle = loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.client.is_closed() => {}
                other => break other,
            }
        };
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let client = (self.connect)().await?;
                client.batch_execute(&self.setup).await?;
                Connection { client, statements: HashMap::new() }
            }
        };
        Ok(Session { connection: Some(connection), pool: self, _permit: permit })
    }
}

impl Session<'_> {
    pub(super) fn connection(&mut self) -> Result<&mut Connection, Failure> {
        let ended = || Failure::Final(QueueError::Unavailable("the session has ended".to_owned()));
        self.connection.as_mut().ok_or_else(ended)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !connection.client.is_closed()
        {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another transaction was in the way: try again.
    Conflict(String),
    /// Trying again does not help.
    Final(QueueError),
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        Failure::Final(error)
    }
}

impl From<Failure> for QueueError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Conflict(text) => QueueError::Unavailable(text),
            Failure::Final(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else {
            return Failure::Final(QueueError::Unavailable(format!("PostgreSQL: {error}")));
        };
        let text = format!("PostgreSQL: {}", database.message());
        let code = database.code();
        if *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
        {
            return Failure::Conflict(text);
        }
        Failure::Final(match code.code().get(..2) {
            Some("53") => QueueError::StorageFull(text),
            Some("XX") => QueueError::Damaged(text),
            _ => QueueError::Unavailable(text),
        })
    }
}

/// A value in the database that this program did not write.
pub(super) fn damaged(what: &str) -> Failure {
    Failure::Final(QueueError::Damaged(format!("PostgreSQL: {what} is out of range")))
}
