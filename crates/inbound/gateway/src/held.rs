//! Requests that are kept to be processed later.
//!
//! A limit with `when_over: queue` does not refuse: the request is stored, its sender is told
//! where to ask for its state, and it goes on at the limit's pace. [`HeldRequests`] is where they
//! are kept; [`HeldInMemory`] loses them with the process, which its sender sees as a state that
//! nobody knows.

mod memory;

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;

pub use memory::HeldInMemory;

/// Where the state of held requests is told; the identity follows.
pub(super) const HELD_PATH: &str = "/.tidegate/held/";

/// What a held request is called. It cannot be guessed, so whoever has it may know the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeldId(u128);

impl HeldId {
    /// An identity of these bits, which should be random.
    pub const fn new(bits: u128) -> Self {
        HeldId(bits)
    }

    /// Reads an identity back; `None` when it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(HeldId)
    }
}

impl fmt::Display for HeldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A request that is kept whole.
#[derive(Debug)]
pub struct HeldRequest {
    /// Its head, as it came.
    pub head: Parts,
    /// Its body.
    pub body: Bytes,
}

impl HeldRequest {
    /// What it takes to keep it.
    pub fn bytes(&self) -> usize {
        let fields = self.head.headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        let target = self.head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        fields.fold(self.body.len().saturating_add(target), usize::saturating_add)
    }
}

/// What has become of a held request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// It waits for its turn, or is on its way.
    Waiting,
    /// It was processed, and the upstream answered so.
    Done(StatusCode),
    /// It waited for too long and was not processed.
    Expired,
}

/// There is no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for one more request")]
pub struct NoRoom;

/// Where requests are kept.
pub trait HeldRequests: Send + Sync + fmt::Debug {
    /// Keeps a request.
    ///
    /// # Errors
    /// When there is no room.
    fn hold(&self, request: HeldRequest) -> Result<HeldId, NoRoom>;

    /// Takes a request out to process it; its state stays. `None` when it is not there.
    fn take(&self, id: HeldId) -> Option<HeldRequest>;

    /// Takes note of what became of a request.
    fn settle(&self, id: HeldId, state: HeldState);

    /// What has become of a request; `None` when nobody knows.
    fn state(&self, id: HeldId) -> Option<HeldState>;
}
