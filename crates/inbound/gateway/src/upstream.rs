//! Sends requests to upstreams: choice of a host, connections, timeouts and retries.
//!
//! A group consists of interchangeable hosts. Of two random available hosts, the one with fewer requests in flight
//! gets the next (choosing the least loaded of all would make gateways rush to the same host; one at random is
//! uneven). A host with several failures in a row is ejected for a while; one that fails its health checks is
//! excluded until it passes them. When no host is available, all are tried.
//!
//! A request is retried only when the upstream cannot have seen it: the connection was refused, or closed before a byte
//! was written. Any other failure is returned to the client, which knows whether a retry is safe.

mod chunks;
mod connect;
mod fetch;
mod handover;
mod host;
mod host_health;
mod long_body;
mod origin;
mod pool;
mod response_framing;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::body::{BodyProgress, BodyState, RequestBody};
use super::settings::{Problems, Timeouts, UpstreamSettings};
use super::watched_file::FileStamp;
use connect::ConnectError;
use connect::Connector;
pub(super) use fetch::RemoteDocument;
pub use host::HostState;
pub(super) use host::{ConnectionLease, Host};
pub(super) use long_body::UpstreamBody;
use origin::Origin;
use response_framing::ResponseFraming;

/// How many pooled connections may turn out to be closed before a new one is opened.
const STALE_MAX: u32 = 3;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No host could be reached.
    #[error("no upstream can be reached")]
    Connect(#[source] ConnectError),
    /// The connection ended before a response, or the response is not valid HTTP.
    #[error("the upstream did not send a valid response")]
    Broken(#[source] hyper::Error),
    /// The end of the response's body can be read in more than one way, or not at all.
    #[error("the upstream's response has a transfer coding that was not asked for")]
    Framing,
    /// The response did not begin in time.
    #[error("the upstream did not respond in time")]
    Timeout,
    /// The client did not send its body completely.
    #[error("the body of the request is incomplete")]
    Body(BodyState),
}

/// How a request is sent.
pub(super) struct SendOptions<'r> {
    pub(super) timeouts: &'r Timeouts,
    /// The deadline of the whole request.
    pub(super) end: Option<Instant>,
    /// The progress of the body, if there is one.
    pub(super) progress: Option<&'r Arc<BodyProgress>>,
}

impl SendOptions<'_> {
    /// How the client failed to send its body, if it did. That is no failure of the upstream.
    fn failed_body(&self) -> Option<BodyState> {
        self.progress.map(|progress| progress.state()).filter(|state| state.is_failure())
    }
}

/// A request and its response. Passed by reference: both are large, and a future would copy its arguments and result.
pub(super) struct Exchange {
    /// Taken when it is sent.
    pub(super) request: Option<Request<RequestBody>>,
    /// The response, and the connection that its body is read from.
    pub(super) answered: Option<(Response<Incoming>, ConnectionLease)>,
}

impl Exchange {
    /// A request without a response yet.
    pub(super) const fn of(request: Request<RequestBody>) -> Self {
        Exchange { request: Some(request), answered: None }
    }
}

/// Adapts a request to the connection that it is sent over.
pub(super) trait AdaptRequest {
    /// Adapts the request to a host and a version of HTTP. Called again for each retry.
    fn adapt(&self, request: &mut Request<RequestBody>, version: Version, host: &Host);
}

/// A group of interchangeable hosts.
#[derive(Debug)]
pub(super) struct UpstreamGroup {
    pub(super) name: Box<str>,
    pub(super) hosts: Box<[Arc<Host>]>,
    connector: Connector,
    settings: UpstreamSettings,
    /// The versions of its files when they were read.
    stamps: FileStamps,
    /// Incremented for each random choice.
    random_seed: AtomicU64,
}

/// The versions of certificate files; `None` for one that does not exist.
type FileStamps = SmallVec<[Option<FileStamp>; 3]>;

