//! One reading a second of everything that has a chart, into the history.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_engine::{Clock, CounterStore, Mode, Timestamp};
use tidegate_history::{
    Counts, History, HistoryFileError, HistorySettings, LimitReading, SeriesKind,
};
use tidegate_metrics::{AnswerKind, DURATION_BOUNDS_MICROS};
use tidegate_overload::{Answer, Category};

use super::service::Inner;

/// The series of the service, in the order of [`Recorder::read_service`].
const SERIES: [(&str, SeriesKind); 22] = [
    ("admitted", SeriesKind::Rate),
    ("refused", SeriesKind::Rate),
    ("undecided", SeriesKind::Rate),
    ("failed", SeriesKind::Rate),
    ("over_limit", SeriesKind::Rate),
    ("shadow", SeriesKind::Rate),
    ("shed", SeriesKind::Rate),
    ("would_shed", SeriesKind::Rate),
    ("shed_test", SeriesKind::Rate),
    ("shed_get", SeriesKind::Rate),
    ("shed_post", SeriesKind::Rate),
    ("shed_critical", SeriesKind::Rate),
    ("latency_p50_us", SeriesKind::Gauge),
    ("latency_p99_us", SeriesKind::Gauge),
    ("gate_in_flight", SeriesKind::Gauge),
    ("gate_queued", SeriesKind::Gauge),
    ("gate_limit", SeriesKind::Gauge),
    ("gate_service_time_us", SeriesKind::Gauge),
    ("worker_utilization_permille", SeriesKind::Gauge),
    ("worker_admitted_permille", SeriesKind::Gauge),
    ("fleet_used", SeriesKind::Gauge),
    ("fleet_grant", SeriesKind::Gauge),
];

/// Records the history.
#[derive(Debug)]
pub(super) struct Recorder {
    history: Mutex<History>,
    /// The duration buckets of the last reading, to get the quantiles of one second.
    buckets: Mutex<[u64; DURATION_BOUNDS_MICROS.len() + 1]>,
    started: Mutex<Option<Timestamp>>,
    readings: AtomicU64,
}

