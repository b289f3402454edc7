//! What a sample of callers says, in numbers that fit a page.

use serde::{Deserialize, Serialize};

use crate::demand::{CallerDemand, DemandSample};
use crate::evidence::{LimitTerms, share};

/// The limits for which a curve says how many callers they would refuse.
pub const CURVE_POINTS: usize = 20;
/// A caller is bursty if its mean over ten windows is at most this share of the limit.
const BURSTY_MEAN: f64 = 0.7;
/// A caller is stubborn if at least this share of its refusals came directly after another.
const STUBBORN_REPEATED: f64 = 0.5;
/// Callers whose peak is above this multiple of the 95th percentile are outliers, not part of the usual demand.
const OUTLIER_FACTOR: f64 = 4.0;
/// The most callers that can be outliers, as a share of the sample.
const OUTLIERS_MAX: f64 = 0.02;
/// The room above the highest usual peak in a recommended limit.
const HEADROOM: f64 = 1.25;

/// The demand of the callers of one limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemandSummary {
    /// Distinct callers, estimated.
    pub callers: u64,
    /// Callers in the sample.
    pub sampled: u64,
    /// Of the sampled, those that were refused at least once.
    pub refused_callers: u64,
    /// Refusals of the sampled callers.
    pub refusals: u64,
    /// Refusals of the one most refused.
    pub top_refusals: u64,
    /// Refusals of the three most refused.
    pub top3_refusals: u64,
    /// Refusals of callers whose mean over ten windows is well below the limit.
    pub bursty_refusals: u64,
    /// Refused callers whose mean over ten windows is well below the limit.
    pub bursty_callers: u64,
    /// The burst that would have passed 99 % of the bursty callers.
    pub burst_needed: u64,
    /// Refused callers that go on above the limit without waiting.
    pub stubborn_callers: u64,
    /// Quantiles of the callers' highest use of a window.
    pub peaks: PeakQuantiles,
    /// The most that one caller was admitted in one period around the end of a window.
    pub boundary_peak: u64,
    /// For some limits, how many of a thousand callers they would refuse at least once.
    pub curve: Vec<CurvePoint>,
    /// The limit that fits the usual demand.
    pub recommended: u64,
}

/// Quantiles of the callers' highest use of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakQuantiles {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The highest.
    pub max: u64,
}

/// How many callers a limit would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Units per period.
    pub limit: u64,
    /// Callers with a higher peak, of a thousand.
    pub refused_per_mille: u64,
}

impl DemandSummary {
    /// What a sample says about a limit with these terms.
    pub fn of(sample: &DemandSample, terms: &LimitTerms) -> Self {
        let callers = sample.callers();
        let quota = as_f64(terms.quota);
        let refused: Vec<&CallerDemand> = callers.iter().filter(|one| one.refused() > 0).collect();
        let mut most: Vec<u64> = refused.iter().map(|one| u64::from(one.refused())).collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        let bursty: Vec<&CallerDemand> =
            refused.iter().copied().filter(|one| one.mean() <= quota * BURSTY_MEAN).collect();
        let stubborn = refused
            .iter()
            .filter(|one| one.mean() > quota && one.repeated_share() >= STUBBORN_REPEATED);
        let peaks = sorted_peaks(callers);
        let mut wanted: Vec<u64> = callers.iter().map(wanted_of).collect();
        wanted.sort_unstable();
        DemandSummary {
            callers: sample.callers_estimate(),
            sampled: count(callers.len()),
            refused_callers: count(refused.len()),
            refusals: most.iter().sum(),
            top_refusals: most.first().copied().unwrap_or(0),
            top3_refusals: most.iter().take(3).sum(),
            bursty_refusals: bursty.iter().map(|one| u64::from(one.refused())).sum(),
            bursty_callers: count(bursty.len()),
            burst_needed: quantile(&sorted_peaks(bursty), 0.99),
            stubborn_callers: count(stubborn.count()),
            peaks: PeakQuantiles {
                p50: quantile(&peaks, 0.5),
                p90: quantile(&peaks, 0.9),
                p99: quantile(&peaks, 0.99),
                p999: quantile(&peaks, 0.999),
                max: peaks.last().copied().unwrap_or(0),
            },
            boundary_peak: u64::from(sample.boundary_peak()),
            curve: curve(&wanted),
            recommended: recommend(&wanted),
        }
    }

