//! Leases in a Redis or Valkey: one string for each target, replaced by a script that compares it first.

use std::time::Duration;

use tidegate_redis_link::{BatchingClient, Cmd, RedisSettings, RedisSettingsError, Value, cmd};

use super::{CapacityStore, CapacityStoreError, StoredDocument};

/// Reads the value with the server's clock, so that leases end by one clock.
const READ: &str = "local time = redis.call('TIME')
return {redis.call('GET', KEYS[1]), time[1], time[2]}";

/// An absent value compares as the empty string; a document is never empty.
const REPLACE: &str = "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1";

/// Keeps documents in a Redis that all members reach.
#[derive(Debug)]
pub struct RedisCapacityStore {
    client: BatchingClient,
    prefix: String,
    deadline: Duration,
}

impl RedisCapacityStore {
    /// How long a read or a write may take: a heartbeat is not on the path of a request.
    const DEADLINE: Duration = Duration::from_secs(1);

    /// Connects to the servers of these settings, and keeps trying while it cannot.
    ///
    /// # Errors
    /// When the settings are invalid, or a file that they name cannot be read.
    pub fn connect(settings: RedisSettings) -> Result<Self, RedisSettingsError> {
        let prefix = settings.prefix.clone();
        let client = BatchingClient::start(settings, "return {0, 0}")?;
        Ok(RedisCapacityStore { client, prefix, deadline: Self::DEADLINE })
    }

    /// Runs a script on the key of one target.
    async fn run(
        &self,
        script: &str,
        target: &str,
        arguments: &[&[u8]],
    ) -> Result<Value, CapacityStoreError> {
        let mut command = cmd("EVAL");
        command.arg(script).arg(1).arg(format!("{}:capacity:{target}", self.prefix));
        let command: Cmd = arguments.iter().fold(command, |mut command, argument| {
            command.arg(*argument);
            command
        });
        let replies = self.client.commands(vec![command], self.deadline).await;
        let mut replies = replies.map_err(CapacityStoreError::new)?;
        replies.pop().ok_or_else(|| CapacityStoreError::new("no reply"))
    }
}

impl CapacityStore for RedisCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let Value::Array(parts) = self.run(READ, target, &[]).await? else {
            return Err(CapacityStoreError::new("the reply to a read is no array"));
        };
        let [value, seconds, micros] = parts.as_slice() else {
            return Err(CapacityStoreError::new("the reply to a read has not three parts"));
        };
        let bytes = match value {
            Value::BulkString(bytes) => Some(bytes.clone()),
            Value::Nil | Value::Boolean(false) => None,
            _ => return Err(CapacityStoreError::new("the lease document is no string")),
        };
        let time_ms =
            number(seconds)?.saturating_mul(1_000).saturating_add(number(micros)? / 1_000);
        Ok(StoredDocument { bytes, version: Vec::new(), time_ms: Some(time_ms) })
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        let old = read.bytes.as_deref().unwrap_or_default();
        match self.run(REPLACE, target, &[old, &bytes]).await? {
            Value::Int(replaced) => Ok(replaced == 1),
            _ => Err(CapacityStoreError::new("the reply to a replacement is no number")),
        }
    }

    fn outlived_by_members(&self) -> bool {
        true
    }
}

fn number(value: &Value) -> Result<u64, CapacityStoreError> {
    let parsed = match value {
        Value::BulkString(bytes) => {
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok())
        }
        _ => None,
    };
    parsed.ok_or_else(|| CapacityStoreError::new("the server's time is no number"))
}