impl Recorder {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Recorder {
            history: Mutex::new(History::new(settings(budget_bytes))),
            buckets: Mutex::default(),
            started: Mutex::new(None),
            readings: AtomicU64::new(0),
        }
    }

    /// Goes on from a file's bytes.
    pub(super) fn restore(&self, budget: usize, bytes: &[u8]) -> Result<(), HistoryFileError> {
        *self.history.lock() = History::decode(settings(budget), bytes)?;
        Ok(())
    }

    /// Calls `look` with the history.
    pub(super) fn with<R>(&self, look: impl FnOnce(&History) -> R) -> R {
        look(&self.history.lock())
    }

    /// When the first reading was taken.
    pub(super) fn started(&self) -> Option<Timestamp> {
        *self.started.lock()
    }

    pub(super) fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }

    /// Takes a reading.
    pub(super) fn record<S: CounterStore, C: Clock>(&self, door: &Inner<S, C>, now: Timestamp) {
        self.started.lock().get_or_insert(now);
        let mut limits = Vec::new();
        let mut sum = Counts::default();
        door.engine.for_each_tally(|_, _, limit, tally| {
            let total = Counts {
                admitted: tally.within,
                soft: tally.soft,
                near: tally.near,
                refused: tally.over.saturating_sub(tally.shadow),
                shadow: tally.shadow,
            };
            sum.refused = sum.refused.saturating_add(total.refused);
            sum.shadow = sum.shadow.saturating_add(total.shadow);
            let in_shadow = matches!(limit.mode, Mode::Shadow);
            limits.push(LimitReading { identity: limit.identity, total, in_shadow });
        });
        let service = self.read_service(door, sum);
        self.history.lock().record(now.as_nanos() / 1_000_000_000, &service, limits);
        self.readings.fetch_add(1, Ordering::Relaxed);
    }

    fn read_service<S, C: Clock>(&self, door: &Inner<S, C>, sum: Counts) -> [u64; SERIES.len()] {
        let mut answers = [0_u64; AnswerKind::ALL.len()];
        let mut buckets = [0_u64; DURATION_BOUNDS_MICROS.len() + 1];
        for meter in &door.parts.meters {
            let reading = meter.read();
            add_all(&mut answers, &reading.answers);
            add_all(&mut buckets, &reading.buckets);
        }
        let of = |kind: AnswerKind| answers.get(kind as usize).copied().unwrap_or(0);
        let before = std::mem::replace(&mut *self.buckets.lock(), buckets);
        let mut grown = buckets;
        for (now, before) in grown.iter_mut().zip(before) {
            *now = now.saturating_sub(before);
        }
        let protection = door.board.protection();
        let gauges = protection.map(|protection| protection.gauges());
        let (mut shed, mut would_shed) = ([0_u64; 4], 0_u64);
        for decision in protection.map(|protection| protection.decisions()).unwrap_or_default() {
            match decision.answer {
                Answer::Reject => {
                    if let Some(count) = shed.get_mut(decision.category.rank()) {
                        *count = count.saturating_add(decision.count);
                    }
                }
                Answer::WouldReject => would_shed = would_shed.saturating_add(decision.count),
                Answer::Allow | Answer::ErrorOpen => {}
            }
        }
        let shed_of = |category: Category| shed.get(category.rank()).copied().unwrap_or(0);
        let gauge = |of: fn(&tidegate_overload::Gauges) -> u64| gauges.as_ref().map_or(0, of);
        [
            of(AnswerKind::Admitted),
            of(AnswerKind::Refused),
            of(AnswerKind::Undecided),
            of(AnswerKind::Failed).saturating_add(of(AnswerKind::ErrorOpen)),
            sum.refused,
            sum.shadow,
            shed.iter().sum(),
            would_shed,
            shed_of(Category::Test),
            shed_of(Category::Get),
            shed_of(Category::Post),
            shed_of(Category::Critical),
            quantile(&grown, 50),
            quantile(&grown, 99),
            gauge(|gauges| gauges.gate.in_flight),
            gauge(|gauges| gauges.gate.queued),
            gauge(|gauges| gauges.gate.limit),
            gauge(|gauges| gauges.gate.service_time.get() / 1_000),
            gauge(|gauges| permille(gauges.worker.utilization)),
            gauge(|gauges| permille(gauges.worker.admitted)),
            gauge(|gauges| gauges.fleet.used),
            gauge(|gauges| gauges.fleet.grant),
        ]
    }
}

fn settings(budget_bytes: usize) -> HistorySettings {
    HistorySettings { budget_bytes, series: SERIES.to_vec() }
}

fn add_all(sums: &mut [u64], counts: &[u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}

/// A share as a whole number of thousandths; values outside of it and no numbers are zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn permille(share: f64) -> u64 {
    if share.is_finite() { (share.clamp(0.0, 100.0) * 1_000.0) as u64 } else { 0 }
}

/// The upper bound of the bucket with this percentile, in microseconds; zero if there were no requests.
fn quantile(buckets: &[u64], percent: u64) -> u64 {
    let all: u64 = buckets.iter().sum();
    if all == 0 {
        return 0;
    }
    let rank = (all.saturating_mul(percent)).div_ceil(100);
    let mut counted = 0;
    for (index, count) in buckets.iter().enumerate() {
        counted += count;
        if counted >= rank {
            return DURATION_BOUNDS_MICROS.get(index).copied().unwrap_or(1_000_000);
        }
    }
    1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let mut buckets = [0; DURATION_BOUNDS_MICROS.len() + 1];
        assert_eq!(quantile(&buckets, 99), 0);
        (buckets[0], buckets[3]) = (98, 2);
        assert_eq!((quantile(&buckets, 50), quantile(&buckets, 99)), (5, 50));
        buckets[12] = 100;
        assert_eq!(quantile(&buckets, 99), 1_000_000);
    }

    #[test]
    fn shares_that_are_no_numbers_are_zero() {
        assert_eq!((permille(0.5), permille(f64::NAN), permille(-1.0)), (500, 0, 0));
    }
}
