//! What traffic says about the rules: demand → evidence → findings → suggestions.
//!
//! [`DemandSample`] samples the callers of a limit. [`LimitEvidence`] is what is known of a limit: its terms, its counts
//! and the demand of its callers. [`judge`] turns it into findings, each with figures and a suggestion.
//! [`DecisionRecord`] is a line of the decision log, which a replay decides again.
//!
//! Pure: no clock, no files, no network. Whoever observes passes `now`.

mod decision_record;

mod demand;
mod demand_summary;
mod evidence;

mod finding;
mod judge;
mod overlap;
mod suggestion;

pub use decision_record::{
    DecisionRecord, RecordedDescriptor, RecordedLimit, RecordedVerb, RecordedVerdict,
};
pub use demand::{
    CALLERS_SAMPLED, CALLERS_SAMPLED_MAX, CallerDemand, CompactCount, DemandHit, DemandSample,
    MEAN_WINDOWS, SampleRelation,
};
pub use demand_summary::{CURVE_POINTS, CurvePoint, DemandSummary, PeakQuantiles};
pub use evidence::{
    BusiestCallers, EVIDENCE_VERSION, LIMITS_MAX, LimitEvidence, LimitName, LimitTerms,
    OverlapEvidence, RulesEvidence, SpanCounts,
};
pub use finding::{Confidence, Figure, FigureUnit, FindingKind, LimitFinding};
pub use judge::{EvidenceMinimum, judge, judge_all};
pub use overlap::dominating_limit;
pub use suggestion::Suggestion;
