//! The roster of a fleet: a description of each node, for the pages of operators.
//!
//! A node writes its own description on a beat, under a lease; whoever looks reads them all. Nothing else depends on the
//! roster: without it, requests are decided as before.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::Timestamp;
use tidegate_redis_link::{
    BatchingClient, LinkError, NumberReader, RedisKey, RedisSettings, RedisSettingsError,
    ScriptBody, ScriptCall, ScriptReply, put_number as put,
};

use crate::{MICRO, check_name, malformed};

const ROSTER: &str = include_str!("roster.lua");

/// The longest description of a node, in bytes: a reader gets those of all nodes at once.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;
/// The lease of a description: some missed beats.
const LEASE: Duration = Duration::from_secs(10);
/// How often a node should write its description.
pub const ROSTER_BEAT: Duration = Duration::from_secs(2);
/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(1);

/// The bits of a call's action.
const WRITE: u64 = 1;
const READ: u64 = 2;
const LEAVE: u64 = 0;

/// The roster of one fleet, for one of its nodes.
#[derive(Debug)]
pub struct NodeRoster {
    client: BatchingClient,
    key: RedisKey,
    node: u64,
}

impl NodeRoster {
    /// The roster of the fleet with this name. `node` should be new after each start. Connects in the background, and
    /// keeps trying while it cannot.
    ///
    /// # Errors
    /// When the settings are invalid, a file that they name cannot be read, or the name is longer than 128 bytes.
    pub fn new(servers: RedisSettings, name: &str, node: u64) -> Result<Self, RedisSettingsError> {
        servers.check()?;
        check_name(name)?;
        let key = RedisKey::from_slice(format!("{}:nodes:{name}", servers.prefix).as_bytes());
        let client = BatchingClient::start(RedisSettings { connections: 1, ..servers }, ROSTER)?;
        Ok(NodeRoster { client, key, node })
    }

    /// Writes the description of this node. One that is longer than [`DESCRIPTION_BYTES_MAX`] is cut.
    ///
    /// # Errors
    /// When the server cannot be reached or does not answer in time.
    pub async fn write(&self, description: &[u8]) -> Result<(), LinkError> {
        self.send(WRITE, description).await.map(drop)
    }

    /// The descriptions of all nodes whose lease is not over, this one's included once it was written.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer in time, or has something else at the key.
    pub async fn read(&self) -> Result<Vec<Vec<u8>>, LinkError> {
        let reply = self.send(READ, &[]).await?;
        read_descriptions(&reply).ok_or_else(malformed)
    }

    /// Removes the description of this node.
    ///
    /// # Errors
    /// Like [`NodeRoster::write`].
    pub async fn leave(&self) -> Result<(), LinkError> {
        self.send(LEAVE, &[]).await.map(drop)
    }

    /// Counts leases from this instant, instead of by the server's clock. For tests.
    #[doc(hidden)]
    pub fn set_clock(&self, now: Timestamp) {
        self.client.set_instant((now.as_nanos() / MICRO).to_string().as_bytes());
    }

    async fn send(&self, action: u64, description: &[u8]) -> Result<ScriptReply, LinkError> {
        let description = description.get(..DESCRIPTION_BYTES_MAX).unwrap_or(description);
        let mut body = ScriptBody::new();
        put(&mut body, 1, 1);
        put(&mut body, self.node, 8);
        put(&mut body, action, 1);
        put(&mut body, u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX), 4);
        body.extend_from_slice(description);
        let call = ScriptCall { tag: 0, keys: SmallVec::from_iter([self.key.clone()]), body };
        self.client.send(call, WITHIN).await
    }
}

/// The descriptions of a reply, each behind its length.
fn read_descriptions(reply: &ScriptReply) -> Option<Vec<Vec<u8>>> {
    let rows = reply.body.strip_prefix(b"n")?;
    let mut numbers = NumberReader::new(rows);
    let mut descriptions = Vec::new();
    while !numbers.is_empty() {
        let length = usize::try_from(numbers.number(4)?).ok()?;
        descriptions.push(numbers.bytes(length)?.to_vec());
    }
    Some(descriptions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &[u8]) -> ScriptReply {
        ScriptReply { server_micros: 0, body: body.to_vec() }
    }

    #[test]
    fn descriptions_are_read_behind_their_lengths() {
        let read = |body: &[u8]| read_descriptions(&reply(body));
        assert_eq!(read(b"n"), Some(Vec::new()));
        let two = b"n\0\0\0\x02{}\0\0\0\0";
        assert_eq!(read(two), Some(vec![b"{}".to_vec(), Vec::new()]));
        for malformed in [&b""[..], b"f", b"n\0\0\0", b"n\0\0\0\x03{}", b"n\xff\xff\xff\xff"] {
            assert_eq!(read(malformed), None, "{malformed:?}");
        }
    }
}
