//! Every call to a remote goes through here: with a deadline, counted, and not
//! at all while the breaker is open.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Nanos, Timestamp};
use tokio::time::{Instant, timeout_at};

use super::breaker::Breaker;
use super::draw::Draw;
use super::metrics::{Counters, add, count};
use super::remote::Remote;
use crate::batch::{Answer, Answers, Batch};
use crate::counter_store::{FailureKind, StoreError};

/// The way to one remote.
#[derive(Debug)]
pub(crate) struct Gate {
    /// What logs call the remote.
    name: String,
    breaker: Mutex<Breaker>,
    /// The same as the breaker says, for those who only want to know.
    open: AtomicBool,
    last_error: Mutex<Option<StoreError>>,
}

impl Gate {
    /// An open way to the remote of this name.
    pub(crate) fn new(name: String, draw: Draw) -> Self {
        Gate {
            name,
            breaker: Mutex::new(Breaker::new(draw)),
            open: AtomicBool::new(false),
            last_error: Mutex::new(None),
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

    /// Has a batch decided in one step.
    pub(crate) async fn apply(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        answers: &mut Answers,
        deadline: Instant,
        counters: &Counters,
    ) -> Result<(), StoreError> {
        if self.is_shut() {
            return Err(self.error());
        }
        let begun = answers.len();
        let batch = &until(batch, deadline);
        let asked = async {
            remote.apply(batch, answers).await?;
            if answers.len() - begun == batch.checks.len() {
                return Ok(());
            }
            Err(incomplete())
        };
        let result = in_time(asked, deadline).await;
        self.note(result.as_ref().err(), batch.now, counters);
        if result.is_err() {
            answers.truncate(begun);
        }
        result
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
                self.note(error, batch.now, counters);
                if error.is_none() && self.is_shut() {
                    self.open_again(batch.now, counters);
                }
                results
            }
            Err(error) => {
                self.note(Some(&error), batch.now, counters);
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
        self.note(result.as_ref().err(), now, counters);
        if result.is_ok() {
            self.open_again(now, counters);
        }
        Some(result)
    }

    /// Notes how a call ended.
    fn note(&self, error: Option<&StoreError>, now: Timestamp, counters: &Counters) {
        count(&counters.commands);
        let Some(error) = error else {
            self.breaker.lock().succeeded(now);
            return;
        };
        count(&counters.failures);
        *self.last_error.lock() = Some(error.clone());
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
fn incomplete() -> StoreError {
    let reason = "it did not answer every check".to_owned();
    StoreError::Unavailable { kind: FailureKind::Protocol, reason }
}

/// The batch with the time that it has: a remote may know a deadline of its
/// own, which is not the one that counts here.
fn until<'a>(batch: &Batch<'a>, deadline: Instant) -> Batch<'a> {
    let within = deadline.saturating_duration_since(Instant::now());
    Batch { within: Some(within), ..*batch }
}

/// Waits for a call until the deadline.
async fn in_time<T>(
    call: impl Future<Output = Result<T, StoreError>>,
    deadline: Instant,
) -> Result<T, StoreError> {
    let begun = Instant::now();
    match timeout_at(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Timeout { waited: Instant::now().duration_since(begun) }),
    }
}
