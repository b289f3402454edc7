//! Rate limiting and overload protection to embed in a Rust service.
//!
//! One dependency for everything that runs inside your process. Check a request against rules:
//!
//! ```
//! use tidegate::{Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Source, SystemClock, compile};
//!
//! let rules = "
//! domain: api
//! descriptors:
//! - key: user
//!   rate_limit: {unit: hour, requests_per_unit: 2}
//! ";
//! let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Engine::new(store, SystemClock::new()).with_rules(rules);
//!
//! let entries = [Entry { key: "user", value: "alice" }];
//! let descriptors = [Descriptor::new(&entries)];
//! let request = Request::new("api", &descriptors);
//! assert!(engine.check_now(&request).is_admitted());
//! assert!(engine.check_now(&request).is_admitted());
//! assert!(!engine.check_now(&request).is_admitted());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Feature | Adds |
//! |---|---|
//! | `layer` (default) | [`layer`]: a tower layer that limits any HTTP service |
//! | `protection` | `protection`: a gate and shedders for overload; with `layer`, a tower layer for them |
//! | `pacer` | `pacer`: calls that leave at the pace their receiver allows |
//! | `redis` | limits that several processes share, in [`stores`] |
//!
//! The service and the gateway are the binary `tidegate`, package `tidegate-app`.

pub use tidegate_engine::*;

/// Where counters live: in memory, or in Redis with the feature `redis`.
pub mod stores {
    pub use tidegate_stores::*;
}

/// A tower layer that limits any HTTP service: axum, hyper, tonic.
#[cfg(feature = "layer")]
pub mod layer {
    pub use tidegate_admission::{DelaySettings, RequestDescription};
    pub use tidegate_answers::{
        Cause, HeaderFormat, HeaderSet, HeadersOn, Refusal, Renderer, ResetAs, ViolatedLimit,
    };
    pub use tidegate_tower_layer::*;
}

/// Overload protection: a gate in front of the work, shedders by category, the share of a fleet.
#[cfg(feature = "protection")]
pub mod protection {
    pub use tidegate_overload::*;
}

/// Calls that leave at the pace their receiver allows.
#[cfg(feature = "pacer")]
pub mod pacer {
    pub use tidegate_pacer::*;
}
