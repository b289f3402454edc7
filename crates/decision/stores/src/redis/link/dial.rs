//! Makes a connection: socket, TLS, login, database, script.

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

use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::{self, failure};
use crate::redis::link::tls;
use crate::redis::settings::{Login, RedisAddress, RedisSettings, RedisSettingsError, Secret};

/// Knows everything about connecting but where to.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) settings: Arc<RedisSettings>,
    tls: Option<TlsConnector>,
}

/// A connection on which commands can be sent while others wait for their answers.
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    // The task that reads and writes the socket; it ends with the wire.
    driver: AbortHandle,
    /// Closed when that task ends.
    ended: oneshot::Receiver<()>,
    /// What the server was last told.
    pub(crate) password: Option<Secret>,
}

/// On whose behalf a server is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Server,
    Sentinel,
}

impl Dialer {
    pub(crate) fn new(settings: Arc<RedisSettings>) -> Result<Self, RedisSettingsError> {
        settings.check()?;
        let tls = settings.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Dialer { settings, tls })
    }

    /// Connects, within the time that the settings give.
    pub(crate) async fn dial(
        &self,
        address: &RedisAddress,
        peer: Peer,
    ) -> Result<Wire, StoreError> {
        let made = timeout(self.settings.connect_timeout, self.connect(address, peer)).await;
        let made = made.unwrap_or_else(|_| Err(silent(self.settings.connect_timeout)));
        made.map_err(|error| failure::at(address, &error))
    }

    async fn connect(&self, address: &RedisAddress, peer: Peer) -> Result<Wire, StoreError> {
        let (info, password) = self.introduction(peer).await?;
        let mut wire = self.reach(address, &info).await?;
        wire.password = password;
        Ok(wire)
    }

    async fn reach(
        &self,
        address: &RedisAddress,
        info: &RedisConnectionInfo,
    ) -> Result<Wire, StoreError> {
        match address {
            RedisAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                greet(info, stream.map_err(|error| failure::of_system(&error))?).await
            }
            RedisAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| failure::of_system(&error))?;
                // Checks are gathered on purpose here; the system need not wait for more.
                stream.set_nodelay(true).map_err(|error| failure::of_system(&error))?;
                let Some(tls) = &self.tls else { return greet(info, stream).await };
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    failure(FailureKind::Other, "its name cannot be in a certificate")
                })?;
                let stream = tls.connect(name, stream).await;
                greet(info, stream.map_err(|error| of_handshake(&error))?).await
            }
        }
    }

    /// Who we are. Reads the password anew, so that a changed one is noticed.
    async fn introduction(
        &self,
        peer: Peer,
    ) -> Result<(RedisConnectionInfo, Option<Secret>), StoreError> {
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

/// The password as it is now; reading a file must not hold up those who send.
pub(crate) async fn read_password(login: &Login) -> Result<Option<Secret>, StoreError> {
    let login = login.clone();
    let read = tokio::task::spawn_blocking(move || login.password_now()).await;
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| {
        failure(FailureKind::Auth, format!("the password file cannot be read: {error}"))
    })
}

async fn greet<S>(info: &RedisConnectionInfo, stream: S) -> Result<Wire, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Deadlines are kept by the courier, for each parcel.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let made = MultiplexedConnection::new_with_config(info, stream, config).await;
    let (connection, driver) = made.map_err(|error| failure::of_connection(&error))?;
    let (ends, ended) = oneshot::channel();
    let driver = async move {
        let _ends: oneshot::Sender<()> = ends;
        driver.await;
    };
    let driver = tokio::spawn(driver).abort_handle();
    Ok(Wire { connection, driver, ended, password: None })
}

fn of_handshake(error: &io::Error) -> StoreError {
    failure(FailureKind::Protocol, format!("TLS: {error}"))
}

/// The failure of a server that took the connection and then said nothing.
pub(crate) fn silent(waited: Duration) -> StoreError {
    failure(FailureKind::Timeout, format!("it said nothing for {waited:?}"))
}

impl Wire {
    /// Sends commands at once; the answers come in their order, errors of the server among them.
    pub(crate) fn send(
        &self,
        commands: Pipeline,
    ) -> impl Future<Output = Result<Vec<Value>, RedisError>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            let count = commands.len();
            connection.req_packed_commands(&commands, 0, count).await
        }
    }

    /// Waits until the connection has ended, from either side. For one who waits.
    pub(crate) fn ended(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let (_, ended_already) = oneshot::channel();
        let ended = std::mem::replace(&mut self.ended, ended_already);
        async move {
            // Nothing is ever sent: the sender goes when the connection does.
            let _ = ended.await;
        }
    }

    /// Tells the server a password that is not the one it was told before. Its
    /// answer does not matter: a server that refuses leaves the connection as
    /// it is, and one that hangs is noticed by its silence.
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
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        tokio::spawn(self.send(commands));
    }

    /// Sends one command and waits this long for its answer. An error of the server is a failure.
    pub(crate) async fn ask(
        &self,
        command: redis::Cmd,
        patience: Duration,
    ) -> Result<Value, StoreError> {
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        let Ok(answers) = timeout(patience, self.send(commands)).await else {
            return Err(silent(patience));
        };
        match answers.map_err(|error| failure::of_connection(&error))?.pop() {
            Some(Value::ServerError(error)) => Err(failure::of_answer(&error)),
            Some(value) => Ok(value),
            None => Err(failure::of_garbage()),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
