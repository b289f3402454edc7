//! The cases, one function each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_queue::schedule::ClassPolicy;
use tidegate_queue::{
    AttemptCharge, Capability, Claim, ClaimBudget, Clock, DeadLetterReason, DeadLetterSelection,
    Delivery, EnqueueOutcome, Fullness, JobSelection, JobStats, Nanos, NewRecord, OrderMode,
    Payload, PriorityClass, Queue, QueueError, QueueSettings, Receipt, RecordProblem,
    SettleOutcome, Settlement, Timestamp, Withheld,
};

use crate::Backend;
use crate::model;

const LEASE: Duration = Duration::from_secs(30);
const APPLIED: [SettleOutcome; 1] = [SettleOutcome::Applied];
const STALE: [SettleOutcome; 1] = [SettleOutcome::StaleReceipt];

async fn open(backend: &impl Backend, settings: QueueSettings) -> Arc<dyn Queue> {
    backend.store().open_queue("orders", settings).await.unwrap()
}

fn has(backend: &impl Backend, capability: Capability) -> bool {
    backend.store().capabilities().contains(&capability)
}

/// Whether the store orders records as these settings say; a store that cannot must refuse them.
async fn orders(backend: &impl Backend, order: OrderMode, needed: Capability) -> bool {
    let settings = QueueSettings { order, ..QueueSettings::default() };
    let opened = backend.store().open_queue("orders", settings).await;
    let has = has(backend, needed);
    assert_eq!(opened.err(), (!has).then_some(QueueError::Unsupported(needed)));
    has
}

fn record(body: &str) -> NewRecord {
    NewRecord::new(Payload::from_body(body.to_owned()))
}

fn keyed(body: &str, key: &str) -> NewRecord {
    NewRecord { order_key: Some(key.to_owned()), ..record(body) }
}

fn later(backend: &impl Backend, seconds: u64) -> Timestamp {
    backend.clock().now().after(Nanos::from_secs(seconds))
}

fn pass(backend: &impl Backend, seconds: u64) {
    backend.clock().advance(Duration::from_secs(seconds));
}

fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.record.payload.body.to_vec()).unwrap()
}

fn bodies(claim: &Claim) -> Vec<String> {
    claim.deliveries.iter().map(body).collect()
}

async fn claim(queue: &Arc<dyn Queue>, records: usize) -> Claim {
    queue.claim(ClaimBudget::records(records, LEASE)).await.unwrap()
}

async fn claim_one(queue: &Arc<dyn Queue>) -> Delivery {
    let mut claim = claim(queue, 1).await;
    claim.deliveries.pop().expect("a record waits")
}

async fn ack_all(queue: &Arc<dyn Queue>, claim: Claim) {
    let receipts = claim.deliveries.into_iter().map(|delivery| delivery.receipt).collect();
    for outcome in queue.ack(receipts).await.unwrap() {
        assert_eq!(outcome, SettleOutcome::Applied);
    }
}

pub(crate) async fn a_record_is_delivered_as_it_was_enqueued(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let payload = Payload::from_body(vec![0, 1, 255])
        .with_header("content-type", "application/json")
        .with_header("x", vec![0xff, 0x00]);
    let new = NewRecord {
        tenant: "acme".to_owned(),
        cost: 7,
        class: PriorityClass::Low,
        deadline: Some(later(&backend, 100)),
        ..NewRecord::new(payload.clone())
    };
    let outcomes = queue.enqueue(vec![new, record("second")]).await.unwrap();
    assert!(outcomes[0].id() < outcomes[1].id(), "ids are sortable: {outcomes:?}");
    let claim = claim(&queue, 10).await;
    let delivery = claim.deliveries.iter().find(|one| one.record.id == outcomes[0].id()).unwrap();
    assert_eq!(delivery.receipt.record(), outcomes[0].id());
    assert_eq!(delivery.lease_ends, later(&backend, 30));
    let record = &delivery.record;
    assert_eq!(record.payload, payload);
    assert_eq!(
        (record.tenant.as_str(), record.cost, record.class),
        ("acme", 7, PriorityClass::Low)
    );
    assert_eq!((record.attempts, record.lapses), (0, 0));
    assert_eq!(record.enqueued_at, backend.clock().now());
    assert_eq!(record.deadline, Some(later(&backend, 100)));
}

pub(crate) async fn a_claim_ends_with_an_ack(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a"), record("b")]).await.unwrap();
    let first = claim(&queue, 10).await;
    assert_eq!(bodies(&first), ["a", "b"]);
    ack_all(&queue, first).await;
    pass(&backend, 3_600);
    assert_eq!(claim(&queue, 10).await, Claim::default());
    assert_eq!(queue.stats().await.unwrap().live().records, 0);
    assert_eq!(queue.enqueue(Vec::new()).await.unwrap(), []);
}

