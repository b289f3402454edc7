//! How well a server does: what it is asked, and what is seen of it.
//!
//! Active checks ask on a beat and over connections of their own. Passive ejection counts
//! failures of real requests in a row; each time in a row a server is left alone for longer.
//! Whoever answers well once is forgiven the failures, and the ejections one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use http::header::{HOST, USER_AGENT};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::connect::{Connector, Opened};
use super::host::Host;
use crate::body::RequestBody;
use crate::settings::{Ejection, HealthCheck};

/// What is known of a server's health.
#[derive(Debug)]
pub(super) struct Wellness {
    ejection: Ejection,
    began: Instant,
    sick: AtomicBool,
    /// Checks in a row that say the opposite of `sick`.
    against: AtomicU32,
    failures: AtomicU32,
    ejections: AtomicU32,
    /// Nanoseconds after the beginning until which it is left alone.
    until: AtomicU64,
}

impl Wellness {
    pub(super) fn new(ejection: Ejection) -> Self {
        Wellness {
            ejection,
            began: Instant::now(),
            sick: AtomicBool::new(false),
            against: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            until: AtomicU64::new(0),
        }
    }

    pub(super) fn is_well(&self, now: Instant) -> bool {
        self.is_healthy() && !self.is_ejected(now)
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.sick.load(Ordering::Relaxed)
    }

    pub(super) fn is_ejected(&self, now: Instant) -> bool {
        self.nanos(now) < self.until.load(Ordering::Relaxed)
    }

    pub(super) fn succeeded(&self) {
        // Read before written: a healthy server's counters stay in every worker's cache.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            let fewer = self.ejections.load(Ordering::Relaxed).saturating_sub(1);
            self.ejections.store(fewer, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self, now: Instant) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.ejection.failures == 0 || failures < self.ejection.failures || self.is_ejected(now)
        {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        let times = self.ejections.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let lasting = self.ejection.base.saturating_mul(times).min(self.ejection.max);
        let nanos = u64::try_from(lasting.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(self.nanos(now).saturating_add(nanos), Ordering::Relaxed);
    }

    /// Takes note of one check's outcome. Says whether that changed anything.
    fn checked(&self, good: bool, check: &HealthCheck) -> bool {
        let sick = self.sick.load(Ordering::Relaxed);
        if good != sick {
            self.against.store(0, Ordering::Relaxed);
            return false;
        }
        let against = self.against.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let enough = if good { check.healthy_after } else { check.unhealthy_after };
        if against < enough {
            return false;
        }
        self.against.store(0, Ordering::Relaxed);
        self.sick.store(!good, Ordering::Relaxed);
        true
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Asks all hosts on a beat, until it is dropped. Without a check it waits for that.
pub(super) async fn check_all(
    hosts: &[Arc<Host>],
    connector: &Connector,
    check: Option<&HealthCheck>,
) {
    let Some(check) = check else { return std::future::pending().await };
    let mut beat = interval(check.interval.max(Duration::from_millis(10)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let mut asked = JoinSet::new();
        for host in hosts {
            let (host, connector, check) = (Arc::clone(host), connector.clone(), check.clone());
            asked.spawn(async move {
                let good = timeout(check.timeout, ask(&host, &connector, &check)).await;
                let good = good.ok().flatten().unwrap_or(false);
                if host.wellness().checked(good, &check) {
                    let authority = host.origin().authority().as_str();
                    tracing::warn!(upstream = authority, healthy = good, "upstream changed");
                }
            });
        }
        while asked.join_next().await.is_some() {}
    }
}

/// Whether the host gives a good answer. `None` when it gives none.
async fn ask(host: &Host, connector: &Connector, check: &HealthCheck) -> Option<bool> {
    let origin = host.origin();
    let opened = connector.open(origin, check.timeout).await.ok()?;
    let request = Request::get(&check.path).header(USER_AGENT, "tidegate-health-check");
    let answer = match opened {
        Opened::One(mut sender) => {
            let request = request.header(HOST, origin.field()).body(RequestBody::empty()).ok()?;
            sender.send_request(request).await
        }
        Opened::Two(mut sender) => {
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

    fn after(wellness: &Wellness, secs: u64) -> Instant {
        wellness.began + Duration::from_secs(secs)
    }

    #[tokio::test]
    async fn a_host_that_fails_in_a_row_is_left_alone_and_each_time_for_longer() {
        let wellness = Wellness::new(Ejection { failures: 2, ..Ejection::default() });
        let start = after(&wellness, 0);
        wellness.failed(start);
        wellness.succeeded();
        wellness.failed(start);
        assert!(wellness.is_well(start));
        wellness.failed(start);
        assert!(!wellness.is_well(after(&wellness, 9)));
        assert!(wellness.is_well(after(&wellness, 10)));
        wellness.failed(after(&wellness, 10));
        wellness.failed(after(&wellness, 10));
        assert!(!wellness.is_well(after(&wellness, 29)));
        assert!(wellness.is_well(after(&wellness, 30)));
    }

    #[tokio::test]
    async fn checks_take_a_host_out_and_bring_it_back() {
        let check = HealthCheck { unhealthy_after: 2, healthy_after: 2, ..HealthCheck::default() };
        let wellness = Wellness::new(Ejection::default());
        for (good, healthy) in [
            (false, true),
            (true, true),
            (false, true),
            (false, false),
            (true, false),
            (true, true),
        ] {
            wellness.checked(good, &check);
            assert_eq!(wellness.is_healthy(), healthy);
        }
    }
}
