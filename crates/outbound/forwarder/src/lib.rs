//! Drains durable queues at the pace that a throttled service allows.
//!
//! A [`Forwarder`] takes records of several types. Each type has its own queue and its own processor; types that share a
//! target share its capacity, with each other and with other processes, through leased slots. Records are claimed just
//! before they are sent, sent one by one at an exact pace, tried again after failures, and kept as dead letters when they
//! cannot be delivered. A [`forecast`] says when a queue or a job will be done, and what decides it.
//!
//! Delivery is at least once; a record whose enqueue returned is never lost.
//!
//! | Part | Where |
//! |---|---|
//! | one record type: claim, pace, attempt, settle | `lane` |
//! | when a failed record is tried again | `retry` |
//! | whether the target answers at all | `health` |
//! | plans, forecasts and what binds the rate | `forecast` |
//! | the HTTP API | `api` |
//! | targets, types and processors in a file that people write | `document` |
//!
//! How a record is sent is the processor's business, see `tidegate_delivery`.

mod api;
mod document;
mod forecast;
mod forwarder;
mod health;
mod lane;
mod metrics;
mod processor_plan;
mod retry;
mod settings;

pub use api::{ApiBody, ForwardApi, ForwardApiSettings};
pub use document::{
    FORWARD_DOCUMENT_BYTES_MAX, ForwardDocument, TypePlan, forward_reference, forward_schema,
};
pub use forecast::{
    BindingCause, ForecastInput, ForecastView, GRANT_SPAN, Outlook, Plan, PlanInput, RateHistory,
    SecondCounts, SenderState, binding_cause, forecast, plan,
};
pub use forwarder::{CountsView, Forwarder, ForwarderParts, JobProgress, TargetStatus, TypeStatus};
pub use health::TargetHealth;
pub use lane::{AcceptError, LaneMode, SharedClock};
pub use metrics::FORWARDER_METRICS;
pub use processor_plan::{FieldFile, HttpPlan, ProcessorError, ProcessorPlan};
pub use retry::{AmbiguousRule, RetryBudget, RetryDecision, RetryPolicy};
pub use settings::TypeSettings;
pub use tidegate_capacity::{
    ChangeLimitsError, Cost, Dimension, LeaseStore, Target, TargetLimit, TargetLimits,
};
