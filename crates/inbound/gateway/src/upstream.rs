//! Which server, over which connection, for how long.
//!
//! A group of hosts that do the same. Of two healthy ones taken at random the one with fewer
//! requests under way gets the next (all of them would be a race to the same host, one at random
//! an uneven load). A host that fails in a row is left alone for a while, one that fails its
//! health checks until it passes them. When nobody is left, all are tried: an answer that may
//! come is better than none.
//!
//! A request is tried again only when it cannot have been seen: the connection was refused, or
//! was gone before a byte was written. Everything else is told to the client, who knows whether
//! trying again does harm.

mod connect;
mod health;
mod host;
mod origin;
mod pool;
mod stream;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::body::{BodyProgress, BodyState, RequestBody};
use super::settings::{Problems, Timeouts, UpstreamSettings};
use super::watched_file::Stamp;
use connect::ConnectError;
use connect::Connector;
pub use host::HostState;
pub(super) use host::{Host, Lease};
use origin::Origin;

/// Times that a connection from the pool may turn out to be gone before a new one is made.
const STALE_MAX: u32 = 3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No host could be reached.
    #[error("no upstream can be reached")]
    Connect(#[source] ConnectError),
    /// The connection ended before there was an answer, or what came is none.
    #[error("the upstream did not answer as it should")]
    Broken(#[source] hyper::Error),
    /// The answer did not begin in time.
    #[error("the upstream did not answer in time")]
    Timeout,
    /// The client's body ended before its end.
    #[error("the request's body did not come")]
    Body(BodyState),
}

/// What a request needs beside itself.
pub(super) struct Errand<'r> {
    pub(super) timeouts: &'r Timeouts,
    /// When all has to be over.
    pub(super) end: Option<Instant>,
    /// How far the body has come, if there is one.
    pub(super) progress: Option<&'r Arc<BodyProgress>>,
}

/// A request, and what comes back. Both have a place of their own: they are large, and futures
/// move what they are given and what they return.
pub(super) struct Exchange {
    /// Taken when it leaves.
    pub(super) request: Option<Request<RequestBody>>,
    /// The answer, and the connection that its body comes over.
    pub(super) answered: Option<(Response<Incoming>, Lease)>,
}

impl Exchange {
    /// A request without an answer.
    pub(super) const fn of(request: Request<RequestBody>) -> Self {
        Exchange { request: Some(request), answered: None }
    }
}

/// What makes a request fit for the connection that it goes over.
pub(super) trait Dress {
    /// Fits the request to a host and a version of HTTP. May be called again for another.
    fn dress(&self, request: &mut Request<RequestBody>, version: Version, host: &Host);
}

/// A group of hosts that do the same.
#[derive(Debug)]
pub(super) struct Upstreams {
    pub(super) name: Box<str>,
    pub(super) hosts: Box<[Arc<Host>]>,
    connector: Connector,
    settings: UpstreamSettings,
    /// What its files were like when they were read.
    stamps: Stamps,
    turn: AtomicU64,
}

/// What files of certificates are like; `None` for one that is not there.
type Stamps = SmallVec<[Option<Stamp>; 3]>;

impl Upstreams {
    /// Makes a group of its settings, with whatever of the group before is as it was: all of it,
    /// or servers with their connections and health. Reads files of certificates. Blocks.
    pub(super) fn compile(
        settings: &UpstreamSettings,
        place: &str,
        before: Option<&Arc<Self>>,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        // Before they are read: a change meanwhile is then seen the next time.
        let stamps: Stamps = settings.tls.files().map(|file| Stamp::of(file).ok()).collect();
        if let Some(before) = before.filter(|group| group.is_of(settings, &stamps)) {
            return Some(Arc::clone(before));
        }
        let kept = before.filter(|group| group.connects_as(settings, &stamps));
        let hosts = compile_hosts(settings, place, kept.map(|group| &*group.hosts), problems);
        let encrypted = hosts.iter().any(|host| host.origin().is_encrypted());
        let tls = encrypted.then(|| tls::connector(&settings.tls, settings.protocol));
        let tls = match tls.transpose() {
            Ok(tls) => tls,
            Err(error) => {
                problems.add(format!("{place}.tls"), error);
                return None;
            }
        };
        let connector = problems.take(format!("{place}.tls"), Connector::new(tls, settings))?;
        Some(Arc::new(Upstreams {
            name: settings.name.clone().into_boxed_str(),
            hosts: hosts.into(),
            connector,
            settings: settings.clone(),
            stamps,
            turn: AtomicU64::new(0),
        }))
    }

