//! What traffic says about the rules: demand → evidence → findings → suggestions.
//!
//! [`DemandSample`] samples the callers of a limit. [`LimitEvidence`] is what is known of a limit: its terms, its counts
//! and the demand of its callers.
//!
//! Pure: no clock, no files, no network. Whoever observes passes `now`.

mod demand;
mod demand_summary;
mod evidence;

pub use demand::{
    CALLERS_SAMPLED, CALLERS_SAMPLED_MAX, CallerDemand, CompactCount, DemandHit, DemandSample,
    MEAN_WINDOWS, SampleRelation,
};
pub use demand_summary::{CURVE_POINTS, CurvePoint, DemandSummary, PeakQuantiles};
pub use evidence::{
    EVIDENCE_VERSION, LIMITS_MAX, LimitEvidence, LimitName, LimitTerms, OverlapEvidence,
    RulesEvidence, SpanCounts,
};
