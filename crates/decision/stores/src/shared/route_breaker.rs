//! A circuit breaker for calls to a remote, or to one route of it. Calls have a deadline and are counted; while the
//! breaker is open they fail without being sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Limit, Nanos, Timestamp};
use tokio::time::{Instant, timeout_at};

use super::breaker::Breaker;
use super::metrics::{Counters, add, count};
use super::random::Random;
use super::remote::Remote;
use crate::batch::{Answer, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{FailureKind, StoreError};

/// The circuit breaker of one route.
#[derive(Debug)]
pub(crate) struct RouteBreaker {
    /// The name in logs.
    name: String,
    history: Mutex<CallHistory>,
    /// Whether the breaker is open, readable without the lock.
    open: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct CallHistory {
    breaker: Breaker,
    last_error: Option<StoreError>,
    /// The key of the last failed call, for probes.
    failed_key: Option<(Key, Limit)>,
}

impl RouteBreaker {
    /// A closed breaker with this name.
    pub(crate) fn new(name: String, random: Random, counters: Arc<Counters>) -> Self {
        let breaker = Breaker::new(random);
        let history = CallHistory { breaker, last_error: None, failed_key: None };
        RouteBreaker { name, history: Mutex::new(history), open: AtomicBool::new(false), counters }
    }

    /// Whether calls fail without being sent, because the remote does not answer.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// How long the breaker has been open.
    pub(crate) fn open_for(&self, now: Timestamp) -> Nanos {
        self.history.lock().breaker.open_for(now)
    }

    /// The error for calls that the open breaker rejects. Such a call certainly did not run, even if the call that
    /// opened the breaker may have.
    pub(crate) fn error(&self) -> StoreError {
        let (kind, reason) = match &self.history.lock().last_error {
            Some(StoreError::Unavailable { kind, reason }) => (*kind, reason.clone()),
            Some(error @ StoreError::Timeout { .. }) => (FailureKind::Timeout, error.to_string()),
            None => (FailureKind::Refused, "its circuit breaker is open".to_owned()),
        };
        let kind = match kind {
            FailureKind::Lost | FailureKind::Protocol | FailureKind::Other => FailureKind::Refused,
            kind => kind,
        };
        StoreError::Unavailable { kind, reason }
    }

    /// Whether a probe is due. The caller must send it if so.
    pub(crate) fn probe_due(&self, now: Timestamp) -> bool {
        self.history.lock().breaker.probe_due(now)
    }

    /// Applies each check of a batch by itself.
    pub(crate) async fn apply_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        if self.is_open() {
            return vec![Err(self.error()); batch.checks.len()];
        }
        self.probe_each(remote, batch, deadline).await
    }

    /// The same, even while the breaker is open; an answer closes it.
    pub(crate) async fn probe_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let batch = &with_deadline(batch, deadline);
        let mut results = Vec::with_capacity(batch.checks.len());
        let call = async {
            remote.apply_each(batch, &mut results).await;
            Ok(())
        };
        if let Err(error) = in_time(call, deadline).await {
            results = vec![Err(error); batch.checks.len()];
        }
        results.resize(batch.checks.len(), Err(incomplete()));
        let answered = results.iter().any(Result::is_ok);
        match results.last() {
            Some(Err(error)) if !answered => {
                self.failed(error, batch.checks.first(), batch.now);
            }
            _ => {
                self.answered(batch.now);
                if self.is_open() {
                    self.close(batch.now);
                }
            }
        }
        results
    }

    /// Makes a call that is not about counters. While the breaker is open the call is the probe, if one is due.
    pub(crate) async fn probe<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        deadline: Instant,
        now: Timestamp,
    ) -> Option<Result<T, StoreError>> {
        if self.is_open() && !self.probe_due(now) {
            return None;
        }
        let result = in_time(call, deadline).await;
        match &result {
            Ok(_) => {
                self.answered(now);
                self.close(now);
            }
            Err(error) => self.failed(error, None, now),
        }
        Some(result)
    }

    /// Probes by peeking at the key of the last failed call. A peek, because a probe may be lost, and a charge with it.
    pub(crate) async fn probe_failed_key(
        &self,
        remote: &impl Remote,
        deadline: Instant,
        now: Timestamp,
    ) {
        let failed = self.history.lock().failed_key.clone();
        let Some((key, limit)) = failed else {
            // No key to probe with: let the next request try.
            return self.close(now);
        };
        let checks = [Check::new(key, &limit, 0)];
        let batch = Batch::new(Verb::Peek, Charge::Always, now, &checks);
        self.probe_each(remote, &batch, deadline).await;
    }

    /// Counts a call that was answered.
    pub(crate) fn answered(&self, now: Timestamp) {
        count(&self.counters.commands);
        self.history.lock().breaker.succeeded(now);
    }

    /// Counts a call that failed, and remembers one of its checks.
    pub(crate) fn failed(&self, error: &StoreError, check: Option<&Check<'_>>, now: Timestamp) {
        count(&self.counters.commands);
        count(&self.counters.failures);
        let mut history = self.history.lock();
        history.last_error = Some(error.clone());
        if let Some(check) = check {
            history.failed_key = Some((check.key, check.limit.clone()));
        }
        let opened = history.breaker.failed(now);
        self.open.store(history.breaker.is_open(), Ordering::Relaxed);
        drop(history);
        if opened {
            count(&self.counters.outages);
            tracing::warn!(store = %self.name, %error, "the shared store fails; limits follow on_store_error");
        }
    }

    fn close(&self, now: Timestamp) {
        let mut history = self.history.lock();
        let lasted = history.breaker.close(now);
        self.open.store(false, Ordering::Relaxed);
        drop(history);
        if let Some(lasted) = lasted {
            add(&self.counters.degraded_nanos, lasted.get());
            tracing::info!(store = %self.name, %lasted, "the shared store is back");
        }
    }
}

/// The error of a reply with too few answers: the checks may have run.
pub(super) fn incomplete() -> StoreError {
    let reason = "it did not answer every check".to_owned();
    StoreError::Unavailable { kind: FailureKind::Protocol, reason }
}

/// The batch with the remaining time, which overrides the remote's own default deadline.
pub(super) fn with_deadline<'a>(batch: &Batch<'a>, deadline: Instant) -> Batch<'a> {
    let within = deadline.saturating_duration_since(Instant::now());
    Batch { within: Some(within), ..*batch }
}

/// Awaits a call until the deadline.
pub(super) async fn in_time<T>(
    call: impl Future<Output = Result<T, StoreError>>,
    deadline: Instant,
) -> Result<T, StoreError> {
    let started = Instant::now();
    timeout_at(deadline, call)
        .await
        .unwrap_or_else(|_| Err(StoreError::Timeout { waited: started.elapsed() }))
}
