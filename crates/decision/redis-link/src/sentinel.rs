//! Finds the master through sentinels, and verifies its role.

use redis::{Value, cmd, from_redis_value};

use crate::cluster_slots::text;
use crate::dial::{Dialer, OpenConnection, Peer};
use crate::error::{self, FailureKind, LinkError, unavailable};
use crate::settings::RedisAddress;

/// Connects to the master that the first reachable sentinel names.
///
/// A sentinel behind a network partition may name a former master, so the server's role is checked; if it is a replica,
/// the next sentinel is tried.
pub(crate) async fn dial_master(
    dialer: &Dialer,
    sentinels: &[RedisAddress],
    master: &str,
) -> Result<OpenConnection, LinkError> {
    let mut last = unavailable(FailureKind::Refused, "no sentinel is named");
    for sentinel in sentinels {
        match dial_master_of(dialer, sentinel, master).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_master_of(
    dialer: &Dialer,
    sentinel: &RedisAddress,
    master: &str,
) -> Result<OpenConnection, LinkError> {
    let address = master_address(dialer, sentinel, master).await?;
    let connection = dialer.dial(&address, Peer::Server).await?;
    let role = connection.run(cmd("ROLE"), dialer.settings.connect_timeout).await;
    match role.map_err(|error| error::at(&address, &error))? {
        Value::Array(parts) if parts.first().and_then(text).as_deref() == Some("master") => {
            Ok(connection)
        }
        _ => Err(unavailable(
            FailureKind::ReadOnly,
            format!("{address} is not a master, though sentinel {sentinel} names it as one"),
        )),
    }
}

async fn master_address(
    dialer: &Dialer,
    sentinel: &RedisAddress,
    master: &str,
) -> Result<RedisAddress, LinkError> {
    let connection = dialer.dial(sentinel, Peer::Sentinel).await?;
    let mut command = cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let reply = connection.run(command, dialer.settings.connect_timeout).await;
    match reply.map_err(|error| error::at(sentinel, &error))? {
        Value::Nil => Err(unavailable(
            FailureKind::Other,
            format!("sentinel {sentinel} knows no master named {master:?}"),
        )),
        reply => from_redis_value::<(String, u16)>(reply)
            .map(|(host, port)| RedisAddress::tcp(host, port))
            .map_err(|_| error::at(sentinel, &error::not_redis())),
    }
}
