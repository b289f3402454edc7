//! What became of a call, as a value.

use std::time::Duration;

use http::Response;
use tidegate_algorithms::Nanos;

/// What an answer means for its caller.
///
/// It is in the extensions of the answer; an answer without one was served.
#[must_use = "a refused call was not done"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The service answered for itself.
    Answered,
    /// A quota is used up, also after the retries. The work was not done.
    Refused {
        /// When to try again, if the service said so.
        retry_after: Option<Duration>,
    },
    /// The service is short of capacity, also after the retries.
    Short {
        /// When to try again, if the service said so.
        retry_after: Option<Duration>,
    },
    /// The service failed, also after the retries.
    Failed,
}

impl Outcome {
    /// The outcome of an answer that came through a [`PacedService`](crate::PacedService) service.
    pub fn of<B>(answer: &Response<B>) -> Self {
        answer.extensions().get().copied().unwrap_or(Outcome::Answered)
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacingError<E> {
    /// The call was not sent: the target is closed, or its pace leaves no room, for longer than the settings wait.
    #[error("the target allows no call for {}; put the work back with that delay", Nanos::from(*retry_after))]
    Held {
        /// When to try again.
        retry_after: Duration,
    },
    /// The call was not sent: the target is short of capacity, and part of the calls is dropped.
    #[error("the target is short of capacity, so that this call was dropped before it was sent")]
    Dropped,
    /// The call was not sent: its deadline would pass while it waits.
    #[error("the deadline passes before the target allows the call, which is in {}", Nanos::from(*retry_after))]
    Deadline {
        /// When the call could have left.
        retry_after: Duration,
    },
    /// The service below failed.
    #[error(transparent)]
    Inner(E),
}

impl<E> PacingError<E> {
    /// When to try again, if it is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            PacingError::Held { retry_after } | PacingError::Deadline { retry_after } => {
                Some(*retry_after)
            }
            PacingError::Dropped | PacingError::Inner(_) => None,
        }
    }
}
