//! The record of an episode, second by second.

use super::load::{PerCategory, Request, TENANTS};
use super::shield::Controls;
use tidegate_overload::Category;

/// One second of an episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Second {
    /// First attempts.
    pub(crate) offered: PerCategory<u32>,
    /// Requests that entered the server.
    pub(crate) admitted: PerCategory<u32>,
    pub(crate) refused: PerCategory<u32>,
    /// Answers in time.
    pub(crate) good: PerCategory<u32>,
    /// Answers after the client's timeout.
    pub(crate) late: PerCategory<u32>,
    pub(crate) tasks_offered: u32,
    pub(crate) tasks_good: u32,
    pub(crate) retries: u32,
    /// Latency of critical requests from arrival to answer, in nanoseconds.
    pub(crate) critical_p50: u64,
    pub(crate) critical_p99: u64,
    pub(crate) controls: Controls,
}

impl Second {
    const fn new() -> Self {
        Second {
            offered: [0; 4],
            admitted: [0; 4],
            refused: [0; 4],
            good: [0; 4],
            late: [0; 4],
            tasks_offered: 0,
            tasks_good: 0,
            retries: 0,
            critical_p50: 0,
            critical_p99: 0,
            controls: Controls { level: 1.0, limit: 0.0 },
        }
    }

    /// Whether the level admits everything at the end of the second.
    pub(crate) const fn is_open(&self) -> bool {
        self.controls.level >= 0.999
    }
}

/// Offered and refused requests of each tenant in each category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenants(Vec<[u32; 2]>);

impl Tenants {
    fn new() -> Self {
        Tenants(vec![[0; 2]; TENANTS * 4])
    }

    fn count(&mut self, request: &Request, column: usize) {
        let index = request.category.rank() * TENANTS + usize::from(request.tenant);
        if let Some(row) = self.0.get_mut(index) {
            row[column] += 1;
        }
    }

    /// The admitted share of each tenant that sent requests of a category.
    pub(crate) fn admitted_shares(&self, category: Category) -> Vec<f64> {
        let rows = self.0.iter().skip(category.rank() * TENANTS).take(TENANTS);
        let came = rows.filter(|row| row[0] > 0);
        came.map(|row| 1.0 - f64::from(row[1]) / f64::from(row[0])).collect()
    }
}

/// The record of an episode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) seconds: Vec<Second>,
    /// Latencies of critical requests in the steady part.
    pub(crate) critical: Latencies,
    /// Latencies of all answers in time.
    pub(crate) good: Latencies,
    pub(crate) tenants: Tenants,
    /// Worker time spent on refusals in the steady part, in nanoseconds.
    pub(crate) refusing: f64,
    current: Second,
    current_critical: Vec<u64>,
    steady: bool,
}

impl Record {
    pub(crate) fn new() -> Self {
        Record {
            seconds: Vec::new(),
            critical: Latencies::new(),
            good: Latencies::new(),
            tenants: Tenants::new(),
            refusing: 0.0,
            current: Second::new(),
            current_critical: Vec::new(),
            steady: false,
        }
    }

    /// Ends a second. `steady` says whether the next one is in the steady part.
    pub(crate) fn next_second(&mut self, controls: Controls, steady: bool) {
        self.current_critical.sort_unstable();
        self.current.critical_p50 = rank(&self.current_critical, 50);
        self.current.critical_p99 = rank(&self.current_critical, 99);
        self.current_critical.clear();
        self.current.controls = controls;
        self.seconds.push(std::mem::replace(&mut self.current, Second::new()));
        self.steady = steady;
    }

    pub(crate) fn offered(&mut self, request: &Request) {
        if request.attempt == 1 {
            self.current.offered[request.category.rank()] += 1;
            self.current.tasks_offered += u32::from(request.call == 1);
        } else {
            self.current.retries += 1;
        }
        if self.steady {
            self.tenants.count(request, 0);
        }
    }

    pub(crate) fn admitted(&mut self, request: &Request) {
        self.current.admitted[request.category.rank()] += 1;
    }

    pub(crate) fn refused(&mut self, request: &Request, work: f64) {
        self.current.refused[request.category.rank()] += 1;
        if self.steady {
            self.tenants.count(request, 1);
            self.refusing += work;
        }
    }

    pub(crate) fn answered(&mut self, request: &Request, now: u64, listening: bool) {
        let rank = request.category.rank();
        let latency = now.saturating_sub(request.arrived);
        let column = if listening { &mut self.current.good } else { &mut self.current.late };
        column[rank] += 1;
        if listening {
            self.good.add(latency);
        }
        if request.category == Category::Critical {
            self.current_critical.push(latency);
            if self.steady {
                self.critical.add(latency);
            }
        }
    }

    pub(crate) fn task_done(&mut self) {
        self.current.tasks_good += 1;
    }
}

fn rank(sorted: &[u64], percent: usize) -> u64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(0)
}

/// A histogram of latencies with buckets about a hundredth wide, of constant size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Latencies {
    counts: Vec<u32>,
    count: u64,
    sum: u64,
}

/// Buckets within a doubling, as a power of two.
const FINE_BITS: u32 = 6;

impl Latencies {
    const fn new() -> Self {
        Latencies { counts: Vec::new(), count: 0, sum: 0 }
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        let index = class(nanos);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The percentile.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let wanted = percent / 100.0 * self.count as f64;
        let mut seen = 0.0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= wanted && *count > 0 {
                return middle(index);
            }
        }
        0.0
    }
}

fn class(nanos: u64) -> usize {
    let high = 63 - (nanos | 1).leading_zeros();
    let index = if high < FINE_BITS {
        nanos
    } else {
        let fine = (nanos >> (high - FINE_BITS)) & ((1 << FINE_BITS) - 1);
        (u64::from(high - FINE_BITS + 1) << FINE_BITS) | fine
    };
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn middle(index: usize) -> f64 {
    let fine = 1_usize << FINE_BITS;
    if index < fine {
        return index as f64;
    }
    let doublings = i32::try_from(index / fine - 1).unwrap_or(0);
    let within = (index % fine) as f64 + 0.5;
    (fine as f64 + within) * 2_f64.powi(doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_right_to_a_hundredth() {
        let mut latencies = Latencies::new();
        for nanos in 1..=100_000 {
            latencies.add(nanos * 1_000);
        }
        for percent in [1.0, 50.0, 99.0, 99.9] {
            let off = latencies.percentile(percent) / (percent * 1e6) - 1.0;
            assert!(off.abs() < 0.01, "{percent}: {off}");
        }
        assert_eq!(latencies.mean(), 50_000_500.0);
    }

    #[test]
    fn small_and_huge_latencies_have_a_class() {
        for nanos in [0, 1, 63, 64, 65, 1_000, u64::MAX] {
            let off = (middle(class(nanos)) - nanos as f64).abs();
            assert!(off <= nanos as f64 * 0.01, "{nanos}: {off}");
        }
    }

    #[test]
    fn nothing_recorded_has_no_latency() {
        assert_eq!(Latencies::new().percentile(99.0), 0.0);
    }
}
