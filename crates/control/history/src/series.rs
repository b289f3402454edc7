//! The history of the whole service: a few dozen series in two resolutions.

use crate::ring::Ring;

/// The most points of an answer.
pub const POINTS_MAX: usize = 2_000;
/// The most series.
const SERIES_MAX: usize = 64;
/// A second without a reading.
const NONE: u64 = u64::MAX;
const FINE: (u64, u64) = (1, 900);
const COARSE: (u64, u64) = (10, 2_160);

/// What a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// A counter, shown as its growth per second.
    Rate,
    /// A value at an instant. A longer step shows its maximum.
    Gauge,
}

/// Series side by side, as chart libraries take them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// The seconds between two points.
    pub step: u64,
    /// The instant of each point, in seconds since 1970.
    pub times: Vec<u64>,
    /// The name of each column.
    pub names: Vec<&'static str>,
    /// The values of each column; [`None`] where no reading was taken.
    pub values: Vec<Vec<Option<f64>>>,
}

#[derive(Debug)]
pub(crate) struct ServiceHistory {
    series: Vec<(&'static str, SeriesKind)>,
    fine: Ring<u64>,
    coarse: Ring<u64>,
    /// The totals of the last reading.
    before: Vec<u64>,
}

impl ServiceHistory {
    pub(crate) fn new(series: &[(&'static str, SeriesKind)]) -> Self {
        let series: Vec<_> = series.iter().copied().take(SERIES_MAX).collect();
        let ring = |(step, length)| Ring::new(step, length, series.len(), NONE);
        ServiceHistory { fine: ring(FINE), coarse: ring(COARSE), before: Vec::new(), series }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.fine.bytes() + self.coarse.bytes()
    }

    /// Forgets everything, because the clock was set back.
    pub(crate) fn restart(&mut self) {
        self.fine.clear();
        self.coarse.clear();
        self.before.clear();
    }

    pub(crate) fn record(&mut self, now: u64, values: &[u64]) {
        if values.len() < self.series.len() {
            return;
        }
        let before = std::mem::replace(&mut self.before, values.to_vec());
        for ring in [&mut self.fine, &mut self.coarse] {
            let Some(row) = ring.row_mut(now) else { continue };
            for (index, ((_, kind), cell)) in self.series.iter().zip(row).enumerate() {
                let Some(value) = values.get(index).copied() else { continue };
                let old = if *cell == NONE { 0 } else { *cell };
                match (kind, before.get(index)) {
                    (SeriesKind::Gauge, _) => *cell = old.max(value).min(NONE - 1),
                    // The first reading says nothing about growth.
                    (SeriesKind::Rate, None) => {}
                    (SeriesKind::Rate, Some(before)) => {
                        let grown = value.checked_sub(*before).unwrap_or(value);
                        *cell = old.saturating_add(grown).min(NONE - 1);
                    }
                }
            }
        }
    }

    pub(crate) fn columns(&self, names: &[&str], since: u64, step: u64) -> Columns {
        let ring = if step < COARSE.0 { &self.fine } else { &self.coarse };
        let chosen: Vec<usize> = names
            .iter()
            .filter_map(|name| self.series.iter().position(|(known, _)| known == name))
            .collect();
        // Whole multiples of the ring's step, and so many that all points fit.
        let rows = ring.rows_since(since).count();
        let wanted = usize::try_from((step / ring.step()).max(1)).unwrap_or(usize::MAX);
        let merged = wanted.max(rows.div_ceil(POINTS_MAX)).max(1);
        let merged_u64 = u64::try_from(merged).unwrap_or(u64::MAX);
        let step = ring.step().saturating_mul(merged_u64);
        let names = chosen.iter().filter_map(|index| Some(self.series.get(*index)?.0)).collect();
        let mut columns =
            Columns { step, times: Vec::new(), names, values: vec![Vec::new(); chosen.len()] };
        for (time, row) in ring.rows_since(since) {
            let begin = time / step * step;
            let is_new = columns.times.last() != Some(&begin);
            if is_new {
                columns.times.push(begin);
            }
            for (index, column) in chosen.iter().zip(&mut columns.values) {
                let (Some(value), Some((_, kind))) = (row.get(*index), self.series.get(*index))
                else {
                    continue;
                };
                let value = self.point(*value, *kind, step);
                match column.last_mut() {
                    Some(last) if !is_new => *last = join(*kind, *last, value),
                    _ => column.push(value),
                }
            }
        }
        columns
    }

    /// One cell as a part of a point: a rate is shared among the seconds of the step.
    #[expect(clippy::unused_self, reason = "reads with the columns")]
    fn point(&self, value: u64, kind: SeriesKind, step: u64) -> Option<f64> {
        if value == NONE {
            return None;
        }
        Some(match kind {
            SeriesKind::Gauge => value as f64,
            SeriesKind::Rate => value as f64 / step as f64,
        })
    }
}

fn join(kind: SeriesKind, one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (kind, one, other) {
        (SeriesKind::Rate, Some(one), Some(other)) => Some(one + other),
        (SeriesKind::Gauge, Some(one), Some(other)) => Some(one.max(other)),
        (_, one, other) => one.or(other),
    }
}