    /// Whether it is what these settings and files make.
    fn is_of(&self, settings: &UpstreamSettings, stamps: &Stamps) -> bool {
        self.settings == *settings && self.stamps == *stamps
    }

    /// Whether servers of these settings are reached and judged as those here are.
    fn connects_as(&self, settings: &UpstreamSettings, stamps: &Stamps) -> bool {
        let own = &self.settings;
        own.protocol == settings.protocol
            && (&own.tls, &self.stamps) == (&settings.tls, stamps)
            && own.pool == settings.pool
            && own.ejection == settings.ejection
            // What is known of health is not kept where nobody asks any more.
            && own.health.is_some() == settings.health.is_some()
    }

    pub(super) const fn timeouts(&self) -> Timeouts {
        self.settings.timeouts
    }

    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn send(
        &self,
        exchange: &mut Exchange,
        errand: &Errand<'_>,
        dress: &impl Dress,
    ) -> Result<(), SendError> {
        let sending = std::pin::pin!(self.attempt(exchange, errand.timeouts, dress));
        let first = Instant::now() + errand.timeouts.first_byte;
        let timer = std::pin::pin!(sleep_until(first.min(errand.end.unwrap_or(first))));
        let sent = patiently(sending, timer, errand).await;
        match (&sent, errand.progress.map(|progress| progress.state())) {
            (
                Err(_),
                Some(state @ (BodyState::TooSlow | BodyState::TooLarge | BodyState::Broken)),
            ) => Err(SendError::Body(state)),
            _ => sent,
        }
    }

    async fn attempt(
        &self,
        exchange: &mut Exchange,
        timeouts: &Timeouts,
        dress: &impl Dress,
    ) -> Result<(), SendError> {
        let Exchange { request, answered } = exchange;
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        let mut stale = 0;
        loop {
            let place = self.pick(&tried);
            let Some(host) = place.and_then(|place| self.hosts.get(place)) else {
                return Err(SendError::Connect(ConnectError::NobodyLeft));
            };
            let found = host.lease(&self.connector, timeouts.connect, stale >= STALE_MAX).await;
            let mut lease = match found {
                Ok(lease) => lease,
                Err(error) => {
                    host.failed(Instant::now());
                    tried.extend(place);
                    if tried.len() < self.hosts.len() {
                        continue;
                    }
                    return Err(SendError::Connect(error));
                }
            };
            let unsent = request.as_mut().expect("a request is sent once");
            dress.dress(unsent, lease.version(), host);
            match lease.send(request).await {
                Ok(answer) => {
                    host.answered(answer.status());
                    *answered = Some((answer, lease));
                    return Ok(());
                }
                // It was gone before anything was written.
                Err(_) if request.is_some() && stale <= STALE_MAX => stale += 1,
                Err(error) => {
                    host.failed(Instant::now());
                    return Err(SendError::Broken(error));
                }
            }
        }
    }

