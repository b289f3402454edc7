//! Queued requests in a durable queue: a restart loses neither a request nor a result.
//!
//! The table in memory decides about room and answers for states. Beside it there are two durable queues: requests that
//! wait, and results that can still be read. This process claims the requests that it stored and renews the claims; when
//! it ends, the claims lapse, and the next process gets the requests. A result is stored before its request is removed,
//! so a request is processed at least once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_overload::Caller;
use tidegate_queue::{
    AttemptCharge, BATCH_MAX, ClaimBudget, Clock, NewRecord, Queue, QueueError, QueueStore,
    Receipt, Settlement, WallClock,
};

use super::stored_form::{decode_request, decode_result, encode_request, encode_result};
use super::{
    MemoryQueue, QueueFull, QueueFuture, QueueId, QueuedRequest, QueuedState, RequestQueue,
};
use crate::settings::QueueSettings;

/// The record types.
const REQUESTS: &str = "gateway-requests";
const RESULTS: &str = "gateway-results";

/// The claim on a waiting request: after a crash it waits this long. Renewed every few seconds.
const LEASE: Duration = Duration::from_secs(60);
/// The claim on results while they are read.
const READING_LEASE: Duration = Duration::from_secs(10);

/// Requests in a durable queue.
pub struct DurableQueue {
    table: MemoryQueue,
    requests: Arc<dyn Queue>,
    results: Arc<dyn Queue>,
    /// The claims on requests of this process, with their callers.
    claims: Mutex<HashMap<QueueId, (Receipt, Caller)>>,
    /// Requests of an earlier process that were claimed and not handed out yet.
    recovered: Mutex<Vec<(QueueId, QueuedRequest)>>,
    /// Whether a field carries credentials.
    is_secret: fn(&str) -> bool,
    clock: WallClock,
}

impl DurableQueue {
    /// Opens the queues and reads the results of earlier processes. `is_secret` tells fields that carry credentials.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open(
        store: &dyn QueueStore,
        settings: QueueSettings,
        is_secret: fn(&str) -> bool,
    ) -> Result<Self, QueueError> {
        // The table in memory has the bounds, and expires requests.
        let unbounded = tidegate_queue::QueueSettings {
            age_max: None,
            ..tidegate_queue::QueueSettings::default()
        };
        let queue = DurableQueue {
            table: MemoryQueue::new(settings),
            requests: store.open_queue(REQUESTS, unbounded.clone()).await?,
            results: store.open_queue(RESULTS, unbounded).await?,
            claims: Mutex::default(),
            recovered: Mutex::default(),
            is_secret,
            clock: WallClock::new(),
        };
        queue.sweep_results().await?;
        Ok(queue)
    }

    /// Claims all requests that can be claimed: those that this process just stored, and those of an earlier one.
    async fn claim(&self) -> Result<(), QueueError> {
        let claim = self.requests.claim(ClaimBudget::records(BATCH_MAX, LEASE)).await?;
        let mut unreadable = Vec::new();
        for delivery in claim.deliveries {
            let Some((id, request)) = decode_request(&delivery.record.payload) else {
                let detail = "not written by the gateway".to_owned();
                unreadable.push((delivery.receipt, Settlement::DeadLetter { detail }));
                continue;
            };
            self.claims.lock().insert(id, (delivery.receipt, request.caller));
            if !self.table.contains(id) {
                self.table.restore(id, request.caller, QueuedState::Waiting);
                self.recovered.lock().push((id, request));
            }
        }
        if !unreadable.is_empty() {
            self.requests.settle(unreadable).await?;
        }
        Ok(())
    }

    async fn extend_claims(&self) -> Result<(), QueueError> {
        let extend = |(receipt, _): &(Receipt, Caller)| {
            (receipt.clone(), Settlement::Extend { lease: LEASE })
        };
        let settlements: Vec<_> = self.claims.lock().values().map(extend).collect();
        for part in settlements.chunks(BATCH_MAX) {
            self.requests.settle(part.to_vec()).await?;
        }
        Ok(())
    }

    /// Takes results of earlier processes into the table, and removes those that the table has forgotten.
    async fn sweep_results(&self) -> Result<(), QueueError> {
        self.table.forget_old();
        let now = self.clock.now();
        let remember = self.table.settings().remember;
        let claim = self.results.claim(ClaimBudget::records(BATCH_MAX, READING_LEASE)).await?;
        let mut settlements = Vec::with_capacity(claim.deliveries.len());
        for delivery in claim.deliveries {
            let age = Duration::from(now.since(delivery.record.enqueued_at));
            let settlement = match decode_result(&delivery.record.payload) {
                Some((id, caller, state)) if age < remember => {
                    if !self.table.contains(id) {
                        self.table.restore(id, caller, state);
                    }
                    // Not charged and not delayed: the next process reads it at once.
                    Settlement::Nack { not_before: now, charge: AttemptCharge::Free }
                }
                _ => Settlement::Ack,
            };
            settlements.push((delivery.receipt, settlement));
        }
        if !settlements.is_empty() {
            self.results.settle(settlements).await?;
        }
        Ok(())
    }

    async fn store_result(&self, id: QueueId, state: &QueuedState) -> Result<(), QueueError> {
        if !self.claims.lock().contains_key(&id) {
            self.claim().await?;
        }
        let Some((receipt, caller)) = self.claims.lock().get(&id).cloned() else { return Ok(()) };
        let record = NewRecord::new(encode_result(id, caller, state));
        self.results.enqueue(vec![record]).await?;
        self.requests.ack(vec![receipt]).await?;
        self.claims.lock().remove(&id);
        Ok(())
    }
}

