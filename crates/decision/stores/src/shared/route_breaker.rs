//! A circuit breaker for calls to a remote, or to one route of it. Calls have a deadline and are counted; while the
//! breaker is open they fail without being sent.

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
    breaker: Mutex<Breaker>,
    /// A copy of the breaker's state, readable without the lock.
    open: AtomicBool,
    last_error: Mutex<Option<StoreError>>,
    /// The key of the last failed call, for probes.
    failed_key: Mutex<Option<(Key, Limit)>>,
}

impl RouteBreaker {
    /// A closed breaker with this name.
    pub(crate) fn new(name: String, random: Random) -> Self {
        RouteBreaker {
            name,
            breaker: Mutex::new(Breaker::new(random)),
            open: AtomicBool::new(false),
            last_error: Mutex::new(None),
            failed_key: Mutex::new(None),
        }
    }

    /// Whether calls fail without being sent, because the remote does not answer.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// How long the breaker has been open.
    pub(crate) fn open_for(&self, now: Timestamp) -> Nanos {
        self.breaker.lock().open_for(now)
    }

    /// The error for calls that the open breaker rejects. Such a call certainly did not run, even if the call that
    /// opened the breaker may have.
    pub(crate) fn error(&self) -> StoreError {
        let last = self.last_error.lock();
        let (kind, reason) = match &*last {
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
        self.breaker.lock().probe_due(now)
    }

    /// Applies each check of a batch by itself.
    pub(crate) async fn apply_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
        counters: &Counters,
    ) -> Vec<Result<Answer, StoreError>> {
        if self.is_open() {
            return batch.checks.iter().map(|_| Err(self.error())).collect();
        }
        self.probe_each(remote, batch, deadline, counters).await
    }

    /// The same, even while the breaker is open; an answer closes it.
    pub(crate) async fn probe_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
        counters: &Counters,
    ) -> Vec<Result<Answer, StoreError>> {
        let failed = |error: &StoreError| batch.checks.iter().map(|_| Err(error.clone())).collect();
        let batch = &with_deadline(batch, deadline);
        let call = async {
            let mut results = Vec::with_capacity(batch.checks.len());
            remote.apply_each(batch, &mut results).await;
            results.resize(batch.checks.len(), Err(incomplete()));
            Ok(results)
        };
        match in_time(call, deadline).await {
            Ok(results) => {
                let failures = results.iter().filter_map(|result| result.as_ref().err());
                let all_failed = failures.clone().count() == results.len();
                let error = failures.clone().next_back().filter(|_| all_failed);
                match error {
                    Some(error) => self.failed(error, batch.checks.first(), batch.now, counters),
                    None => self.answered(batch.now, counters),
                }
                if error.is_none() && self.is_open() {
                    self.close(batch.now, counters);
                }
                results
            }
            Err(error) => {
                self.failed(&error, batch.checks.first(), batch.now, counters);
                failed(&error)
            }
        }
    }

    /// Makes a call that is not about counters. While the breaker is open the call is the probe, if one is due.
    pub(crate) async fn probe<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        deadline: Instant,
        now: Timestamp,
        counters: &Counters,
    ) -> Option<Result<T, StoreError>> {
        if self.is_open() && !self.probe_due(now) {
            return None;
        }
        let result = in_time(call, deadline).await;
        match &result {
            Ok(_) => {
                self.answered(now, counters);
                self.close(now, counters);
            }
            Err(error) => self.failed(error, None, now, counters),
        }
        Some(result)
    }

    /// Probes by peeking at the key of the last failed call. A peek, because a probe may be lost, and a charge with it.
    pub(crate) async fn probe_failed_key(
        &self,
        remote: &impl Remote,
        deadline: Instant,
        now: Timestamp,
        counters: &Counters,
    ) {
        let failed = self.failed_key.lock().clone();
        let Some((key, limit)) = failed else {
            // No key to probe with: let the next request try.
            return self.close(now, counters);
        };
        let checks = [Check::new(key, &limit, 0)];
        let batch = Batch::new(Verb::Peek, Charge::Always, now, &checks);
        self.probe_each(remote, &batch, deadline, counters).await;
    }

    /// Counts a call that was answered.
    pub(crate) fn answered(&self, now: Timestamp, counters: &Counters) {
        count(&counters.commands);
        self.breaker.lock().succeeded(now);
    }

    /// Counts a call that failed, and remembers one of its checks.
    pub(crate) fn failed(
        &self,
        error: &StoreError,
        check: Option<&Check<'_>>,
        now: Timestamp,
        counters: &Counters,
    ) {
        count(&counters.commands);
        count(&counters.failures);
        *self.last_error.lock() = Some(error.clone());
        if let Some(check) = check {
            *self.failed_key.lock() = Some((check.key, check.limit.clone()));
        }
        let opened = {
            let mut breaker = self.breaker.lock();
            let opened = breaker.failed(now);
            self.open.store(breaker.is_open(), Ordering::Relaxed);
            opened
        };
        if opened {
            count(&counters.outages);
            tracing::warn!(store = %self.name, %error, "the shared store fails; limits follow on_store_error");
        }
    }

    fn close(&self, now: Timestamp, counters: &Counters) {
        let lasted = {
            let mut breaker = self.breaker.lock();
            let lasted = breaker.close(now);
            self.open.store(breaker.is_open(), Ordering::Relaxed);
            lasted
        };
        if let Some(lasted) = lasted {
            add(&counters.degraded_nanos, lasted.get());
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
    match timeout_at(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Timeout { waited: Instant::now().duration_since(started) }),
    }
}