pub(crate) async fn queues_of_different_types_are_separate(backend: impl Backend) {
    let orders = open(&backend, QueueSettings::default()).await;
    let mails = backend.store().open_queue("mails", QueueSettings::default()).await.unwrap();
    orders.enqueue(vec![record("order")]).await.unwrap();
    mails.enqueue(vec![record("mail")]).await.unwrap();
    let mail = claim_one(&mails).await;
    assert_eq!(body(&mail), "mail");
    // A receipt is of use in its own queue only.
    assert_eq!(orders.ack(vec![mail.receipt.clone()]).await.unwrap(), STALE);
    let again = open(&backend, QueueSettings::default()).await;
    assert_eq!(bodies(&claim(&again, 10).await), ["order"]);
    assert_eq!(mails.ack(vec![mail.receipt]).await.unwrap(), APPLIED);
}

pub(crate) async fn a_claimed_record_is_invisible_until_its_lease_ends(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a")]).await.unwrap();
    let first = claim_one(&queue).await;
    let empty = claim(&queue, 1).await;
    assert!(empty.deliveries.is_empty());
    assert_eq!(empty.next_due, Some(later(&backend, 30)));
    pass(&backend, 29);
    assert!(claim(&queue, 1).await.deliveries.is_empty());
    pass(&backend, 1);
    let second = claim_one(&queue).await;
    assert_eq!(second.record.id, first.record.id);
    assert_ne!(second.receipt, first.receipt);
    assert_eq!((second.record.attempts, second.record.lapses), (0, 1));
}

pub(crate) async fn a_stale_receipt_changes_nothing(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a")]).await.unwrap();
    let stale = claim_one(&queue).await.receipt;
    pass(&backend, 31);
    let live = claim_one(&queue).await.receipt;
    let now = backend.clock().now();
    assert_eq!(queue.ack(vec![stale.clone()]).await.unwrap(), STALE);
    assert_eq!(queue.nack(stale.clone(), now, AttemptCharge::Failed).await.unwrap(), STALE);
    assert_eq!(queue.extend(stale.clone(), LEASE).await.unwrap(), STALE);
    assert_eq!(queue.dead_letter(stale, "late".to_owned()).await.unwrap(), STALE);
    let forged = Receipt::new(live.record(), vec![1, 2, 3]);
    assert_eq!(queue.ack(vec![forged]).await.unwrap(), STALE);
    assert!(claim(&queue, 1).await.deliveries.is_empty(), "the live claim still holds");
    let twice = queue.ack(vec![live.clone(), live]).await.unwrap();
    assert_eq!(twice, [SettleOutcome::Applied, SettleOutcome::StaleReceipt]);
}

pub(crate) async fn a_late_ack_counts_until_the_record_is_claimed_again(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a"), record("b")]).await.unwrap();
    let taken = claim(&queue, 2).await;
    let [a, b] = [0, 1].map(|index: usize| taken.deliveries[index].receipt.clone());
    pass(&backend, 31);
    assert_eq!(queue.ack(vec![a]).await.unwrap(), APPLIED, "before a claim finds the ended lease");
    assert!(claim(&queue, 0).await.deliveries.is_empty());
    assert_eq!(queue.stats().await.unwrap().in_flight, 0);
    assert_eq!(queue.extend(b.clone(), LEASE).await.unwrap(), APPLIED, "after a claim found it");
    assert_eq!(queue.stats().await.unwrap().in_flight, 1);
    assert!(claim(&queue, 1).await.deliveries.is_empty());
    assert_eq!(queue.ack(vec![b]).await.unwrap(), APPLIED);
    assert_eq!(queue.stats().await.unwrap().live().records, 0);
}

pub(crate) async fn a_returned_record_waits_for_its_time(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a")]).await.unwrap();
    let first = claim_one(&queue).await;
    let not_before = later(&backend, 5);
    let returned = queue.nack(first.receipt.clone(), not_before, AttemptCharge::Failed).await;
    assert_eq!(returned.unwrap(), APPLIED);
    assert_eq!(queue.ack(vec![first.receipt]).await.unwrap(), STALE);
    let empty = claim(&queue, 1).await;
    assert_eq!((empty.deliveries.len(), empty.next_due), (0, Some(not_before)));
    pass(&backend, 5);
    assert_eq!(body(&claim_one(&queue).await), "a");
}

pub(crate) async fn only_failed_attempts_are_counted(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a")]).await.unwrap();
    let charges = [AttemptCharge::Failed, AttemptCharge::Free, AttemptCharge::Free];
    for (charge, expected) in charges.into_iter().chain([AttemptCharge::Failed]).zip([0, 1, 1, 1]) {
        let delivery = claim_one(&queue).await;
        assert_eq!(delivery.record.attempts, expected);
        let now = backend.clock().now();
        assert_eq!(queue.nack(delivery.receipt, now, charge).await.unwrap(), APPLIED);
    }
    assert_eq!(claim_one(&queue).await.record.attempts, 2);
}

pub(crate) async fn an_extended_lease_ends_later(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    queue.enqueue(vec![record("a")]).await.unwrap();
    let delivery = claim_one(&queue).await;
    pass(&backend, 25);
    assert_eq!(queue.extend(delivery.receipt.clone(), LEASE).await.unwrap(), APPLIED);
    pass(&backend, 29);
    assert!(claim(&queue, 1).await.deliveries.is_empty());
    assert_eq!(queue.stats().await.unwrap().in_flight, 1);
    assert_eq!(queue.ack(vec![delivery.receipt]).await.unwrap(), APPLIED);
    assert_eq!(queue.stats().await.unwrap().in_flight, 0);
}