    /// A higher limit that fits the usual demand. At least twice the present one: callers that wait when they are
    /// refused ask for less than they would.
    pub fn relaxed(&self, quota: u64) -> u64 {
        self.recommended.max(round_up(quota.saturating_mul(2)))
    }

    /// Refused callers of all sampled callers.
    pub fn refused_callers_share(&self) -> f64 {
        share(self.refused_callers, self.sampled)
    }
}

/// What a caller wants in a window: a caller that waits when it is refused asks for less.
fn wanted_of(caller: &CallerDemand) -> u64 {
    let waits = caller.repeated_share() < STUBBORN_REPEATED;
    u64::from(if waits { caller.peak().max(caller.pace()) } else { caller.peak() })
}

fn sorted_peaks<'c>(callers: impl IntoIterator<Item = &'c CallerDemand>) -> Vec<u64> {
    let mut peaks: Vec<u64> = callers.into_iter().map(|one| u64::from(one.peak())).collect();
    peaks.sort_unstable();
    peaks
}

/// The smallest of the sorted values that this share of them does not exceed.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> u64 {
    let rank = as_f64(count(sorted.len())) * part;
    sorted.get(to_index(rank.ceil() - 1.0)).copied().unwrap_or(0)
}

/// The limit that fits the usual demand: above every peak but those of outliers, with headroom, rounded up.
fn recommend(peaks: &[u64]) -> u64 {
    let fence = as_f64(quantile(peaks, 0.95)) * OUTLIER_FACTOR;
    let above = peaks.iter().filter(|peak| as_f64(**peak) > fence).count();
    let few = as_f64(count(above)) <= as_f64(count(peaks.len())) * OUTLIERS_MAX;
    let usual = peaks.len() - if few { above } else { 0 };
    let highest = peaks.get(..usual).and_then(<[u64]>::last).copied().unwrap_or(0);
    round_up(to_count((as_f64(highest) * HEADROOM).ceil()))
}

/// Rounds up to 1, 2 or 5 times a power of ten.
pub(crate) fn round_up(value: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for step in [1, 2, 5] {
            let rounded = power.saturating_mul(step);
            if rounded >= value {
                return rounded;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Callers refused at limits from the median peak to the highest, at equal ratios.
fn curve(peaks: &[u64]) -> Vec<CurvePoint> {
    let (low, high) = (quantile(peaks, 0.5).max(1), peaks.last().copied().unwrap_or(0));
    if high == 0 {
        return Vec::new();
    }
    let ratio = as_f64(high.max(low)) / as_f64(low);
    let steps = as_f64(count(CURVE_POINTS - 1));
    let point = |index: usize| {
        let limit = to_count((as_f64(low) * ratio.powf(as_f64(count(index)) / steps)).round());
        let above = peaks.len() - peaks.partition_point(|peak| *peak <= limit);
        CurvePoint { limit, refused_per_mille: count(above) * 1_000 / count(peaks.len()).max(1) }
    };
    let mut points: Vec<CurvePoint> = (0..CURVE_POINTS).map(point).collect();
    points.dedup_by_key(|point| point.limit);
    points
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "quantiles and shares need no more than 52 bits")]
pub(crate) const fn as_f64(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and the argument is a whole number"
)]
pub(crate) const fn to_count(number: f64) -> u64 {
    number as u64
}

fn to_index(number: f64) -> usize {
    usize::try_from(to_count(number)).unwrap_or(usize::MAX)
}