impl RequestQueue for DurableQueue {
    fn push(&self, request: QueuedRequest) -> QueueFuture<'_, Result<QueueId, QueueFull>> {
        Box::pin(async move {
            let keeps_secrets = self.table.settings().keep_credentials;
            let may_store = |name: &str| keeps_secrets || !(self.is_secret)(name);
            // The id is not known yet; the payload gets it below.
            let mut payload = encode_request(QueueId::new(0), &request, may_store);
            let id = self.table.push_now(request)?;
            if let Some((_, value)) = payload.headers.first_mut() {
                *value = id.to_string().into();
            }
            let stored = self.requests.enqueue(vec![NewRecord::new(payload)]).await;
            if let Err(error) = stored {
                tracing::warn!(%error, "a request cannot be queued");
                self.table.remove(id);
                return Err(QueueFull);
            }
            // A claim that fails is repeated by `recover`.
            if let Err(error) = self.claim().await {
                tracing::warn!(%error, "queued requests cannot be claimed");
            }
            Ok(id)
        })
    }

    fn take(&self, id: QueueId) -> Option<QueuedRequest> {
        self.table.take(id)
    }

    fn settle(&self, id: QueueId, state: QueuedState) -> QueueFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = self.store_result(id, &state).await {
                tracing::warn!(%error, "the result of a queued request is kept in memory only");
            }
            self.table.settle_now(id, state);
        })
    }

    fn state(&self, id: QueueId) -> Option<QueuedState> {
        self.table.state(id)
    }

    fn resize(&self, settings: QueueSettings) {
        self.table.resize(settings);
    }

    fn recover(&self) -> QueueFuture<'_, Vec<(QueueId, QueuedRequest)>> {
        Box::pin(async move {
            let done = async {
                self.claim().await?;
                self.extend_claims().await?;
                self.sweep_results().await
            };
            if let Err(error) = done.await {
                tracing::warn!(%error, "the queue of requests cannot be maintained");
            }
            std::mem::take(&mut *self.recovered.lock())
        })
    }
}

impl std::fmt::Debug for DurableQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableQueue").field("table", &self.table).finish_non_exhaustive()
    }
}