    /// Of two hosts that can be had, the one with fewer requests; none when all were tried.
    fn pick(&self, tried: &[usize]) -> Option<usize> {
        if self.hosts.len() == 1 {
            return tried.is_empty().then_some(0);
        }
        let now = Instant::now();
        let untried = || (0..self.hosts.len()).filter(|place| !tried.contains(place));
        let well = |place: &usize| self.hosts.get(*place).is_some_and(|host| host.is_well(now));
        let mut choice: SmallVec<[usize; 8]> = untried().filter(well).collect();
        if choice.is_empty() {
            choice = untried().collect();
        }
        let draw = mixed(self.turn.fetch_add(1, Ordering::Relaxed));
        let (first, second) = two_of(choice.len(), draw)?;
        let requests = |place: usize| {
            let host = choice.get(place).and_then(|place| self.hosts.get(*place));
            host.map_or(usize::MAX, |host| host.requests())
        };
        let better = if requests(second) < requests(first) { second } else { first };
        choice.get(better).copied()
    }

    /// Asks hosts whether they are well, and forgets idle connections, until it is dropped.
    pub(super) async fn tend(&self) {
        tokio::join!(
            health::check_all(&self.hosts, &self.connector, self.settings.health.as_ref()),
            pool::sweep_all(&self.hosts, self.settings.pool.idle_timeout),
        );
    }
}

/// The servers of a group, with those that are there already.
fn compile_hosts(
    settings: &UpstreamSettings,
    place: &str,
    kept: Option<&[Arc<Host>]>,
    problems: &mut Problems,
) -> Vec<Arc<Host>> {
    let mut hosts: Vec<Arc<Host>> = Vec::new();
    for (index, text) in settings.hosts.iter().enumerate() {
        let place = format!("{place}.hosts[{index}]");
        let Some(origin) = problems.take(place, Origin::parse(text)) else { continue };
        // One that is named twice is there twice.
        let free = |host: &&Arc<Host>| !hosts.iter().any(|other| Arc::ptr_eq(other, host));
        let mut there = kept.unwrap_or_default().iter().filter(|host| *host.origin() == origin);
        let host = there.find(free).map(Arc::clone);
        hosts.push(host.unwrap_or_else(|| Arc::new(Host::new(origin, settings))));
    }
    if settings.hosts.is_empty() {
        problems.add(format!("{place}.hosts"), "a group needs a host");
    }
    hosts
}

/// Waits for an answer for as long as its body is coming, and a while longer.
async fn patiently(
    mut sending: std::pin::Pin<&mut impl Future<Output = Result<(), SendError>>>,
    mut timer: std::pin::Pin<&mut tokio::time::Sleep>,
    errand: &Errand<'_>,
) -> Result<(), SendError> {
    loop {
        tokio::select! {
            biased;
            sent = &mut sending => return sent,
            () = &mut timer => {}
        }
        let now = Instant::now();
        let over = errand.end.is_some_and(|end| now >= end);
        let due = errand.progress.map(|progress| progress.last() + errand.timeouts.first_byte);
        match due {
            Some(due) if due > now && !over => {
                timer.as_mut().reset(due.min(errand.end.unwrap_or(due)));
            }
            _ => return Err(SendError::Timeout),
        }
    }
}

/// A number whose bits all depend on the one given.
fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Two different places below `count`, or the only one twice.
fn two_of(count: usize, draw: u64) -> Option<(usize, usize)> {
    let wide = u64::try_from(count).ok().filter(|count| *count > 0)?;
    let first = draw % wide;
    let step = if wide > 1 { 1 + (draw >> 32) % (wide - 1) } else { 0 };
    let second = (first + step) % wide;
    Some((usize::try_from(first).ok()?, usize::try_from(second).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_hosts_are_drawn_each_as_often_as_the_others() {
        let mut drawn = [0_u32; 5];
        for seed in 0..10_000 {
            let (first, second) = two_of(5, mixed(seed)).unwrap();
            assert_ne!(first, second);
            drawn[first] += 1;
            drawn[second] += 1;
        }
        assert!(drawn.iter().all(|count| (3_700..4_300).contains(count)), "{drawn:?}");
        assert_eq!(two_of(1, 7), Some((0, 0)));
        assert_eq!(two_of(0, 7), None);
    }
}