pub(crate) async fn a_record_whose_leases_lapse_becomes_a_dead_letter(backend: impl Backend) {
    let settings = QueueSettings { lapses_max: 3, ..QueueSettings::default() };
    let queue = open(&backend, settings).await;
    queue.enqueue(vec![record("poison")]).await.unwrap();
    for lapses in 0..3 {
        assert_eq!(claim_one(&queue).await.record.lapses, lapses);
        pass(&backend, 31);
    }
    assert!(claim(&queue, 1).await.deliveries.is_empty());
    let dead = queue.list_dead_letters(None, 10).await.unwrap();
    assert_eq!((dead[0].reason, dead[0].record.lapses), (DeadLetterReason::Lapsed, 3));
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.live().records, stats.in_flight, stats.dead_records), (0, 0, 1));
}

pub(crate) async fn a_rejected_record_is_listed_shown_and_redriven(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let ids: Vec<_> = queue
        .enqueue(vec![record("a"), record("b"), record("c")])
        .await
        .unwrap()
        .into_iter()
        .map(EnqueueOutcome::id)
        .collect();
    let taken = claim(&queue, 3).await;
    let receipts: Vec<_> = taken.deliveries.iter().map(|one| one.receipt.clone()).collect();
    for (index, receipt) in receipts.iter().enumerate() {
        let detail = format!("status 40{index}\0{}", "x".repeat(3_000));
        assert_eq!(queue.dead_letter(receipt.clone(), detail).await.unwrap(), APPLIED);
        pass(&backend, 1);
    }
    let listed = queue.list_dead_letters(None, 2).await.unwrap();
    let listed_ids: Vec<_> = listed.iter().map(|dead| dead.record.id).collect();
    assert_eq!(listed_ids, ids[..2]);
    assert!(listed[0].detail.starts_with("status 400 x"), "{}", listed[0].detail);
    assert_eq!(listed[0].detail.len(), DeadLetterReason::DETAIL_BYTES_MAX);
    assert_eq!(listed[0].reason, DeadLetterReason::Rejected);
    assert_eq!(listed[0].record.payload, Payload::default());
    let rest = queue.list_dead_letters(Some(ids[1]), 10).await.unwrap();
    assert_eq!(rest.len(), 1);

    let shown = queue.show_dead_letter(ids[2]).await.unwrap().unwrap();
    assert_eq!(shown.record.payload, Payload::from_body("c"));
    assert_eq!(shown.bytes, shown.record.payload.encoded_len() as u64);
    let foreign = tidegate_queue::RecordId::from_u128(ids[2].as_u128() ^ (1 << 100));
    assert_eq!(queue.show_dead_letter(foreign).await.unwrap(), None);

    let chosen = DeadLetterSelection::Ids(vec![ids[2], ids[2], foreign]);
    assert_eq!(queue.redrive(chosen, 10).await.unwrap(), 1);
    assert_eq!(queue.ack(vec![receipts[2].clone()]).await.unwrap(), STALE);
    let again = claim_one(&queue).await;
    assert_eq!((again.record.id, body(&again)), (ids[2], "c".to_owned()));
    assert_eq!(queue.redrive(DeadLetterSelection::All, 1).await.unwrap(), 1);
    assert_eq!(claim_one(&queue).await.record.id, ids[0]);
    assert_eq!(queue.stats().await.unwrap().dead_records, 1);
}

pub(crate) async fn purge_deletes_the_selected_dead_letters(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    for name in ["a", "b", "c"] {
        queue.enqueue(vec![record(name)]).await.unwrap();
        let delivery = claim_one(&queue).await;
        queue.dead_letter(delivery.receipt, name.to_owned()).await.unwrap();
        pass(&backend, 10);
    }
    let old = DeadLetterSelection::Before(backend.clock().now().after(Nanos::ZERO));
    assert_eq!(queue.purge(old, 1).await.unwrap(), 1);
    // The second is 20 s old, the third 10 s.
    let limit = Timestamp::from_nanos(backend.clock().now().as_nanos() - 15_000_000_000);
    assert_eq!(queue.purge(DeadLetterSelection::Before(limit), 10).await.unwrap(), 1);
    let left = queue.list_dead_letters(None, 10).await.unwrap();
    assert_eq!(left.iter().map(|dead| dead.detail.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(queue.purge(DeadLetterSelection::All, 10).await.unwrap(), 1);
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.dead_records, stats.dead_bytes), (0, 0));
}

async fn job_stats(queue: &Arc<dyn Queue>, tenant: Option<&str>) -> JobStats {
    let selection = JobSelection {
        job: Some("import".to_owned()),
        tenant: tenant.map(str::to_owned),
        limit: 10,
    };
    queue.jobs(selection).await.unwrap().pop().unwrap_or_default()
}

