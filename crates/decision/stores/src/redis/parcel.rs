//! What goes to the server and what comes back, before and after it is words of a protocol.

use smallvec::SmallVec;
use tidegate_algorithms::Timestamp;

/// A key as the server knows it.
pub(crate) type RedisKey = SmallVec<[u8; 32]>;

/// One question for the script, with the keys that it touches.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// Below 4096; parcels with equal tags have their keys in one slot of a cluster.
    pub(crate) tag: u16,
    /// The keys, in the order in which the body speaks of them.
    pub(crate) keys: SmallVec<[RedisKey; 2]>,
    /// What the script reads. The first byte is the number of keys.
    pub(crate) body: SmallVec<[u8; 96]>,
}

/// The script's answer to a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The server's clock when the script ran.
    pub(crate) now: Timestamp,
    /// What the script wrote.
    pub(crate) body: Vec<u8>,
}
