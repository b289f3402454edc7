//! A set of keys at a URL, fetched again and again.
//!
//! A fetch that fails changes nothing: the last good set stays in use, and the next attempt comes after a growing pause.
//! A token with an unknown key id is a sign of new keys, so the set is fetched again, but not more often than every ten
//! seconds: anybody can send such tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::key_set::KeySet;
use crate::settings::KeySetUrl;
use crate::upstream::RemoteDocument;

/// The largest set; usual ones have some kilobytes.
const BYTES_MAX: usize = 1024 * 1024;

/// The pause after the first failure; it doubles with each further one, up to the time that a set is cached.
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// The shortest time between two fetches because of unknown key ids.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// A set of keys at a URL.
#[derive(Debug)]
pub(super) struct RemoteKeySet {
    url: String,
    document: RemoteDocument,
    cache: Duration,
    /// Notified for a token with an unknown key id.
    wanted: Notify,
    fetched: AtomicU64,
    failed: AtomicU64,
}

impl RemoteKeySet {
    /// Reads the file of trusted authorities, so it blocks.
    pub(super) fn new(settings: &KeySetUrl) -> Result<Self, String> {
        let KeySetUrl { url, cache, authority } = settings;
        Ok(RemoteKeySet {
            url: url.clone(),
            document: RemoteDocument::new(url, authority.as_deref(), BYTES_MAX)?,
            cache: *cache,
            wanted: Notify::new(),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Fetches the set before its time.
    pub(super) fn fetch_soon(&self) {
        self.wanted.notify_one();
    }

    /// The numbers of fetches that succeeded and failed.
    pub(super) fn fetches(&self) -> (u64, u64) {
        (self.fetched.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Fetches the set as long as it is polled, and passes each that differs from the last.
    pub(super) async fn keep_fetching(&self, mut replace: impl FnMut(KeySet)) {
        let mut last = String::new();
        let mut retry = RETRY_FIRST;
        loop {
            match self.fetch(&last).await {
                Ok(fetched) => {
                    self.fetched.fetch_add(1, Ordering::Relaxed);
                    retry = RETRY_FIRST;
                    if let Some((text, keys)) = fetched {
                        last = text;
                        replace(keys);
                    }
                    self.wait().await;
                }
                Err(error) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(url = self.url, %error, "cannot fetch the key set; the last one stays in use");
                    sleep(retry).await;
                    retry = retry.saturating_mul(2).min(self.cache.max(RETRY_FIRST));
                }
            }
        }
    }

    /// The set, if its text differs from the last.
    async fn fetch(&self, last: &str) -> Result<Option<(String, KeySet)>, String> {
        let text = self.document.fetch().await?;
        if text == last {
            return Ok(None);
        }
        let keys = KeySet::parse(&text)?;
        Ok(Some((text, keys)))
    }

    /// Waits until the set is too old, or a token has an unknown key id.
    async fn wait(&self) {
        let now = Instant::now();
        let Some(end) = now.checked_add(self.cache) else { return std::future::pending().await };
        sleep_until(end.min(now + FETCH_INTERVAL_MIN)).await;
        // The end of the wait in either case.
        let _ = timeout_at(end, self.wanted.notified()).await;
    }
}