pub(crate) async fn records_are_counted_by_job(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    if !queue.capabilities().contains(&Capability::Jobs) {
        let refused = queue.jobs(JobSelection::default()).await;
        assert_eq!(refused, Err(QueueError::Unsupported(Capability::Jobs)));
        return;
    }
    let of_job = |body: &str, tenant: &str| NewRecord {
        job: Some("import".to_owned()),
        tenant: tenant.to_owned(),
        cost: 10,
        ..record(body)
    };
    let started = backend.clock().now();
    let batch = vec![
        of_job("a", "x"),
        of_job("b", "x"),
        of_job("c", "x"),
        of_job("d", "y"),
        record("without a job"),
    ];
    queue.enqueue(batch).await.unwrap();
    let stats = job_stats(&queue, None).await;
    assert_eq!((stats.accepted, stats.accepted_cost, stats.delivered()), (4, 40, 0));
    assert_eq!((stats.live.records, stats.live.cost, stats.first_enqueued), (4, 40, started));
    assert_eq!(job_stats(&queue, Some("y")).await.accepted, 1);
    assert_eq!(job_stats(&queue, Some("z")).await, JobStats::default());

    let mut deliveries = claim(&queue, 5).await.deliveries;
    deliveries.sort_by_key(body);
    assert_eq!(deliveries[0].record.job.as_deref(), Some("import"));
    let receipts: Vec<Receipt> = deliveries.iter().map(|one| one.receipt.clone()).collect();
    queue.ack(vec![receipts[0].clone(), receipts[4].clone()]).await.unwrap();
    queue.dead_letter(receipts[1].clone(), "no".to_owned()).await.unwrap();
    queue.dead_letter(receipts[2].clone(), "no".to_owned()).await.unwrap();
    let stats = job_stats(&queue, None).await;
    assert_eq!((stats.live.records, stats.dead, stats.delivered()), (1, 2, 1));

    let first = DeadLetterSelection::Ids(vec![receipts[1].record()]);
    assert_eq!(queue.redrive(first, 1).await.unwrap(), 1);
    assert_eq!(queue.purge(DeadLetterSelection::All, 10).await.unwrap(), 1);
    let stats = job_stats(&queue, None).await;
    let counts = (stats.accepted, stats.live.records, stats.dead, stats.purged, stats.delivered());
    assert_eq!(counts, (4, 2, 0, 1, 1));

    // A finished job is forgotten after a week, when another job gets records.
    queue.ack(vec![receipts[3].clone()]).await.unwrap();
    let rest = claim(&queue, 10).await;
    ack_all(&queue, rest).await;
    assert_eq!(job_stats(&queue, None).await.delivered(), 3);
    pass(&backend, 8 * 24 * 60 * 60);
    let other = NewRecord { job: Some("other".to_owned()), ..record("e") };
    queue.enqueue(vec![other]).await.unwrap();
    assert_eq!(job_stats(&queue, None).await, JobStats::default());
    let all = queue.jobs(JobSelection { limit: 10, ..JobSelection::default() }).await.unwrap();
    assert_eq!(all.len(), 1);
}

pub(crate) async fn a_deadline_and_the_maximum_age_end_in_dead_letters(backend: impl Backend) {
    let age_max = Some(Duration::from_secs(100));
    let queue = open(&backend, QueueSettings { age_max, ..QueueSettings::default() }).await;
    let short = NewRecord { deadline: Some(later(&backend, 10)), ..record("short") };
    let delayed = NewRecord { not_before: Some(later(&backend, 50)), ..record("delayed") };
    queue.enqueue(vec![short, record("aged"), delayed]).await.unwrap();
    pass(&backend, 10);
    assert_eq!(bodies(&claim(&queue, 1).await), ["aged"]);
    let dead = queue.list_dead_letters(None, 10).await.unwrap();
    assert_eq!((dead.len(), dead[0].reason), (1, DeadLetterReason::Expired));
    pass(&backend, 90);
    // The age of a delayed record begins when it may be sent; the lease of the claimed one has ended.
    let second = claim(&queue, 10).await;
    assert_eq!(bodies(&second), ["delayed"]);
    let reasons: Vec<_> = queue.list_dead_letters(None, 10).await.unwrap();
    assert_eq!(reasons.len(), 2);
    assert!(reasons.iter().all(|dead| dead.reason == DeadLetterReason::Expired));
}

pub(crate) async fn a_delayed_record_is_claimed_from_its_time_on(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let delayed = NewRecord { not_before: Some(later(&backend, 60)), ..record("later") };
    let past = NewRecord { not_before: Some(Timestamp::from_secs(5)), ..record("past") };
    queue.enqueue(vec![delayed, past, record("now")]).await.unwrap();
    let first = claim(&queue, 10).await;
    assert_eq!(bodies(&first), ["past", "now"]);
    assert_eq!(first.next_due, Some(later(&backend, 30)), "the leases end first");
    ack_all(&queue, first).await;
    assert_eq!(claim(&queue, 10).await.next_due, Some(later(&backend, 60)));
    pass(&backend, 60);
    assert_eq!(bodies(&claim(&queue, 10).await), ["later"]);
}

