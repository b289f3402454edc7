//! What clients see of a decision, the same behind every door.
//!
//! [`Notice`] has the facts of a verdict that a client may learn, and [`HeaderSet`] writes them into header fields. A
//! refused request stays plain data ([`Refusal`]) until one [`Renderer`] turns it into a response: problem+json, a page
//! or a gRPC status. [`Problem`] writes the problem bodies of errors that no limit caused. This crate decides nothing
//! and opens no sockets.
//!
//! ```
//! # use std::sync::Arc;
//! use tidegate_answers::{HeaderSet, Negotiation, Notice, Refusal, Renderer};
//! # use tidegate_engine::{Clock, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Source};
//! # use tidegate_engine::{SystemClock, compile};
//! # let rules = "domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 0}}]";
//! # let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! # let store = MemoryStore::new(MemoryConfig::default())?;
//! # let engine = Engine::new(store, SystemClock::new()).with_rules(rules);
//! # let entries = [Entry { key: "user", value: "7" }];
//! # let (request, ()) = http::Request::get("/").body(())?.into_parts();
//! let verdict = engine.check_now(&Request::new("api", &[Descriptor::new(&entries)]));
//! let now = engine.clock().now();
//! let refusal = Refusal::of_limits(&Notice::of(&verdict), &HeaderSet::default(), None, now);
//! let response = Renderer::default().render(refusal, &Negotiation::of(&request));
//! assert_eq!(response.status(), 429);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cause;
mod headers;
mod negotiation;
mod notice;
mod problem;
mod refusal;
mod renderer;

pub mod grpc;

pub use cause::{Cause, CauseText};
pub use headers::{Fields, HeaderFormat, HeaderSet, HeadersOn, ResetAs, write_number};
pub use negotiation::{AnswerFormat, Negotiation};
pub use notice::{NAME_CHARS_MAX, Notice, POLICIES_MAX, Policy, PolicyName};
pub use problem::{NO_STORE, PROBLEM_JSON, Problem};
pub use refusal::{Refusal, ShedDetails, ViolatedLimit};
pub use renderer::{PreparedAnswer, Renderer, TemplateError, Templates};
