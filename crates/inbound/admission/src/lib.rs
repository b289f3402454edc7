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
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! use tidegate_admission::{
//!     Admission, DelaySettings, DomainEngine, Patience, Pipeline, RequestDescription, Waiter, WaitingRoom,
//! };
//! # use tidegate_answers::{HeaderSet, HeadersOn};
//! # use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
//! # let rules = "domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]";
//! # let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! # let store = MemoryStore::new(MemoryConfig::default())?;
//! # let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
//! let pipeline = Pipeline {
//!     limits: DomainEngine { engine: &engine, domain: "api" },
//!     room: &WaitingRoom::default(),
//!     delay: &DelaySettings::default(),
//!     headers: &HeaderSet::default(),
//!     headers_on: HeadersOn::Always,
//!     hold_time: None,
//!     refunds: false,
//! };
//! let user = RequestDescription::new().descriptor([("user", "7")]);
//! let patience = Patience { waiter: Waiter::Nobody, wait_max: || Duration::ZERO, since: None };
//! assert!(matches!(pipeline.decide_now(&user, patience), Some(Admission::Pass(_))));
//! assert!(matches!(pipeline.decide_now(&user, patience), Some(Admission::Refused(_))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
