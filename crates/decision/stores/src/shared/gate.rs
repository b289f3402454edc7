//! Every call to a remote goes through here: with a deadline, counted, and not
//! at all while the breaker is open.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Limit, Nanos, Timestamp};
use tokio::time::{Instant, timeout_at};

use super::breaker::Breaker;
use super::draw::Draw;
use super::metrics::{Counters, add, count};
use super::remote::Remote;
use crate::batch::{Answer, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{FailureKind, StoreError};

/// The way to one remote, or to a part of it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// What logs call it.
    name: String,
    breaker: Mutex<Breaker>,
    /// The same as the breaker says, for those who only want to know.
    open: AtomicBool,
    last_error: Mutex<Option<StoreError>>,
    /// A key that was asked for in vain, to probe with.
    missed: Mutex<Option<(Key, Limit)>>,
}

impl Gate {
    /// An open way to the remote of this name.
    pub(crate) fn new(name: String, draw: Draw) -> Self {
        Gate {
            name,
            breaker: Mutex::new(Breaker::new(draw)),
            open: AtomicBool::new(false),
            last_error: Mutex::new(None),
            missed: Mutex::new(None),
        }
    }

    /// Whether the remote is not asked, because it does not answer.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// How long the remote has not been asked.
    pub(crate) fn shut_for(&self, now: Timestamp) -> Nanos {
        self.breaker.lock().open_for(now)
    }

    /// Why the remote is not asked. That says nothing ran, also when the last
    /// call that failed may have.
    pub(crate) fn error(&self) -> StoreError {
        let last = self.last_error.lock();
        let (kind, reason) = match &*last {
            Some(StoreError::Unavailable { kind, reason }) => (*kind, reason.clone()),
            Some(error @ StoreError::Timeout { .. }) => (FailureKind::Timeout, error.to_string()),
            None => (FailureKind::Refused, "it is not asked".to_owned()),
        };
        let kind = match kind {
            FailureKind::Lost | FailureKind::Protocol | FailureKind::Other => FailureKind::Refused,
            kind => kind,
        };
        StoreError::Unavailable { kind, reason }
    }

    /// Whether a probe should be sent now; whoever is told so sends one.
    pub(crate) fn probe_due(&self, now: Timestamp) -> bool {
        self.breaker.lock().probe_due(now)
    }

    /// Has each check of a batch decided by itself.
    pub(crate) async fn each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
        counters: &Counters,
    ) -> Vec<Result<Answer, StoreError>> {
        if self.is_shut() {
            return batch.checks.iter().map(|_| Err(self.error())).collect();
        }
        self.probe_each(remote, batch, deadline, counters).await
    }

    /// The same, also while the breaker is open; an answer closes it.
    pub(crate) async fn probe_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
        counters: &Counters,
    ) -> Vec<Result<Answer, StoreError>> {
        let failed = |error: &StoreError| batch.checks.iter().map(|_| Err(error.clone())).collect();
        let batch = &until(batch, deadline);
        let asked = async {
            let mut results = Vec::with_capacity(batch.checks.len());
            remote.each(batch, &mut results).await;
            results.resize(batch.checks.len(), Err(incomplete()));
            Ok(results)
        };
        match in_time(asked, deadline).await {
            Ok(results) => {
                let failures = results.iter().filter_map(|result| result.as_ref().err());
                let all_failed = failures.clone().count() == results.len();
                let error = failures.clone().next_back().filter(|_| all_failed);
                match error {
                    Some(error) => self.failed(error, batch.checks.first(), batch.now, counters),
                    None => self.answered(batch.now, counters),
                }
                if error.is_none() && self.is_shut() {
                    self.open_again(batch.now, counters);
                }
                results
            }
            Err(error) => {
                self.failed(&error, batch.checks.first(), batch.now, counters);
                failed(&error)
            }
        }
    }

    /// Makes a call that is not about counters; while the breaker is open it
    /// is the probe, if one is due.
    pub(crate) async fn probe<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        deadline: Instant,
        now: Timestamp,
        counters: &Counters,
    ) -> Option<Result<T, StoreError>> {
        if self.is_shut() && !self.probe_due(now) {
            return None;
        }
        let result = in_time(call, deadline).await;
        match &result {
            Ok(_) => {
                self.answered(now, counters);
                self.open_again(now, counters);
            }
            Err(error) => self.failed(error, None, now, counters),
        }
        Some(result)
    }

    /// Probes with a key that was asked for in vain, by a peek: a probe may be
    /// lost, and what it carries with it.
    pub(crate) async fn probe_known(
        &self,
        remote: &impl Remote,
        deadline: Instant,
        now: Timestamp,
        counters: &Counters,
    ) {
        let missed = self.missed.lock().clone();
        let Some((key, limit)) = missed else {
            // The next request finds out.
            return self.open_again(now, counters);
        };
        let checks = [Check::new(key, &limit, 0)];
        let batch = Batch::new(Verb::Peek, Charge::Always, now, &checks);
        self.probe_each(remote, &batch, deadline, counters).await;
    }

    /// Notes that a call was answered.
    pub(crate) fn answered(&self, now: Timestamp, counters: &Counters) {
        count(&counters.commands);
        self.breaker.lock().succeeded(now);
    }

    /// Notes that a call failed, and a check that it was about.
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
            *self.missed.lock() = Some((check.key, check.limit.clone()));
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

    fn open_again(&self, now: Timestamp, counters: &Counters) {
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

/// The remote answered, but not everything: what it executed is anyone's guess.
pub(super) fn incomplete() -> StoreError {
    let reason = "it did not answer every check".to_owned();
    StoreError::Unavailable { kind: FailureKind::Protocol, reason }
}

/// The batch with the time that it has: a remote may know a deadline of its
/// own, which is not the one that counts here.
pub(super) fn until<'a>(batch: &Batch<'a>, deadline: Instant) -> Batch<'a> {
    let within = deadline.saturating_duration_since(Instant::now());
    Batch { within: Some(within), ..*batch }
}

/// Waits for a call until the deadline.
pub(super) async fn in_time<T>(
    call: impl Future<Output = Result<T, StoreError>>,
    deadline: Instant,
) -> Result<T, StoreError> {
    let begun = Instant::now();
    match timeout_at(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Timeout { waited: Instant::now().duration_since(begun) }),
    }
}
