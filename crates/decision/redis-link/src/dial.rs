//! Opens a connection: socket, TLS, login, database.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::{self, FailureKind, LinkError, unavailable};
use crate::settings::{Login, RedisAddress, RedisSettings, RedisSettingsError, Secret};

/// Opens connections to any address, with the login and TLS of the settings.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) settings: Arc<RedisSettings>,
    tls: Option<TlsConnector>,
}

/// An open connection. Pipelines can be sent while others are in flight.
pub(crate) struct OpenConnection {
    connection: MultiplexedConnection,
    /// The task that reads and writes the socket; aborted on drop.
    driver: AbortHandle,
    /// Closed when that task ends.
    closed: oneshot::Receiver<()>,
    /// The password of the last login.
    password: Option<Secret>,
    /// How long the server took to answer when the connection was opened.
    pub(crate) round_trip: Duration,
}

/// The kind of process at the other end; it selects the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Server,
    Sentinel,
}

impl Dialer {
    pub(crate) fn new(settings: Arc<RedisSettings>) -> Result<Self, RedisSettingsError> {
        settings.check()?;
        let tls = settings.tls.as_ref().map(|tls| tls.connector(&[])).transpose();
        let tls = tls.map_err(|error| RedisSettingsError(error.to_string()))?;
        Ok(Dialer { settings, tls })
    }

    /// Connects within `connect_timeout`.
    pub(crate) async fn dial(
        &self,
        address: &RedisAddress,
        peer: Peer,
    ) -> Result<OpenConnection, LinkError> {
        let dialed = timeout(self.settings.connect_timeout, self.connect(address, peer)).await;
        let dialed = dialed.unwrap_or_else(|_| Err(silent(self.settings.connect_timeout)));
        dialed.map_err(|error| error::at(address, &error))
    }

    async fn connect(
        &self,
        address: &RedisAddress,
        peer: Peer,
    ) -> Result<OpenConnection, LinkError> {
        let (info, password) = self.connection_info(peer).await?;
        let mut connection = self.open_socket(address, &info).await?;
        connection.password = password;
        Ok(connection)
    }

    async fn open_socket(
        &self,
        address: &RedisAddress,
        info: &RedisConnectionInfo,
    ) -> Result<OpenConnection, LinkError> {
        match address {
            RedisAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                handshake(info, stream.map_err(|error| error::of_system(&error))?).await
            }
            RedisAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| error::of_system(&error))?;
                // The client batches already; Nagle's algorithm would only add delay.
                stream.set_nodelay(true).map_err(|error| error::of_system(&error))?;
                let Some(tls) = &self.tls else { return handshake(info, stream).await };
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    unavailable(FailureKind::Other, "its name is not valid in a certificate")
                })?;
                let stream = tls.connect(name, stream).await;
                let stream = stream
                    .map_err(|error| unavailable(FailureKind::Protocol, format!("TLS: {error}")))?;
                handshake(info, stream).await
            }
        }
    }

    /// Login and database. Reads the password each time, so that a changed one is used.
    async fn connection_info(
        &self,
        peer: Peer,
    ) -> Result<(RedisConnectionInfo, Option<Secret>), LinkError> {
        let info =
            RedisConnectionInfo::default().set_lib_name("tidegate", env!("CARGO_PKG_VERSION"));
        let (login, info) = match peer {
            Peer::Server => (&self.settings.login, info.set_db(i64::from(self.settings.database))),
            Peer::Sentinel => (&self.settings.sentinel_login, info),
        };
        let Some(password) = read_password(login).await? else { return Ok((info, None)) };
        let info = match &login.user {
            Some(user) => info.set_username(user),
            None => info,
        };
        Ok((info.set_password(password.expose()), Some(password)))
    }
}

/// Reads the password on a blocking thread, so that file I/O does not delay pipelines.
pub(crate) async fn read_password(login: &Login) -> Result<Option<Secret>, LinkError> {
    let login = login.clone();
    let read = tokio::task::spawn_blocking(move || login.password_now()).await;
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| {
        unavailable(FailureKind::Auth, format!("the password file cannot be read: {error}"))
    })
}

async fn handshake<S>(info: &RedisConnectionInfo, stream: S) -> Result<OpenConnection, LinkError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The client enforces the deadline of each call.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let opened = MultiplexedConnection::new_with_config(info, stream, config).await;
    let (connection, driver) = opened.map_err(|error| error::of_connection(&error))?;
    let (alive, closed) = oneshot::channel();
    let driver = async move {
        let _alive: oneshot::Sender<()> = alive;
        driver.await;
    };
    let driver = tokio::spawn(driver).abort_handle();
    let round_trip = Duration::ZERO;
    Ok(OpenConnection { connection, driver, closed, password: None, round_trip })
}

/// The error of a server that accepted the connection and then sent nothing.
pub(crate) fn silent(waited: Duration) -> LinkError {
    unavailable(FailureKind::Timeout, format!("it said nothing for {waited:?}"))
}

impl OpenConnection {
    /// Sends a pipeline immediately. The replies come in its order; a server error is one of the values.
    pub(crate) fn send(
        &self,
        pipeline: Pipeline,
    ) -> impl Future<Output = Result<Vec<Value>, RedisError>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            let count = pipeline.len();
            connection.req_packed_commands(&pipeline, 0, count).await
        }
    }

    /// Waits until either side closes the connection. Only the first future waits; later ones are ready.
    pub(crate) fn closed(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let (_, already_closed) = oneshot::channel();
        let closed = std::mem::replace(&mut self.closed, already_closed);
        async move {
            // Nothing is ever sent: the sender is dropped with the driver.
            let _ = closed.await;
        }
    }

    /// Sends `AUTH` if the password is not that of the last login. The reply is ignored: a server that rejects it
    /// leaves the connection as it is, and one that hangs times out.
    pub(crate) fn log_in(&mut self, user: Option<&str>, password: &Secret) {
        if self.password.as_ref() == Some(password) {
            return;
        }
        self.password = Some(password.clone());
        let mut command = redis::cmd("AUTH");
        if let Some(user) = user {
            command.arg(user);
        }
        command.arg(password.expose());
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command);
        tokio::spawn(self.send(pipeline));
    }

    /// Runs one command. Fails if there is no reply within `wait`, or if the reply is an error.
    pub(crate) async fn run(
        &self,
        command: redis::Cmd,
        wait: Duration,
    ) -> Result<Value, LinkError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command);
        let Ok(replies) = timeout(wait, self.send(pipeline)).await else {
            return Err(silent(wait));
        };
        match replies.map_err(|error| error::of_connection(&error))?.pop() {
            Some(Value::ServerError(error)) => Err(error::of_server(&error)),
            Some(value) => Ok(value),
            None => Err(error::not_redis()),
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
