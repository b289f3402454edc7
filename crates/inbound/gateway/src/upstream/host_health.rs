//! The health of a host: active checks, and ejection after failures.
//!
//! Active checks send a request at each interval, over their own connections. Ejection counts consecutive failures of
//! real requests; each ejection in a row lasts longer. A success resets the failures and takes back one ejection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use http::header::{HOST, USER_AGENT};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::connect::{Connector, HttpConnection};
use super::host::Host;
use crate::body::RequestBody;
use crate::settings::{Ejection, HealthCheck};

/// The health of one host.
#[derive(Debug)]
pub(super) struct HostHealth {
    ejection: Ejection,
    began: Instant,
    unhealthy: AtomicBool,
    /// Consecutive checks whose result contradicts `unhealthy`.
    contrary_checks: AtomicU32,
    failures: AtomicU32,
    ejections: AtomicU32,
    /// The end of the ejection, in nanoseconds after `began`.
    ejected_until: AtomicU64,
}

impl HostHealth {
    pub(super) fn new(ejection: Ejection) -> Self {
        HostHealth {
            ejection,
            began: Instant::now(),
            unhealthy: AtomicBool::new(false),
            contrary_checks: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
        }
    }

    pub(super) fn is_available(&self, now: Instant) -> bool {
        self.is_healthy() && !self.is_ejected(now)
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.unhealthy.load(Ordering::Relaxed)
    }

    pub(super) fn is_ejected(&self, now: Instant) -> bool {
        self.nanos(now) < self.ejected_until.load(Ordering::Relaxed)
    }

    pub(super) fn record_success(&self) {
        // Written only if it changes: the cache line of a healthy host stays shared by all workers.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            let fewer = self.ejections.load(Ordering::Relaxed).saturating_sub(1);
            self.ejections.store(fewer, Ordering::Relaxed);
        }
    }

    pub(super) fn record_failure(&self, now: Instant) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let enough = self.ejection.failures != 0 && u64::from(failures) >= self.ejection.failures;
        if !enough || self.is_ejected(now) {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        let times = self.ejections.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let duration = self.ejection.base.saturating_mul(times).min(self.ejection.max);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.ejected_until.store(self.nanos(now).saturating_add(nanos), Ordering::Relaxed);
    }

    /// Records the result of a check. Returns whether the health changed.
    fn record_check(&self, good: bool, check: &HealthCheck) -> bool {
        let unhealthy = self.unhealthy.load(Ordering::Relaxed);
        if good != unhealthy {
            self.contrary_checks.store(0, Ordering::Relaxed);
            return false;
        }
        let contrary = self.contrary_checks.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let required = if good { check.healthy_after } else { check.unhealthy_after };
        if u64::from(contrary) < required {
            return false;
        }
        self.contrary_checks.store(0, Ordering::Relaxed);
        self.unhealthy.store(!good, Ordering::Relaxed);
        true
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Checks all hosts at each interval, until it is dropped. Does nothing if there is no check.
pub(super) async fn check_all(
    hosts: &[Arc<Host>],
    connector: &Connector,
    check: Option<&HealthCheck>,
) {
    let Some(check) = check else { return std::future::pending().await };
    let mut checks = interval(check.interval.max(Duration::from_millis(10)));
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        checks.tick().await;
        let mut running = JoinSet::new();
        for host in hosts {
            let (host, connector, check) = (Arc::clone(host), connector.clone(), check.clone());
            running.spawn(async move {
                let good = timeout(check.timeout, probe(&host, &connector, &check)).await;
                let good = good.ok().flatten().unwrap_or(false);
                if host.health().record_check(good, &check) {
                    let authority = host.origin().authority().as_str();
                    tracing::warn!(
                        upstream = authority,
                        healthy = good,
                        "health of an upstream changed"
                    );
                }
            });
        }
        while running.join_next().await.is_some() {}
    }
}

/// Whether the host gives a good response. `None` when it gives none.
async fn probe(host: &Host, connector: &Connector, check: &HealthCheck) -> Option<bool> {
    let origin = host.origin();
    let opened = connector.open(origin, check.timeout).await.ok()?;
    let request = Request::get(&check.path).header(USER_AGENT, "tidegate-health-check");
    let answer = match opened {
        HttpConnection::Http1(mut connection) => {
            let request = request.header(HOST, origin.field()).body(RequestBody::empty()).ok()?;
            connection.sender.send_request(request).await
        }
        HttpConnection::Http2(mut sender) => {
            let (scheme, authority) = (origin.scheme(), origin.authority());
            let uri = format!("{scheme}://{authority}{}", check.path);
            let request = request.uri(uri).body(RequestBody::empty()).ok()?;
            sender.send_request(request).await
        }
    };
    Some(answer.ok()?.status().as_u16() < 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(health: &HostHealth, secs: u64) -> Instant {
        health.began + Duration::from_secs(secs)
    }

    #[tokio::test]
    async fn a_host_with_consecutive_failures_is_ejected_each_time_for_longer() {
        let health = HostHealth::new(Ejection { failures: 2, ..Ejection::default() });
        let start = after(&health, 0);
        health.record_failure(start);
        health.record_success();
        health.record_failure(start);
        assert!(health.is_available(start));
        health.record_failure(start);
        assert!(!health.is_available(after(&health, 9)));
        assert!(health.is_available(after(&health, 10)));
        health.record_failure(after(&health, 10));
        health.record_failure(after(&health, 10));
        assert!(!health.is_available(after(&health, 29)));
        assert!(health.is_available(after(&health, 30)));
    }

    #[tokio::test]
    async fn checks_exclude_a_host_and_bring_it_back() {
        let check = HealthCheck { unhealthy_after: 2, healthy_after: 2, ..HealthCheck::default() };
        let health = HostHealth::new(Ejection::default());
        for (good, healthy) in [
            (false, true),
            (true, true),
            (false, true),
            (false, false),
            (true, false),
            (true, true),
        ] {
            health.record_check(good, &check);
            assert_eq!(health.is_healthy(), healthy);
        }
    }
}
