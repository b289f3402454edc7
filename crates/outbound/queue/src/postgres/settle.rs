//! Settle: claims end or go on.

use std::collections::{BTreeSet, HashMap};

use tidegate_algorithms::{Nanos, Timestamp};

use super::operations::{
    CLAIMED, Operation, RECORD_COLUMN_COUNT, RecordRow, first_state, record_columns, to_sql,
};
use super::pool::Failure;
use crate::queue::{AttemptCharge, DeadLetterReason, Receipt, SettleOutcome, Settlement};

impl Operation<'_> {
    pub(super) async fn settle(
        &mut self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<Vec<SettleOutcome>, Failure> {
        let mut claims = self.find_claims(settlements).await?;
        let leaving = settlements.iter().filter(|(_, settlement)| {
            matches!(settlement, Settlement::Ack | Settlement::DeadLetter { .. })
        });
        let keys = leaving
            .filter_map(|(receipt, _)| claims.get(&receipt_key(receipt)?)?.0.serial_key.clone());
        let keys: BTreeSet<String> = keys.collect();
        self.lock_keys(&keys).await?;
        let mut outcomes = Vec::with_capacity(settlements.len());
        let mut sent = Vec::new();
        for (receipt, settlement) in settlements {
            let found = receipt_key(receipt).and_then(|key| claims.remove(&key));
            let Some((record, state)) = found else {
                outcomes.push(SettleOutcome::StaleReceipt);
                continue;
            };
            outcomes.push(SettleOutcome::Applied);
            if state == CLAIMED {
                self.totals.change_in_flight(-1);
            }
            match settlement {
                Settlement::Ack => sent.push(record),
                Settlement::Nack { not_before, charge } => {
                    self.return_record(record.sequence, *not_before, *charge).await?;
                }
                Settlement::Extend { lease } => {
                    self.totals.change_in_flight(1);
                    let ends = to_sql(self.now.after(Nanos::from(*lease)).as_nanos());
                    let sql = "UPDATE records SET state = 2, due_at = $2 WHERE sequence = $1";
                    self.execute(sql, &[&record.sequence, &ends]).await?;
                    // The receipt stays valid, also for the rest of this batch.
                    claims.insert((record.sequence, record.epoch), (record, CLAIMED));
                }
                Settlement::DeadLetter { detail } => {
                    let detail = DeadLetterReason::cut(detail);
                    let reason = DeadLetterReason::Rejected;
                    self.move_to_dead_letters(&[record.sequence], reason, &detail).await?;
                }
            }
        }
        self.remove_sent(&sent).await?;
        Ok(outcomes)
    }

    /// Locks the rows of receipts whose records were not settled or claimed again since, each with its state.
    async fn find_claims(
        &mut self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<HashMap<(i64, i64), (RecordRow, i64)>, Failure> {
        let receipts: Vec<(i64, i64)> =
            settlements.iter().filter_map(|(receipt, _)| receipt_key(receipt)).collect();
        let (sequences, epochs): (Vec<i64>, Vec<i64>) = receipts.into_iter().unzip();
        let queue = self.queue.id;
        let sql = concat!(
            "SELECT ",
            record_columns!(),
            ", state FROM records WHERE queue = $1 AND (sequence, epoch) IN \
             (SELECT * FROM unnest($2::bigint[], $3::bigint[])) ORDER BY sequence FOR UPDATE"
        );
        let mut claims = HashMap::new();
        for row in self.query(sql, &[&queue, &sequences, &epochs]).await? {
            let record = RecordRow::read(&row)?;
            let state: i64 = row.try_get(RECORD_COLUMN_COUNT)?;
            claims.insert((record.sequence, record.epoch), (record, state));
        }
        // A receipt of another store has other ids.
        for (receipt, _) in settlements {
            if let Some(key) = receipt_key(receipt)
                && let Some((record, _)) = claims.get(&key)
                && !self.is_own_id(receipt.record(), record.enqueued_at)
            {
                claims.remove(&key);
            }
        }
        Ok(claims)
    }

    async fn return_record(
        &mut self,
        sequence: i64,
        not_before: Timestamp,
        charge: AttemptCharge,
    ) -> Result<(), Failure> {
        let state = first_state(false, not_before, self.now);
        let failed = i64::from(charge == AttemptCharge::Failed);
        let due = to_sql(not_before.as_nanos());
        let sql = "UPDATE records SET state = $2, due_at = $3, attempts = attempts + $4, epoch = epoch + 1 \
                   WHERE sequence = $1";
        self.execute(sql, &[&sequence, &state, &due, &failed]).await
    }

    async fn remove_sent(&mut self, sent: &[RecordRow]) -> Result<(), Failure> {
        if sent.is_empty() {
            return Ok(());
        }
        let sequences: Vec<i64> = sent.iter().map(|record| record.sequence).collect();
        self.execute("DELETE FROM records WHERE sequence = ANY($1)", &[&sequences]).await?;
        self.execute("DELETE FROM payloads WHERE sequence = ANY($1)", &[&sequences]).await?;
        for record in sent {
            self.totals.remove_live(record.class, record.bytes, record.cost);
            if let Some(key) = &record.serial_key {
                self.unblock(key).await?;
            }
        }
        Ok(())
    }

    /// The first record of a key may be claimed after the one before it has left. The key must be locked.
    pub(super) async fn unblock(&mut self, key: &str) -> Result<(), Failure> {
        let sql = "UPDATE records SET state = CASE WHEN due_at > $3 THEN 1 ELSE 0 END WHERE state = 3 \
                   AND sequence = (SELECT sequence FROM records WHERE queue = $1 AND serial_key = $2 \
                   ORDER BY position LIMIT 1)";
        let (queue, now) = (self.queue.id, to_sql(self.now.as_nanos()));
        self.execute(sql, &[&queue, &key, &now]).await
    }
}

/// The sequence and the epoch of a receipt; `None` if this store did not make it.
fn receipt_key(receipt: &Receipt) -> Option<(i64, i64)> {
    Some((to_sql(receipt.record().sequence()), receipt.epoch()?))
}
