//! Redis as the remote of a [`SharedStore`](crate::SharedStore): many keys at
//! once, who else is there, slots that live on while they are held.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{CONCURRENCY_MAX, Concurrency, Holder, Limit, Period, Timestamp};

use super::held::Held;
use super::link::slots::slot_of;
use super::{HeldCounts, RedisStore, UpstreamStore};
use crate::batch::{Answer, Answers, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::fingerprint::Fingerprinter;
use crate::shared::{Asking, NodeId, Remote, Route, all};

/// Checks in one parcel: small enough that others are not kept waiting.
const PARCEL_CHECKS_MAX: usize = 64;
/// Where nodes register, apart from all limits.
const REGISTER: u64 = 0x7465_6761_7465_6e6f;
/// Slots that are renewed at once.
const RENEWALS_MAX: usize = 64;

impl Remote for RedisStore {
    fn there(&self, here: Timestamp) -> Timestamp {
        self.expected(here)
    }

    /// The master that has the key's slot.
    fn route(&self, key: Key) -> Route {
        if !self.across {
            return Route::ONLY;
        }
        let slot = slot_of(&super::key::text(&self.prefix, key.fingerprint));
        self.courier.node_of(slot).map_or(Route::ONLY, Route)
    }

    fn register_route(&self) -> Route {
        self.route(key())
    }

    async fn apply_along(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        asking: &Asking,
    ) -> Result<(), StoreError> {
        self.decide(batch, answers, asking).await
    }

    async fn each(&self, batch: &Batch<'_>, results: &mut Vec<Result<Answer, StoreError>>) {
        let parcels = parcels(batch.checks, self.across);
        let ask = |places: &Vec<usize>| {
            let checks: SmallVec<[Check<'_>; 2]> =
                places.iter().filter_map(|at| batch.checks.get(*at)).copied().collect();
            async move {
                let mut answers = Answers::new();
                let part = Batch { checks: &checks, names: &[], ..*batch };
                self.apply(&part, &mut answers).await.map(|()| answers)
            }
        };
        let told = all(parcels.iter().map(ask)).await;
        let mut found: Vec<Option<Result<Answer, StoreError>>> = vec![None; batch.checks.len()];
        for (places, told) in parcels.iter().zip(told) {
            match told {
                Ok(answers) => {
                    for (at, answer) in places.iter().zip(answers) {
                        found[*at] = Some(Ok(answer));
                    }
                }
                Err(error) => places.iter().for_each(|at| found[*at] = Some(Err(error.clone()))),
            }
        }
        let unanswered =
            || Err(super::exchange::unusable("it did not answer every check".to_owned()));
        results.extend(found.into_iter().map(|found| found.unwrap_or_else(unanswered)));
    }

    /// A node is a holder of one slot that it renews: what crashed holders
    /// leave behind goes away by itself, as everywhere.
    async fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        now: Timestamp,
        within: Duration,
    ) -> Result<usize, StoreError> {
        let limit = register(lasting);
        let here = Check { holder: holder(node), ..Check::new(key(), &limit, 1) };
        if !self.renew(&here, now, Some(within)).await? {
            self.one(Verb::Check, here, now, within).await?;
        }
        let seen = self.one(Verb::Peek, Check { cost: 0, ..here }, now, within).await?;
        let live = seen.decision.limit.saturating_sub(seen.decision.remaining);
        Ok(usize::try_from(live.max(1)).unwrap_or(usize::MAX))
    }

    async fn leave(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> Result<(), StoreError> {
        let limit = register(within);
        let here = Check { holder: holder(node), ..Check::new(key(), &limit, u64::MAX) };
        self.one(Verb::Refund, here, now, within).await.map(|_| ())
    }

    async fn keep_held(&self, now: Timestamp) {
        let due = self.held.due(now);
        for some in due.chunks(RENEWALS_MAX) {
            all(some.iter().map(|held| self.keep(held, now))).await;
        }
    }
}

impl RedisStore {
    /// What became of slots that are held.
    pub fn held(&self) -> HeldCounts {
        self.held.counts()
    }

    /// Renews slots; takes them again if they are gone and there is room.
    async fn keep(&self, held: &Held, now: Timestamp) {
        let (check, within) = (held.check(), held.renew_within().max(self.deadline));
        match self.renew(&check, now, Some(within)).await {
            Ok(true) => self.held.renewed(held, now),
            Ok(false) if self.held.is_held(held) => {
                let taken = self.one(Verb::Check, check, now, within).await;
                match taken {
                    Ok(answer) if answer.decision.is_admitted() => self.held.renewed(held, now),
                    Ok(_) => self.held.lost(held),
                    // Tried again after a while.
                    Err(_) => {}
                }
            }
            Ok(false) | Err(_) => {}
        }
    }

    async fn one(
        &self,
        verb: Verb,
        check: Check<'_>,
        now: Timestamp,
        within: Duration,
    ) -> Result<Answer, StoreError> {
        let checks = [check];
        let batch = Batch::new(verb, Charge::AllOrNothing, now, &checks);
        let mut answers = Answers::new();
        self.apply(&Batch { within: Some(within), ..batch }, &mut answers).await?;
        let none = || super::exchange::unusable("it did not answer".to_owned());
        answers.first().copied().ok_or_else(none)
    }
}

impl Remote for UpstreamStore {
    fn there(&self, here: Timestamp) -> Timestamp {
        // Upstream's windows are those of the process's own clock.
        here
    }

    async fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        now: Timestamp,
        within: Duration,
    ) -> Result<usize, StoreError> {
        self.store().register(node, lasting, now, within).await
    }

    async fn leave(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> Result<(), StoreError> {
        self.store().leave(node, now, within).await
    }

    async fn keep_held(&self, now: Timestamp) {
        self.store().keep_held(now).await;
    }
}

/// Which checks go into which parcel: those of one tag where that matters.
fn parcels(checks: &[Check<'_>], by_tag: bool) -> Vec<Vec<usize>> {
    let mut tags: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (at, check) in checks.iter().enumerate() {
        let tag = if by_tag { check.key.fingerprint.tag() } else { 0 };
        tags.entry(tag).or_default().push(at);
    }
    tags.values()
        .flat_map(|places| places.chunks(PARCEL_CHECKS_MAX))
        .map(<[usize]>::to_vec)
        .collect()
}

fn register(lasting: Duration) -> Limit {
    let lasting = Period::new(lasting).unwrap_or(Period::MINUTE);
    Limit::new(Concurrency::new(CONCURRENCY_MAX, lasting).expect("the maximum is allowed"))
}

fn key() -> Key {
    Key { fingerprint: Fingerprinter::shared().of(REGISTER, b"nodes"), group: REGISTER }
}

/// Zero stands for anybody.
fn holder(node: NodeId) -> Holder {
    Holder(node.0.max(1))
}