pub(crate) async fn a_deduplication_key_is_accepted_once_within_the_window(backend: impl Backend) {
    let dedup_window = Duration::from_secs(100);
    let queue = open(&backend, QueueSettings { dedup_window, ..QueueSettings::default() }).await;
    let other = backend.store().open_queue("other", QueueSettings::default()).await.unwrap();
    let unique = |body: &str| NewRecord { dedup_key: Some("k".to_owned()), ..record(body) };
    let batch = vec![unique("a"), record("x"), unique("b")];
    let outcomes = queue.enqueue(batch).await.unwrap();
    let first = outcomes[0].id();
    assert_eq!(outcomes[0], EnqueueOutcome::Accepted(first));
    assert_eq!(outcomes[2], EnqueueOutcome::Duplicate(first));
    pass(&backend, 99);
    // The key is remembered after the record has left.
    let taken = claim(&queue, 10).await;
    assert_eq!(bodies(&taken), ["a", "x"]);
    ack_all(&queue, taken).await;
    let again = queue.enqueue(vec![unique("c")]).await.unwrap();
    assert_eq!(again, [EnqueueOutcome::Duplicate(first)]);
    let elsewhere = other.enqueue(vec![unique("other queue")]).await.unwrap();
    assert!(matches!(elsewhere[0], EnqueueOutcome::Accepted(_)));
    pass(&backend, 1);
    let after = queue.enqueue(vec![unique("d")]).await.unwrap();
    assert!(matches!(after[0], EnqueueOutcome::Accepted(id) if id != first));
    assert_eq!(bodies(&claim(&queue, 10).await), ["d"]);
}

pub(crate) async fn records_of_a_key_are_delivered_in_order_one_at_a_time(backend: impl Backend) {
    if !orders(&backend, OrderMode::Key, Capability::OrderKey).await {
        return;
    }
    let settings = QueueSettings { order: OrderMode::Key, ..QueueSettings::default() };
    let queue = open(&backend, settings).await;
    let urgent = NewRecord { class: PriorityClass::Urgent, ..keyed("a2", "a") };
    let batch =
        vec![keyed("a1", "a"), keyed("b1", "b"), urgent, keyed("a3", "a"), keyed("b2", "b")];
    queue.enqueue(batch).await.unwrap();
    let first = claim(&queue, 10).await;
    assert_eq!(bodies(&first), ["a1", "b1"], "one of each key, whatever its class");
    let [a1, b1] = [&first.deliveries[0], &first.deliveries[1]];
    assert_eq!(a1.record.order_key.as_deref(), Some("a"));
    assert!(claim(&queue, 10).await.deliveries.is_empty());
    // A returned record blocks its key while it waits.
    queue.nack(a1.receipt.clone(), later(&backend, 10), AttemptCharge::Failed).await.unwrap();
    queue.ack(vec![b1.receipt.clone()]).await.unwrap();
    let second = claim(&queue, 10).await;
    assert_eq!(bodies(&second), ["b2"]);
    ack_all(&queue, second).await;
    pass(&backend, 10);
    let a1 = claim_one(&queue).await;
    assert_eq!(body(&a1), "a1");
    // A dead letter unblocks its key, and returns behind the records that wait.
    queue.dead_letter(a1.receipt, "rejected".to_owned()).await.unwrap();
    let a2 = claim(&queue, 10).await;
    assert_eq!(bodies(&a2), ["a2"]);
    assert_eq!(queue.redrive(DeadLetterSelection::All, 10).await.unwrap(), 1);
    ack_all(&queue, a2).await;
    for expected in ["a3", "a1"] {
        let next = claim(&queue, 10).await;
        assert_eq!(bodies(&next), [expected]);
        ack_all(&queue, next).await;
    }
    let missing = queue.enqueue(vec![record("no key")]).await;
    let problem = RecordProblem::NoOrderKey;
    assert_eq!(missing, Err(QueueError::InvalidRecord { index: 0, problem }));
}

pub(crate) async fn a_strict_queue_delivers_in_order_one_at_a_time(backend: impl Backend) {
    if !orders(&backend, OrderMode::Strict, Capability::StrictOrder).await {
        return;
    }
    let settings = QueueSettings { order: OrderMode::Strict, ..QueueSettings::default() };
    let queue = open(&backend, settings).await;
    let delayed = NewRecord { not_before: Some(later(&backend, 5)), ..record("first") };
    let urgent = NewRecord { class: PriorityClass::Urgent, ..record("second") };
    queue.enqueue(vec![delayed, urgent, keyed("third", "k")]).await.unwrap();
    assert!(claim(&queue, 10).await.deliveries.is_empty(), "the first record is delayed");
    pass(&backend, 5);
    for expected in ["first", "second", "third"] {
        let next = claim(&queue, 10).await;
        assert_eq!(bodies(&next), [expected]);
        assert_eq!(next.deliveries[0].record.order_key, None);
        ack_all(&queue, next).await;
    }
}