impl UpstreamGroup {
    /// Compiles a group. Reuses the previous one if nothing changed, or its hosts with their connections and health.
    /// Reads certificate files, so it blocks.
    pub(super) fn compile(
        settings: &UpstreamSettings,
        location: &str,
        previous: Option<&Arc<Self>>,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        // Before they are read: a change in between is noticed by the next reload.
        let stamps: FileStamps =
            settings.tls.files().map(|file| FileStamp::of(file).ok()).collect();
        if let Some(same) = previous.filter(|group| group.is_unchanged(settings, &stamps)) {
            return Some(Arc::clone(same));
        }
        let kept = previous.filter(|group| group.has_same_hosts(settings, &stamps));
        let hosts = compile_hosts(settings, location, kept.map(|group| &*group.hosts), problems);
        let encrypted = hosts.iter().any(|host| host.origin().is_encrypted());
        let tls = encrypted.then(|| settings.tls.connector(settings.protocol.alpn()));
        let tls = match tls.transpose() {
            Ok(tls) => tls,
            Err(error) => {
                problems.add(format!("{location}.tls"), error);
                return None;
            }
        };
        let connector = problems.take(format!("{location}.tls"), Connector::new(tls, settings))?;
        Some(Arc::new(UpstreamGroup {
            name: settings.name.clone().into_boxed_str(),
            hosts: hosts.into(),
            connector,
            settings: settings.clone(),
            stamps,
            random_seed: AtomicU64::new(0),
        }))
    }

    /// Whether these settings and files would give the same group.
    fn is_unchanged(&self, settings: &UpstreamSettings, stamps: &FileStamps) -> bool {
        self.settings == *settings && self.stamps == *stamps
    }

    /// Whether hosts with these settings are reached and judged like those of this group.
    fn has_same_hosts(&self, settings: &UpstreamSettings, stamps: &FileStamps) -> bool {
        let own = &self.settings;
        own.protocol == settings.protocol
            && (&own.tls, &self.stamps) == (&settings.tls, stamps)
            && own.pool == settings.pool
            && own.ejection == settings.ejection
            // The result of health checks is dropped when there are none any more.
            && own.health.is_some() == settings.health.is_some()
    }

    pub(super) const fn timeouts(&self) -> Timeouts {
        self.settings.timeouts
    }

    /// Sends a request, and waits for the head of the response.
    pub(super) async fn send(
        &self,
        exchange: &mut Exchange,
        options: &SendOptions<'_>,
        adapter: &impl AdaptRequest,
    ) -> Result<(), SendError> {
        let sending = std::pin::pin!(self.attempt(exchange, options, adapter));
        let first = Instant::now() + options.timeouts.first_byte;
        let timer = std::pin::pin!(sleep_until(first.min(options.end.unwrap_or(first))));
        let sent = wait_for_response(sending, timer, options).await;
        match (&sent, options.failed_body()) {
            (Err(_), Some(state)) => Err(SendError::Body(state)),
            _ => sent,
        }
    }

    async fn attempt(
        &self,
        exchange: &mut Exchange,
        options: &SendOptions<'_>,
        adapter: &impl AdaptRequest,
    ) -> Result<(), SendError> {
        let Exchange { request, answered } = exchange;
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let mut stale = 0;
        loop {
            let index = self.pick_host(&tried);
            let Some(host) = index.and_then(|index| self.hosts.get(index)) else {
                return Err(SendError::Connect(ConnectError::NoHostLeft));
            };
            let found = host.lease(&self.connector, options.timeouts.connect, stale >= STALE_MAX);
            let mut lease = match found.await {
                Ok(lease) => lease,
                Err(error) => {
                    if !error.is_local() {
                        host.record_failure(Instant::now());
                    }
                    tried.extend(index);
                    if tried.len() < self.hosts.len() {
                        continue;
                    }
                    return Err(SendError::Connect(error));
                }
            };
            let unsent = request.as_mut().expect("a request is sent once");
            adapter.adapt(unsent, lease.version(), host);
            match lease.send(request).await {
                Ok(mut answer) => {
                    host.record_response(answer.status());
                    match response_framing::check(&mut answer) {
                        ResponseFraming::Clear => {}
                        ResponseFraming::Ambiguous => lease.forbid_reuse(),
                        ResponseFraming::Unknown => {
                            host.record_failure(Instant::now());
                            return Err(SendError::Framing);
                        }
                    }
                    *answered = Some((answer, lease));
                    return Ok(());
                }
                // The connection was closed before anything was written.
                Err(_) if request.is_some() && stale <= STALE_MAX => stale += 1,
                Err(error) => {
                    if options.failed_body().is_none() {
                        host.record_failure(Instant::now());
                    }
                    return Err(SendError::Broken(error));
                }
            }
        }
    }

