//! How a request passes its limits: at once, after a wait in line, or at its turn in a leaky bucket.
//!
//! [`Described`] says what a request asks for; [`Lines`] and [`Turns`] hold requests that wait for room under a limit;
//! [`Charged`] refunds a request that was charged and then not served. Gateway and tower layer share all of it.
//! Nothing here knows of sockets or renders an answer.

mod charged;
mod described;
mod line;
mod slots;
mod turns;

pub use charged::{Charged, GiveBack};
pub use described::{Described, Descriptors, Entries};
pub use line::{DelaySettings, Later, LineFull, LineKey, Lines, Said, Ticket};
pub use slots::HeldSlots;
pub use turns::{NoTurn, Patience, Turns, Waiting, give_back};