pub(crate) async fn classes_share_by_weight(backend: impl Backend) {
    let classes = ClassPolicy::Weighted { weights: [3, 1, 1, 1], ageing: None };
    let queue = open(&backend, QueueSettings { classes, ..QueueSettings::default() }).await;
    let of_class = |class| NewRecord { class, ..record(class.name()) };
    let mut batch = vec![of_class(PriorityClass::Bulk); 40];
    batch.extend(vec![of_class(PriorityClass::Urgent); 40]);
    queue.enqueue(batch).await.unwrap();
    if !has(&backend, Capability::Priority) {
        // Classes are accepted, and all records are served.
        assert_eq!(claim(&queue, 100).await.deliveries.len(), 80);
        return;
    }
    let count = |claim: &Claim| bodies(claim).iter().filter(|name| *name == "urgent").count();
    for _ in 0..4 {
        assert_eq!(count(&claim(&queue, 8).await), 6);
    }

    let classes = ClassPolicy::Strict { ageing: Some(Duration::from_secs(10)) };
    let settings = QueueSettings { classes, ..QueueSettings::default() };
    let strict = backend.store().open_queue("strict", settings).await.unwrap();
    let aged = NewRecord { class: PriorityClass::Low, ..record("aged") };
    strict.enqueue(vec![aged]).await.unwrap();
    pass(&backend, 20);
    let fresh = vec![of_class(PriorityClass::Low), of_class(PriorityClass::Urgent)];
    strict.enqueue(fresh).await.unwrap();
    assert_eq!(bodies(&claim(&strict, 10).await), ["aged", "urgent", "low"]);
}

pub(crate) async fn tenants_share_a_class_by_cost(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let of = |tenant: &str, cost| NewRecord { tenant: tenant.to_owned(), cost, ..record(tenant) };
    queue.enqueue(vec![of("large", 1); 300]).await.unwrap();
    // The second tenant arrives late, with records that cost ten times as much.
    ack_all(&queue, claim(&queue, 100).await).await;
    queue.enqueue(vec![of("small", 10); 10]).await.unwrap();
    if !has(&backend, Capability::Fairness) {
        assert_eq!(claim(&queue, 400).await.deliveries.len(), 210);
        return;
    }
    let mut served = HashMap::new();
    for delivery in claim(&queue, 110).await.deliveries {
        *served.entry(delivery.record.tenant).or_insert(0) += delivery.record.cost;
    }
    assert!(served["large"].abs_diff(served["small"]) <= 11, "{served:?}");
}

pub(crate) async fn a_claim_stays_within_its_budget(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let of = |cost, bytes| NewRecord { cost, ..record(&"x".repeat(bytes)) };
    queue.enqueue(vec![of(4, 10), of(4, 10), of(50, 10), of(1, 500)]).await.unwrap();
    let budget = ClaimBudget { cost: 10, ..ClaimBudget::records(10, LEASE) };
    let first = queue.claim(budget).await.unwrap();
    assert_eq!(first.deliveries.len(), 2);
    assert_eq!(first.withheld, Some(Withheld { cost: 50, bytes: 12 }));
    let starved = queue.claim(budget).await.unwrap();
    assert_eq!((starved.deliveries.len(), starved.withheld), (0, first.withheld));
    let budget = ClaimBudget { bytes: 100, ..ClaimBudget::records(10, LEASE) };
    let second = queue.claim(budget).await.unwrap();
    assert_eq!(second.deliveries.len(), 1);
    assert_eq!(second.withheld, Some(Withheld { cost: 1, bytes: 502 }));
    let none = queue.claim(ClaimBudget::records(0, LEASE)).await.unwrap();
    assert!(none.deliveries.is_empty());
}

pub(crate) async fn a_full_queue_rejects_the_batch_with_its_figures(backend: impl Backend) {
    let settings = QueueSettings { records_max: 3, bytes_max: 1_000, ..QueueSettings::default() };
    let queue = open(&backend, settings).await;
    let oldest = Some(backend.clock().now());
    queue.enqueue(vec![NewRecord { cost: 9, ..record("a") }, record("b")]).await.unwrap();
    pass(&backend, 1);
    let taken = claim_one(&queue).await;
    queue.dead_letter(taken.receipt, "dead letters count".to_owned()).await.unwrap();
    let live_cost = queue.stats().await.unwrap().live().cost;
    let full = queue.enqueue(vec![record("c"), record("d")]).await.unwrap_err();
    let expected = Fullness {
        records: 3 - 1,
        records_max: 3,
        bytes: 6,
        bytes_max: 1_000,
        cost: live_cost,
        dead_records: 1,
        oldest,
        batch_records: 2,
        batch_bytes: 6,
    };
    assert_eq!(full, QueueError::Full(expected));
    assert_eq!((expected.records_to_drain(), expected.bytes_to_drain()), (1, 0));
    // Nothing of the batch was stored, and there is room for one.
    queue.enqueue(vec![record("c")]).await.unwrap();
    assert!(matches!(queue.enqueue(vec![record("d")]).await, Err(QueueError::Full(_))));
    let rest = claim(&queue, 1).await;
    ack_all(&queue, rest).await;
    let large = queue.enqueue(vec![record(&"x".repeat(998))]).await;
    let Err(QueueError::Full(figures)) = large else { panic!("{large:?}") };
    assert_eq!((figures.records_to_drain(), figures.bytes_to_drain()), (0, 6));
    let never = queue.enqueue(vec![record("x"); 4]).await.unwrap_err();
    assert_eq!(never, QueueError::NeverFits { records: 4, bytes: 12 });
}