    /// The index of the host with fewer requests among two random available ones. `None` when all were tried.
    fn pick_host(&self, tried: &[usize]) -> Option<usize> {
        if self.hosts.len() == 1 {
            return tried.is_empty().then_some(0);
        }
        let now = Instant::now();
        let untried = || (0..self.hosts.len()).filter(|index| !tried.contains(index));
        let available =
            |index: &usize| self.hosts.get(*index).is_some_and(|host| host.is_available(now));
        let mut choice: SmallVec<[usize; 8]> = untried().filter(available).collect();
        if choice.is_empty() {
            choice = untried().collect();
        }
        let random = random(self.random_seed.fetch_add(1, Ordering::Relaxed));
        let (first, second) = two_of(choice.len(), random)?;
        let requests = |position: usize| {
            let host = choice.get(position).and_then(|index| self.hosts.get(*index));
            host.map_or(usize::MAX, |host| host.requests())
        };
        let better = if requests(second) < requests(first) { second } else { first };
        choice.get(better).copied()
    }

    /// Runs health checks and closes idle connections, until it is dropped.
    pub(super) async fn maintain(&self) {
        tokio::join!(
            host_health::check_all(&self.hosts, &self.connector, self.settings.health.as_ref()),
            pool::sweep_all(&self.hosts, self.settings.pool.idle_timeout),
        );
    }
}

/// The hosts of a group, reusing existing ones.
fn compile_hosts(
    settings: &UpstreamSettings,
    location: &str,
    kept: Option<&[Arc<Host>]>,
    problems: &mut Problems,
) -> Vec<Arc<Host>> {
    let mut hosts: Vec<Arc<Host>> = Vec::new();
    for (index, text) in settings.hosts.iter().enumerate() {
        let location = format!("{location}.hosts[{index}]");
        let Some(origin) = problems.take(location, Origin::parse(text)) else { continue };
        // A host that is listed twice exists twice.
        let unused = |host: &&Arc<Host>| !hosts.iter().any(|other| Arc::ptr_eq(other, host));
        let mut existing = kept.unwrap_or_default().iter().filter(|host| *host.origin() == origin);
        let host = existing.find(unused).map(Arc::clone);
        hosts.push(host.unwrap_or_else(|| Arc::new(Host::new(origin, settings))));
    }
    if settings.hosts.is_empty() {
        problems.add(format!("{location}.hosts"), "a group needs a host");
    }
    hosts
}

/// Waits for the response. The timeout begins again whenever a part of the request's body arrives.
async fn wait_for_response(
    mut sending: std::pin::Pin<&mut impl Future<Output = Result<(), SendError>>>,
    mut timer: std::pin::Pin<&mut tokio::time::Sleep>,
    options: &SendOptions<'_>,
) -> Result<(), SendError> {
    loop {
        tokio::select! {
            biased;
            sent = &mut sending => return sent,
            () = &mut timer => {}
        }
        let now = Instant::now();
        let over = options.end.is_some_and(|end| now >= end);
        let due = options.progress.map(|progress| progress.last() + options.timeouts.first_byte);
        match due {
            Some(due) if due > now && !over => {
                timer.as_mut().reset(due.min(options.end.unwrap_or(due)));
            }
            _ => return Err(SendError::Timeout),
        }
    }
}

/// A pseudorandom number for a seed (the finalizer of SplitMix64).
fn random(seed: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Two different numbers below `count`, or the only one twice.
fn two_of(count: usize, random: u64) -> Option<(usize, usize)> {
    let wide = u64::try_from(count).ok().filter(|count| *count > 0)?;
    let first = random % wide;
    let step = if wide > 1 { 1 + (random >> 32) % (wide - 1) } else { 0 };
    let second = (first + step) % wide;
    Some((usize::try_from(first).ok()?, usize::try_from(second).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_hosts_are_chosen_all_equally_often() {
        let mut chosen = [0_u32; 5];
        for seed in 0..10_000 {
            let (first, second) = two_of(5, random(seed)).unwrap();
            assert_ne!(first, second);
            chosen[first] += 1;
            chosen[second] += 1;
        }
        assert!(chosen.iter().all(|count| (3_700..4_300).contains(count)), "{chosen:?}");
        assert_eq!(two_of(1, 7), Some((0, 0)));
        assert_eq!(two_of(0, 7), None);
    }
}
