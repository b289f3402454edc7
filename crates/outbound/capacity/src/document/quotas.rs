//! Quotas in the document: chunks that members take, and when they no longer count.

use super::CapacityDocument;
use crate::limits::TargetLimit;
use crate::quota::{QuotaChunk, QuotaDemand, QuotaLedger};

impl CapacityDocument {
    /// What was taken of each quota.
    pub(crate) fn quotas(&self) -> &[QuotaLedger] {
        &self.quotas
    }

    /// Drops chunks that no longer count, by the index of their quota.
    pub(crate) fn drop_passed_chunks(&mut self, has_passed: impl Fn(usize, &QuotaChunk) -> bool) {
        for (index, ledger) in self.quotas.iter_mut().enumerate() {
            ledger.drop_passed(|chunk| has_passed(index, chunk));
        }
    }

    /// Adds what a member knows of chunks that a lost document counted.
    pub(crate) fn restore_chunks(&mut self, known: &[QuotaLedger]) {
        if known.len() == self.quotas.len() {
            for (ledger, known) in self.quotas.iter_mut().zip(known) {
                ledger.merge(known);
            }
        }
    }

    /// Takes a chunk of each quota for a member that wants and needs this many units. Returns the units of each.
    pub(crate) fn take_chunks(
        &mut self,
        demands: &[QuotaDemand],
        store_time_ms: Option<u64>,
    ) -> Vec<u64> {
        // Chunks that holders of a lost document know of may be missing.
        if self.settling {
            return vec![0; self.quotas.len()];
        }
        let limits: Vec<TargetLimit> = self.limits.quotas().copied().collect();
        let mut taken = Vec::with_capacity(limits.len());
        for (index, (ledger, limit)) in self.quotas.iter_mut().zip(&limits).enumerate() {
            let demand = demands.get(index).copied().unwrap_or_default();
            let units = ledger.take(limit, self.last_chunk.wrapping_add(1), demand, store_time_ms);
            self.last_chunk = self.last_chunk.wrapping_add(u64::from(units > 0));
            taken.push(units);
        }
        taken
    }
}
