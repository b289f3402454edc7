//! How a request passes its limits: at once, at its turn in a leaky bucket, after a wait in line, or not at all.
//!
//! Every door that holds requests (gateway, tower layer) takes the same steps, in this order:
//!
//! 1. **Shed**: `Protection::screen` of `overload`. First, because it is the cheapest test, and a request that cannot be
//!    served must not spend its caller's budget.
//! 2. **Limit**: [`Pipeline`]. The caller's own limits: pass, wait for a turn, wait in line, queue, or refuse.
//! 3. **Enter the gate**: `Protection::try_enter` of `overload`. After any wait, because a waiting request must not hold
//!    a slot that another could use.
//! 4. **Forward**: the gateway's upstream, or the service inside the tower layer.
//!
//! A request that step 3 refuses was charged by step 2 and gets a [`Refund`]. A refusal of any step is plain data
//! ([`Refusal`](tidegate_answers::Refusal)) until the door renders it.
//!
//! [`RequestDescription`] says what a request is limited by. [`WaitingRoom`] holds the requests that wait, in [`Lines`]
//! and for their [`Turns`]. [`EndGuard`] releases what a request holds when the body of its response has ended.

mod body_end;
mod description;
mod domain_engine;
mod line;
mod pipeline;
mod refund;
mod slots;
mod turns;

pub use body_end::{BodyEnd, EndGuard, OnBodyEnd};
pub use description::{Descriptors, Entries, RequestDescription};
pub use domain_engine::DomainEngine;
pub use line::{DelaySettings, LineFull, LineKey, Lines, Ticket, WaitMode};
pub use pipeline::{Admission, Grant, LineWait, Patience, Pipeline, Waiter, WaitingRoom};
pub use refund::Refund;
pub use slots::{HeldSlots, HoldTime};
pub use turns::{NoTurn, PendingTurn, TurnBounds, Turns};
