//! Asking the script until it could decide.
//!
//! Mostly once. The script cannot settle a state that was written under other
//! parameters, nor find a calendar's window: it then does nothing and tells
//! what it found. Rust settles that and asks again, with "if this is still what
//! is there, read it as that". Someone else may have written meanwhile; the
//! script then goes by what is there, and may say again that it cannot.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Limit, State, Timestamp};
use tokio::time::Instant;

use super::RedisStore;
use super::codec::{Order, Reply, Request, Settled, decode_state, encode_state};
use super::failure::{failure, of_code};
use super::parcel::Receipt;
use super::replay::{Decisions, Replay, States, is_list};
use crate::batch::{Batch, Check};
use crate::counter_store::{FailureKind, StoreError};

/// The limits of a batch as they are kept.
pub(super) type Limits<'a> = SmallVec<[Cow<'a, Limit>; 4]>;

/// Each round that fails means that somebody else wrote in between.
const ROUNDS_MAX: usize = 16;

/// One request on its way to a decision.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    store: &'a RedisStore,
    order: Order,
    checks: &'a [Check<'a>],
    limits: &'a [Cow<'a, Limit>],
    /// The caller's clock.
    now: Timestamp,
    within: Duration,
    until: Instant,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        store: &'a RedisStore,
        batch: &'a Batch<'a>,
        limits: &'a [Cow<'a, Limit>],
    ) -> Self {
        let within = batch.within.unwrap_or(store.deadline);
        let order = match Order::of(batch) {
            // For one check they are the same.
            Order::Always if batch.checks.len() == 1 => Order::All,
            order => order,
        };
        Exchange {
            store,
            order,
            checks: batch.checks,
            limits,
            now: batch.now,
            within,
            until: Instant::now() + within,
        }
    }

    /// The same question with another order.
    pub(super) fn ordered(self, order: Order) -> Self {
        Exchange { order, ..self }
    }

    /// Lets slots live on; whether they were there.
    pub(super) async fn renew(&self) -> Result<bool, StoreError> {
        if !self.limits.iter().all(|limit| limit.algorithm().holds_slots()) {
            return Ok(false);
        }
        let receipt = self.send(Order::Renew, self.store.expected(self.now), &[]).await?;
        match Reply::read(&receipt.body, 1, false) {
            Some(Reply::Decided { told, .. }) => Ok(told.first() == Some(&&b"1"[..])),
            Some(Reply::Failed(words)) => Err(failed(&words)),
            _ => Err(nonsense(&receipt)),
        }
    }

    /// Sends the checks until they are decided.
    pub(super) async fn decide(&self) -> Result<Decisions, StoreError> {
        let mut expected = self.store.expected(self.now);
        let mut settled = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let receipt = self.send(self.order, expected, &settled).await?;
            let replay = self.replay(receipt.now);
            match self.read(&receipt)? {
                Reply::Decided { charged, told } => {
                    let decided = replay.decisions(&told).ok_or_else(|| nonsense(&receipt))?;
                    return self.agreed(decided, charged);
                }
                Reply::Stale(raws) => settled = self.settle(&raws, receipt.now),
                Reply::Odd(raws) => {
                    if let Some(decisions) = self.swap(&raws, &replay).await? {
                        return Ok(decisions);
                    }
                }
                Reply::Failed(words) => return Err(failed(&words)),
            }
            expected = receipt.now;
        }
        Err(unusable(format!(
            "others wrote to the same key {ROUNDS_MAX} times while its state was brought in line with a changed limit"
        )))
    }

    async fn send(
        &self,
        order: Order,
        expected: Timestamp,
        settled: &[Settled],
    ) -> Result<Receipt, StoreError> {
        let (checks, limits) = (self.checks, self.limits);
        let request = Request { order, checks, limits, expected, settled };
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::Timeout { waited: self.within });
        }
        let parcel = request.parcel(&self.store.prefix);
        let receipt = self.store.courier.send(parcel, left).await?;
        self.store.learn(self.now, receipt.now);
        Ok(receipt)
    }

    fn read<'r>(&self, receipt: &'r Receipt) -> Result<Reply<'r>, StoreError> {
        let lone_bucket = self.order == Order::All
            && self.checks.len() == 1
            && self.limits.iter().all(|limit| is_hard_bucket(limit));
        let reply = Reply::read(&receipt.body, self.checks.len(), lone_bucket);
        reply.ok_or_else(|| nonsense(receipt))
    }

    const fn replay(&self, now: Timestamp) -> Replay<'a> {
        Replay { order: self.order, checks: self.checks, limits: self.limits, now }
    }

    /// The script has charged, or it has not: both sides must have come to that.
    fn agreed(&self, decided: (Decisions, bool), charged: bool) -> Result<Decisions, StoreError> {
        let (decisions, charges) = decided;
        let lone = self.checks.len() == 1;
        if charges == charged || (lone && self.limits.iter().all(|limit| is_hard_bucket(limit))) {
            return Ok(decisions);
        }
        Err(unusable("the script decided otherwise than its states say".to_owned()))
    }

    /// What the states that were found mean at this instant.
    fn settle(&self, raws: &[&[u8]], now: Timestamp) -> Vec<Settled> {
        let mut settled: Vec<Settled> = Vec::new();
        for (index, (raw, limit)) in raws.iter().zip(self.limits).enumerate() {
            let key = self.checks[index].key;
            let is_twin = self.checks[..index].iter().any(|other| other.key == key);
            if raw.is_empty() || is_twin || is_list(limit) {
                continue;
            }
            let mut state = decode_state(raw);
            limit.settle(&mut state, now);
            let becomes = encode_state(&state);
            if becomes != *raw {
                let lives = lives(&state, now);
                settled.push(Settled { index, was: raw.to_vec(), becomes, lives });
            }
        }
        settled
    }

    /// Decides here what the script cannot, and puts the outcome in place if
    /// nobody has written since; `None` when somebody has.
    async fn swap(
        &self,
        raws: &[&[u8]],
        replay: &Replay<'a>,
    ) -> Result<Option<Decisions>, StoreError> {
        if self.limits.iter().any(|limit| is_list(limit)) {
            return Err(unusable(
                "a request asks one key under two limits of different shape, beside a sliding log \
                 or a concurrency limit; give the limits counters of their own"
                    .to_owned(),
            ));
        }
        let states = replay.states(raws).ok_or_else(|| unusable("no states were told".into()))?;
        let ((decisions, _), after) = replay.judge(states);
        let swapped = self.swapped(raws, &after, replay.now);
        let receipt = self.send(Order::Swap, replay.now, &swapped).await?;
        match self.read(&receipt)? {
            Reply::Decided { .. } => Ok(Some(decisions)),
            Reply::Failed(words) => Err(failed(&words)),
            Reply::Stale(_) | Reply::Odd(_) => Ok(None),
        }
    }

    fn swapped(&self, raws: &[&[u8]], after: &States, now: Timestamp) -> Vec<Settled> {
        let outcome = |(key, state): &(_, State)| {
            let index = self.checks.iter().position(|check| check.key.fingerprint == *key)?;
            let was = raws.get(index)?.to_vec();
            Some(Settled { index, was, becomes: encode_state(state), lives: lives(state, now) })
        };
        after.iter().filter_map(outcome).collect()
    }
}

/// For how many seconds a state matters.
fn lives(state: &State, now: Timestamp) -> u64 {
    state.idle_at().since(now).as_secs_ceil()
}

fn is_hard_bucket(limit: &Limit) -> bool {
    limit.algorithm().has_bucket_state() && limit.soft().is_none()
}

fn nonsense(receipt: &Receipt) -> StoreError {
    let length = receipt.body.len();
    unusable(format!("the script's answer of {length} bytes makes no sense"))
}

pub(super) fn unusable(reason: String) -> StoreError {
    failure(FailureKind::Protocol, reason)
}

/// An error that the server gave to a command of the script keeps its code.
fn failed(words: &str) -> StoreError {
    let words = words.trim_start_matches('-');
    if words.contains(": -") {
        return of_code("ERR", words);
    }
    let (code, details) = words.split_once(' ').unwrap_or((words, ""));
    if !code.is_empty() && code.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return of_code(code, details);
    }
    failure(FailureKind::Other, format!("the script failed: {words}"))
}
