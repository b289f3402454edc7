//! A request that waits for its turn, with what it was charged.
//!
//! Whatever becomes of it, it pays once: who leaves before its turn has come gets back what its
//! other limits took. The door is generic over the store, and would have to name it wherever
//! a request waits; this knows only how to give back.

use std::fmt;
use std::future::Future;
use std::task::{Context, Waker};

use tidegate_engine::{Clock, CounterStore, Deposit};
use tokio::runtime::Handle;

use super::Turn;
use crate::charged::{Charged, GiveBack};

/// A request that waits for its turn. Dropping it before gives the turn to the next that comes,
/// and what it was charged back.
pub struct Waiting {
    turn: Turn,
    give_back: Option<GiveBack>,
}

impl Waiting {
    pub(super) fn new<S, C>(turn: Turn, deposit: Deposit<S, C>) -> Self
    where
        S: CounterStore,
        C: Clock,
    {
        let give_back: Option<GiveBack> =
            if deposit.is_empty() { None } else { Some(Box::new(|| give_back(deposit))) };
        Waiting { turn, give_back }
    }

    /// Waits until its turn has come. What it was charged can still be given back, if it finds no
    /// place then.
    pub async fn come(mut self) -> Charged {
        self.turn.come().await;
        self.give_back.take().into()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take()
            && !self.turn.has_come()
        {
            give_back();
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("turn", &self.turn.at).finish_non_exhaustive()
    }
}

/// Gives a deposit back: at once to the embedded store, in the background to another.
pub fn give_back<S, C>(deposit: Deposit<S, C>)
where
    S: CounterStore,
    C: Clock,
{
    // Who waited did so on a runtime; when that is gone, the charge stays.
    let Ok(runtime) = Handle::try_current() else { return };
    if deposit.is_empty() {
        return;
    }
    let mut giving = Box::pin(deposit.give_back());
    if giving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        runtime.spawn(giving);
    }
}