pub(crate) async fn invalid_records_and_settings_are_rejected(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let costly = NewRecord { cost: tidegate_queue::COST_MAX + 1, ..record("x") };
    let rejected = queue.enqueue(vec![record("fine"), costly]).await.unwrap_err();
    assert!(matches!(rejected, QueueError::InvalidRecord { index: 1, .. }), "{rejected}");
    assert_eq!(queue.stats().await.unwrap().live().records, 0);
    for name in ["", "a b", "ä", &"x".repeat(65)] {
        let opened = backend.store().open_queue(name, QueueSettings::default()).await;
        assert!(matches!(opened, Err(QueueError::InvalidSettings(_))), "{name}");
    }
    let classes = ClassPolicy::Weighted { weights: [1, 0, 1, 1], ageing: None };
    let wrong = [
        QueueSettings { records_max: 0, ..QueueSettings::default() },
        QueueSettings { dedup_window: Duration::ZERO, ..QueueSettings::default() },
        QueueSettings { age_max: Some(Duration::MAX), ..QueueSettings::default() },
        QueueSettings { classes, ..QueueSettings::default() },
    ];
    for settings in wrong {
        let opened = backend.store().open_queue("orders", settings).await;
        assert!(matches!(opened, Err(QueueError::InvalidSettings(_))));
    }
    for (order, needed) in
        [(OrderMode::Key, Capability::OrderKey), (OrderMode::Strict, Capability::StrictOrder)]
    {
        let settings = QueueSettings { order, ..QueueSettings::default() };
        let opened = backend.store().open_queue("ordered", settings).await;
        let has = backend.store().capabilities().contains(&needed);
        assert_eq!(opened.err(), (!has).then_some(QueueError::Unsupported(needed)));
    }
}

pub(crate) async fn statistics_count_records_bytes_and_cost(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    assert_eq!(queue.stats().await.unwrap(), Default::default());
    let start = backend.clock().now();
    let low = NewRecord { class: PriorityClass::Low, cost: 5, ..record("1234") };
    queue.enqueue(vec![record("12"), low]).await.unwrap();
    pass(&backend, 3);
    queue.enqueue(vec![record("")]).await.unwrap();
    let stats = queue.stats().await.unwrap();
    let live = stats.live();
    assert_eq!((live.records, live.bytes, live.cost), (3, 12, 7));
    let low = stats.classes[PriorityClass::Low.index()];
    assert_eq!((low.records, low.bytes, low.cost), (1, 6, 5));
    assert_eq!((stats.in_flight, stats.oldest), (0, Some(start)));
    let taken = claim(&queue, 2).await;
    assert_eq!(queue.stats().await.unwrap().in_flight, 2);
    ack_all(&queue, taken).await;
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.live().records, stats.in_flight), (1, 0));
    assert!(stats.oldest.is_some());
}

pub(crate) async fn concurrent_claimers_never_share_a_record(backend: impl Backend) {
    let queue = open(&backend, QueueSettings::default()).await;
    let batch = (0..400).map(|number| record(&number.to_string())).collect();
    queue.enqueue(batch).await.unwrap();
    let claimers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let claim = claim(&queue, 7).await;
                    if claim.deliveries.is_empty() {
                        // Another claimer may have had records locked.
                        if queue.stats().await.unwrap().in_flight == 400 {
                            return taken;
                        }
                        tokio::task::yield_now().await;
                    }
                    taken.extend(bodies(&claim));
                }
            })
        })
        .collect();
    let mut seen = HashSet::new();
    for claimer in claimers {
        for body in claimer.await.unwrap() {
            assert!(seen.insert(body), "a record was delivered twice");
        }
    }
    assert_eq!(seen.len(), 400);
}

