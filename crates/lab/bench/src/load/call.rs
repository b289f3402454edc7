//! The calls of one connection that have no answer yet.
//!
//! Streams are numbered in the order in which they are opened, two apart, so a
//! queue with the number of its first call finds any of them without a search.

use std::collections::VecDeque;
use std::time::Duration;

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCall {
    pub(super) asked: Duration,
    /// The answer, if it has arrived.
    pub(super) admitted: Option<bool>,
    ended: bool,
}

/// Calls in the order in which they were made.
#[derive(Debug)]
pub(super) struct PendingCalls {
    /// The stream of the first call in the queue.
    first: u32,
    queue: VecDeque<PendingCall>,
    in_flight: usize,
}

impl PendingCalls {
    /// A client's streams have odd numbers.
    pub(super) const fn new() -> Self {
        PendingCalls { first: 1, queue: VecDeque::new(), in_flight: 0 }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Adds a call and returns its stream; `None` once all numbers are used.
    #[inline]
    pub(super) fn begin(&mut self, asked: Duration) -> Option<u32> {
        let place = u32::try_from(self.queue.len()).ok()?;
        let stream = place.checked_mul(2)?.checked_add(self.first)?;
        if stream > STREAM_MAX {
            return None;
        }
        self.queue.push_back(PendingCall { asked, admitted: None, ended: false });
        self.in_flight += 1;
        Some(stream)
    }

    /// The call on a stream that has not ended.
    #[inline]
    pub(super) fn on(&mut self, stream: u32) -> Option<&mut PendingCall> {
        let distance = stream.checked_sub(self.first)?;
        let place = usize::try_from(distance / 2).ok()?;
        let call = self.queue.get_mut(place)?;
        (distance % 2 == 0 && !call.ended).then_some(call)
    }

    /// Removes the call on a stream.
    #[inline]
    pub(super) fn end(&mut self, stream: u32) -> Option<PendingCall> {
        let call = self.on(stream)?;
        call.ended = true;
        let ended = *call;
        self.in_flight = self.in_flight.saturating_sub(1);
        while self.queue.pop_front_if(|call| call.ended).is_some() {
            self.first += 2;
        }
        Some(ended)
    }
}

const STREAM_MAX: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn calls_end_in_any_order() {
        let mut calls = PendingCalls::new();
        let streams: Vec<u32> = (0..4).map(|at| calls.begin(ms(at)).unwrap()).collect();
        assert_eq!(streams, [1, 3, 5, 7]);
        for (stream, asked) in [(5, 2), (1, 0), (7, 3), (3, 1)] {
            assert_eq!(calls.end(stream).map(|call| call.asked), Some(ms(asked)));
        }
        assert_eq!((calls.in_flight(), calls.begin(ms(9))), (0, Some(9)));
    }

    #[test]
    fn a_stream_that_is_not_open_has_no_call() {
        let mut calls = PendingCalls::new();
        calls.begin(ms(0)).unwrap();
        calls.begin(ms(1)).unwrap();
        assert!(calls.end(1).is_some());
        for stream in [0, 1, 2, 4, 5] {
            assert!(calls.end(stream).is_none(), "{stream}");
        }
        assert_eq!(calls.in_flight(), 1);
    }
}
