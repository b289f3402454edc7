//! One call of the script, and its reply.

use smallvec::SmallVec;

/// A key in Redis.
pub type RedisKey = SmallVec<[u8; 32]>;

/// The argument that the script decodes for one call.
pub type ScriptBody = SmallVec<[u8; 96]>;

/// One call of the script, with the keys that it touches.
#[derive(Clone, Debug)]
pub struct ScriptCall {
    /// Below 4096. The keys of calls with equal tags lie in one slot of a cluster, so they may share an `EVALSHA`.
    pub tag: u16,
    /// The keys, in the order in which the body refers to them.
    pub keys: SmallVec<[RedisKey; 2]>,
    /// The script's argument. The script finds the number of keys in it.
    pub body: ScriptBody,
}

/// The script's reply to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptReply {
    /// The server's clock when the script ran, in microseconds since the epoch.
    pub server_micros: u64,
    /// The string that the script returned for this call.
    pub body: Vec<u8>,
}
