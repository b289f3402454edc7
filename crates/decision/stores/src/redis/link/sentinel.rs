//! Asks sentinels where the master is, and makes sure that it is one.

use redis::{Value, cmd, from_redis_value};

use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::{self, failure};
use crate::redis::link::dial::{Dialer, Peer, Wire};
use crate::redis::settings::RedisAddress;

/// Connects to the master that the first sentinel with an answer names.
///
/// A sentinel that was cut off may name a master that is one no more, so the
/// server is asked for its role, and the next sentinel if it is a replica.
pub(crate) async fn dial_master(
    dialer: &Dialer,
    sentinels: &[RedisAddress],
    master: &str,
) -> Result<Wire, StoreError> {
    let mut last = failure(FailureKind::Refused, "no sentinel is named");
    for sentinel in sentinels {
        match dial_master_of(dialer, sentinel, master).await {
            Ok(wire) => return Ok(wire),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_master_of(
    dialer: &Dialer,
    sentinel: &RedisAddress,
    master: &str,
) -> Result<Wire, StoreError> {
    let address = ask_sentinel(dialer, sentinel, master).await?;
    let wire = dialer.dial(&address, Peer::Server).await?;
    let role = wire.ask(cmd("ROLE"), dialer.settings.connect_timeout).await;
    match role.map_err(|error| failure::at(&address, &error))? {
        Value::Array(parts) if is_master(parts.first()) => Ok(wire),
        _ => Err(failure(
            FailureKind::ReadOnly,
            format!("{address} is no master, though sentinel {sentinel} says so"),
        )),
    }
}

async fn ask_sentinel(
    dialer: &Dialer,
    sentinel: &RedisAddress,
    master: &str,
) -> Result<RedisAddress, StoreError> {
    let wire = dialer.dial(sentinel, Peer::Sentinel).await?;
    let mut command = cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let answer = wire.ask(command, dialer.settings.connect_timeout).await;
    match answer.map_err(|error| failure::at(sentinel, &error))? {
        Value::Nil => Err(failure(
            FailureKind::Other,
            format!("sentinel {sentinel} knows no master called {master:?}"),
        )),
        answer => from_redis_value::<(String, u16)>(answer)
            .map(|(host, port)| RedisAddress::tcp(host, port))
            .map_err(|_| failure::at(sentinel, &failure::of_garbage())),
    }
}

fn is_master(word: Option<&Value>) -> bool {
    match word {
        Some(Value::BulkString(bytes)) => bytes == b"master",
        Some(Value::SimpleString(text)) => text == "master",
        _ => false,
    }
}