pub(crate) async fn concurrent_producers_and_claimers_lose_nothing(backend: impl Backend) {
    const PRODUCERS: usize = 4;
    const BATCHES: usize = 10;
    let queue = open(&backend, QueueSettings::default()).await;
    let mut tasks = Vec::new();
    for producer in 0..PRODUCERS {
        let queue = queue.clone();
        tasks.push(tokio::spawn(async move {
            for batch in 0..BATCHES {
                let records = (0..5).map(|number| {
                    let tenant = format!("t{}", number % 2);
                    NewRecord { tenant, ..record(&format!("{producer}-{batch}-{number}")) }
                });
                queue.enqueue(records.collect()).await.unwrap();
            }
        }));
    }
    let total = PRODUCERS * BATCHES * 5;
    let done = Arc::new(AtomicUsize::new(0));
    let claimers: Vec<_> = (0..3)
        .map(|claimer| {
            let (queue, done) = (queue.clone(), done.clone());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while done.load(Ordering::Relaxed) < total {
                    for (index, delivery) in
                        claim(&queue, 6).await.deliveries.into_iter().enumerate()
                    {
                        if (index + claimer) % 4 == 0 && delivery.record.attempts == 0 {
                            let now = delivery.record.enqueued_at;
                            queue.nack(delivery.receipt, now, AttemptCharge::Failed).await.unwrap();
                        } else {
                            taken.push(body(&delivery));
                            assert_eq!(queue.ack(vec![delivery.receipt]).await.unwrap(), APPLIED);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    tokio::task::yield_now().await;
                }
                taken
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut seen = HashSet::new();
    for claimer in claimers {
        for body in claimer.await.unwrap() {
            assert!(seen.insert(body), "an acknowledged record was delivered again");
        }
    }
    assert_eq!(seen.len(), total);
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.live(), stats.in_flight), (Default::default(), 0));
}

/// Producers append to keys while consumers empty them: the moment in which a key changes hands must lose no wake-up.
pub(crate) async fn concurrent_ordered_work_never_stalls(backend: impl Backend) {
    const PER_KEY: usize = 15;
    if !orders(&backend, OrderMode::Key, Capability::OrderKey).await {
        return;
    }
    let settings = QueueSettings { order: OrderMode::Key, ..QueueSettings::default() };
    let queue = open(&backend, settings).await;
    let producers: Vec<_> = (0..2)
        .map(|key| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for number in 0..PER_KEY {
                    let key = key.to_string();
                    queue.enqueue(vec![keyed(&number.to_string(), &key)]).await.unwrap();
                }
            })
        })
        .collect();
    let done = Arc::new(AtomicUsize::new(0));
    let claimers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, done) = (queue.clone(), done.clone());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while done.load(Ordering::SeqCst) < 2 * PER_KEY {
                    for delivery in claim(&queue, 1).await.deliveries {
                        let order = done.fetch_add(1, Ordering::SeqCst);
                        let key = delivery.record.order_key.clone().unwrap();
                        taken.push((key, order, body(&delivery)));
                        assert_eq!(queue.ack(vec![delivery.receipt]).await.unwrap(), APPLIED);
                    }
                    tokio::task::yield_now().await;
                }
                taken
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    let mut taken = Vec::new();
    for claimer in claimers {
        taken.extend(claimer.await.unwrap());
    }
    taken.sort();
    for (key, lines) in [("0", &taken[..PER_KEY]), ("1", &taken[PER_KEY..])] {
        for (index, (own, _, body)) in lines.iter().enumerate() {
            assert_eq!((own.as_str(), body), (key, &index.to_string()), "in order");
        }
    }
}

pub(crate) async fn acknowledged_records_survive_a_restart(mut backend: impl Backend) {
    let ordered = has(&backend, Capability::OrderKey);
    let order = if ordered { OrderMode::Key } else { OrderMode::None };
    let settings = QueueSettings { order, ..QueueSettings::default() };
    let queue = open(&backend, settings.clone()).await;
    let unique = NewRecord { dedup_key: Some("once".to_owned()), ..keyed("a1", "a") };
    queue
        .enqueue(vec![unique.clone(), keyed("b1", "b"), keyed("c1", "c"), keyed("a2", "a")])
        .await
        .unwrap();
    let taken = claim(&queue, 3).await;
    assert_eq!(bodies(&taken), ["a1", "b1", "c1"]);
    let [_, b1, c1] = &taken.deliveries[..] else { panic!("three keys") };
    queue.ack(vec![b1.receipt.clone()]).await.unwrap();
    queue.dead_letter(c1.receipt.clone(), "no".to_owned()).await.unwrap();
    let before = queue.stats().await.unwrap();
    drop(queue);
    backend.restart().await;

    let queue = open(&backend, settings).await;
    if !has(&backend, Capability::Durable) {
        assert_eq!(queue.stats().await.unwrap(), Default::default());
        return;
    }
    assert_eq!(queue.stats().await.unwrap(), before);
    let known = queue.enqueue(vec![unique]).await.unwrap();
    assert!(matches!(known[0], EnqueueOutcome::Duplicate(_)));
    let a1 = taken.deliveries[0].receipt.clone();
    if has(&backend, Capability::Shared) {
        // The claim of a1 still holds, and with an order it blocks a2.
        let free = claim(&queue, 10).await;
        assert_eq!(bodies(&free), if ordered { &[][..] } else { &["a2"][..] });
        ack_all(&queue, free).await;
        // A receipt is valid after the restart.
        assert_eq!(queue.extend(a1.clone(), LEASE).await.unwrap(), APPLIED);
        pass(&backend, 31);
        let again = claim(&queue, 10).await;
        assert_eq!(bodies(&again), ["a1"]);
        let settled = queue.settle(vec![(a1, Settlement::Ack)]).await.unwrap();
        assert_eq!(settled, STALE);
        ack_all(&queue, again).await;
    } else {
        // A store with one owner ends the claims of the owner before.
        let again = claim(&queue, 10).await;
        assert_eq!(bodies(&again), if ordered { &["a1"][..] } else { &["a1", "a2"][..] });
        let settled = queue.settle(vec![(a1, Settlement::Ack)]).await.unwrap();
        assert_eq!(settled, STALE);
        ack_all(&queue, again).await;
    }
    assert_eq!(bodies(&claim(&queue, 10).await), if ordered { &["a2"][..] } else { &[][..] });
    assert_eq!(queue.list_dead_letters(None, 10).await.unwrap().len(), 1);
    let new = queue.enqueue(vec![keyed("d1", "d")]).await.unwrap();
    assert!(taken.deliveries.iter().all(|old| old.record.id != new[0].id()), "ids are not reused");
}

pub(crate) async fn random_operations_equal_a_plain_model(backend: impl Backend) {
    for seed in 0..model::SEEDS {
        model::compare(&backend, seed).await;
    }
}
