//! What happens when the body of a response has ended: slots are free again, and the outcome is known.

use std::fmt;

use bytes::Buf;
use http_body::Frame;
use tidegate_engine::{LimiterStage, contain};

use crate::slots::HeldSlots;

/// How the body of a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After its last byte.
    Complete,
    /// With an error of the service or upstream.
    Broken,
    /// Dropped before its end: the client is gone, or a tunnel has closed.
    Dropped,
}

/// Is called when the body of a response has ended.
pub trait OnBodyEnd: Send + Sync {
    /// The status of the response is a server error; its body follows.
    fn server_error(&mut self) {}

    /// The body has ended, after so many bytes.
    fn ended(self: Box<Self>, end: BodyEnd, bytes: u64);
}

/// Part of a body: releases slots and calls [`OnBodyEnd`] once, when the body has ended or is dropped.
#[derive(Default)]
pub struct EndGuard {
    bytes: u64,
    slots: Option<HeldSlots>,
    on_end: Option<Box<dyn OnBodyEnd>>,
}

impl EndGuard {
    /// Releases slots.
    pub const fn of_slots(slots: Option<HeldSlots>) -> Self {
        EndGuard { bytes: 0, slots, on_end: None }
    }

    /// Calls `on_end`.
    pub const fn new(on_end: Box<dyn OnBodyEnd>) -> Self {
        EndGuard { bytes: 0, slots: None, on_end: Some(on_end) }
    }

    /// Notes that the status of the response is a server error.
    pub fn note_server_error(&mut self) {
        if let Some(on_end) = &mut self.on_end {
            on_end.server_error();
        }
    }

    /// Notes what polling the body returned. `is_last` is for the last frame of a body that knows it.
    pub fn note<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_last: bool) {
        match frame {
            Some(Err(_)) => self.finish(BodyEnd::Broken),
            None => self.finish(BodyEnd::Complete),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
                if is_last {
                    self.finish(BodyEnd::Complete);
                }
            }
        }
    }

    /// The body has ended.
    pub fn finish(&mut self, end: BodyEnd) {
        let (slots, on_end, bytes) = (self.slots.take(), self.on_end.take(), self.bytes);
        if slots.is_none() && on_end.is_none() {
            return;
        }
        // A panic here would break off a body that is complete.
        contain(LimiterStage::Record, || {
            drop(slots);
            if let Some(on_end) = on_end {
                on_end.ended(end, bytes);
            }
        });
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.finish(BodyEnd::Dropped);
    }
}

impl fmt::Debug for EndGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.slots.is_some() || self.on_end.is_some();
        f.debug_struct("EndGuard").field("holds", &holds).finish_non_exhaustive()
    }
}
