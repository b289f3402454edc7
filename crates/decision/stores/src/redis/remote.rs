//! Redis as the remote of a [`SharedStore`](crate::SharedStore): batches of keys, the register of nodes, and the
//! renewal of held slots.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{CONCURRENCY_MAX, Concurrency, Holder, Limit, Period, Timestamp};
use tidegate_redis_link::slot_of;

use super::codec::NodeReports;
use super::error::protocol_error;
use super::exchange::Exchange;
use super::held_slots::HolderSlots;
use super::rounded_limit::rounded_limits;
use super::{HeldCounts, RedisStore, UpstreamStore};
use crate::batch::{Answer, Answers, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::fingerprint::Fingerprinter;
use crate::shared::{CountReport, CurrentRoute, NodeId, Remote, ReportAnswer, Route, join_all};

/// Checks in one script call: few enough that other callers do not wait long for the server.
const CALL_CHECKS_MAX: usize = 64;
/// The group of the register's key, which no limit has.
const REGISTER_GROUP: u64 = 0x7465_6761_7465_6e6f;
/// Slots that are renewed concurrently.
const RENEWALS_MAX: usize = 64;

impl Remote for RedisStore {
    fn remote_time(&self, local: Timestamp) -> Timestamp {
        self.server_time(local)
    }

    /// The master of the key's slot.
    fn route(&self, key: Key) -> Route {
        if !self.is_cluster {
            return Route::ONLY;
        }
        let slot = slot_of(&super::key::text(&self.prefix, key.fingerprint));
        self.client.node_of(slot).map_or(Route::ONLY, Route)
    }

    fn register_route(&self) -> Route {
        self.route(register_key())
    }

    fn is_answering(&self, route: Route) -> bool {
        self.client.is_answering(route.0)
    }

    async fn apply_with_route(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        route: &CurrentRoute,
    ) -> Result<(), StoreError> {
        self.decide(batch, answers, route).await
    }

    async fn apply_each(&self, batch: &Batch<'_>, results: &mut Vec<Result<Answer, StoreError>>) {
        if let [_] = batch.checks {
            let mut answers = Answers::new();
            let applied = self.apply(&Batch { names: &[], ..*batch }, &mut answers).await;
            let unanswered = || protocol_error("it did not answer the check");
            results.push(applied.and_then(|()| answers.first().copied().ok_or_else(unanswered)));
            return;
        }
        let calls = match batch.verb {
            // The script has a fast path for calls with one check.
            Verb::Check => (0..batch.checks.len()).map(|index| vec![index]).collect(),
            _ => split_into_calls(batch.checks, self.is_cluster),
        };
        let apply = |indexes: &Vec<usize>| {
            let checks: SmallVec<[Check<'_>; 2]> =
                indexes.iter().filter_map(|index| batch.checks.get(*index)).copied().collect();
            async move {
                let mut answers = Answers::new();
                let part = Batch { checks: &checks, names: &[], ..*batch };
                self.apply(&part, &mut answers).await.map(|()| answers)
            }
        };
        let applied = join_all(calls.iter().map(apply)).await;
        let first = results.len();
        let unanswered = Err(protocol_error("it did not answer every check"));
        results.resize(first + batch.checks.len(), unanswered);
        for (indexes, result) in calls.iter().zip(applied) {
            for (position, index) in indexes.iter().enumerate() {
                results[first + index] = match &result {
                    Ok(answers) if position >= answers.len() => continue,
                    Ok(answers) => Ok(answers[position]),
                    Err(error) => Err(error.clone()),
                };
            }
        }
    }

    fn connections_opened(&self) -> u64 {
        self.figures().connects
    }

    async fn report_counts(
        &self,
        node: NodeId,
        reports: &[&CountReport],
        now: Timestamp,
        within: Duration,
        results: &mut Vec<Result<ReportAnswer, StoreError>>,
    ) {
        let checks: Vec<Check<'_>> = reports.iter().map(|report| report.check()).collect();
        let calls = split_into_calls(&checks, self.is_cluster);
        let report = |indexes: &Vec<usize>| {
            let counts: Vec<&CountReport> =
                indexes.iter().filter_map(|index| reports.get(*index)).copied().collect();
            async move {
                let checks: Vec<Check<'_>> = counts.iter().map(|report| report.check()).collect();
                let limits = rounded_limits(&checks);
                let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
                let batch = Batch { within: Some(within), ..batch };
                let reports = NodeReports { node, counts: &counts };
                Exchange::of_reports(self, &batch, &limits, reports).report().await
            }
        };
        let reported = join_all(calls.iter().map(report)).await;
        let first = results.len();
        let unanswered = Err(protocol_error("it did not answer every report"));
        results.resize(first + reports.len(), unanswered);
        for (indexes, result) in calls.iter().zip(reported) {
            for (position, index) in indexes.iter().enumerate() {
                results[first + index] = match &result {
                    Ok(answers) if position >= answers.len() => continue,
                    Ok(answers) => Ok(answers[position]),
                    Err(error) => Err(error.clone()),
                };
            }
        }
    }

    /// A node holds one slot of a concurrency limit and renews it, so the slot of a crashed node expires.
    async fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        now: Timestamp,
        within: Duration,
    ) -> Result<usize, StoreError> {
        let limit = register_limit(lasting);
        let own_slot = Check { holder: holder(node), ..Check::new(register_key(), &limit, 1) };
        if !self.renew(&own_slot, now, Some(within)).await? {
            self.apply_one(Verb::Check, own_slot, now, within).await?;
        }
        let peek = Check { cost: 0, ..own_slot };
        let decision = self.apply_one(Verb::Peek, peek, now, within).await?.decision;
        let live = decision.limit.saturating_sub(decision.remaining);
        Ok(usize::try_from(live.max(1)).unwrap_or(usize::MAX))
    }

    async fn unregister(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> Result<(), StoreError> {
        let limit = register_limit(within);
        let own_slot =
            Check { holder: holder(node), ..Check::new(register_key(), &limit, u64::MAX) };
        self.apply_one(Verb::Refund, own_slot, now, within).await.map(|_| ())
    }

    async fn renew_held_slots(&self, now: Timestamp) {
        let due = self.held_slots.due(now);
        for some in due.chunks(RENEWALS_MAX) {
            join_all(some.iter().map(|held| self.renew_or_retake(held, now))).await;
        }
    }
}

impl RedisStore {
    /// Counts of held slots.
    pub fn held(&self) -> HeldCounts {
        self.held_slots.counts()
    }

    /// Renews slots; takes them again if they have expired and there is room.
    async fn renew_or_retake(&self, held: &HolderSlots, now: Timestamp) {
        let (check, within) = (held.check(), held.renew_within().max(self.deadline));
        match self.renew(&check, now, Some(within)).await {
            Ok(true) => self.held_slots.renewed(held, now),
            Ok(false) if self.held_slots.is_held(held) => {
                let taken = self.apply_one(Verb::Check, check, now, within).await;
                match taken {
                    Ok(answer) if answer.decision.is_admitted() => {
                        self.held_slots.renewed(held, now)
                    }
                    Ok(_) => self.held_slots.lost(held),
                    // `due` returns them again.
                    Err(_) => {}
                }
            }
            Ok(false) | Err(_) => {}
        }
    }

    async fn apply_one(
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
        let none = || protocol_error("it did not answer");
        answers.first().copied().ok_or_else(none)
    }
}

impl Remote for UpstreamStore {
    fn remote_time(&self, local: Timestamp) -> Timestamp {
        // envoyproxy/ratelimit finds its windows by the clock of the process.
        local
    }

    /// One breaker serves all servers, so all of them must answer.
    fn is_answering(&self, _: Route) -> bool {
        self.all_connected()
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

    async fn unregister(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> Result<(), StoreError> {
        self.store().unregister(node, now, within).await
    }

    async fn renew_held_slots(&self, now: Timestamp) {
        self.store().renew_held_slots(now).await;
    }

    fn connections_opened(&self) -> u64 {
        self.store().connections_opened()
    }

    async fn report_counts(
        &self,
        node: NodeId,
        reports: &[&CountReport],
        now: Timestamp,
        within: Duration,
        results: &mut Vec<Result<ReportAnswer, StoreError>>,
    ) {
        self.store().report_counts(node, reports, now, within, results).await;
    }
}

/// The indexes of the checks in each script call. In a cluster the checks of a call have one tag.
fn split_into_calls(checks: &[Check<'_>], by_tag: bool) -> Vec<Vec<usize>> {
    let mut tags: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (index, check) in checks.iter().enumerate() {
        let tag = if by_tag { check.key.fingerprint.tag() } else { 0 };
        tags.entry(tag).or_default().push(index);
    }
    tags.values()
        .flat_map(|indexes| indexes.chunks(CALL_CHECKS_MAX))
        .map(<[usize]>::to_vec)
        .collect()
}

fn register_limit(lasting: Duration) -> Limit {
    let lasting = Period::new(lasting).unwrap_or(Period::MINUTE);
    Limit::new(Concurrency::new(CONCURRENCY_MAX, lasting).expect("the maximum is allowed"))
}

fn register_key() -> Key {
    let fingerprint = Fingerprinter::shared().of(REGISTER_GROUP, b"nodes");
    Key { fingerprint, group: REGISTER_GROUP }
}

/// Holder 0 means an anonymous holder.
fn holder(node: NodeId) -> Holder {
    Holder(node.0.max(1))
}
