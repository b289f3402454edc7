//! One attempt at sending records to their target.
//!
//! A [`Processor`] makes one attempt at each record of a batch and says what came of it. It does not retry, wait for its
//! turn or settle claims: the caller does, because each attempt takes a share of the target's capacity.

mod processor;

pub use processor::{
    Attempt, AttemptOutcome, AttemptResult, KeptResponse, Processor, ProcessorFuture, SlotEpoch,
};
