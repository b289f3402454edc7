//! The publisher: guards, sequences, leases, targets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use support::{Plane, RULES, apply, document, row};
use tidegate_algorithms::Nanos;
use tidegate_metrics::missing;
use tidegate_plane::{
    AuditEvent, BeatOutcome, CellSettings, Change, EntryKey, EntryKind, KeyFiles,
    PUBLISHER_METRICS, PublicKey, Publisher, PublisherSettings, SigningKey,
};
use tidegate_row_table::{Minute, TableName};
use tidegate_snapshot_file::{
    EncodedContent, Position, Stamp, Trust, VerifiedSnapshot, inspect, read,
};

async fn start() -> Plane {
    let plane = Plane::start(CellSettings::default()).await;
    apply(&plane.database, vec![document("api.yaml", RULES), row("acme", "rate=500")])
        .await
        .unwrap();
    plane
}

fn published(plane: &Plane) -> VerifiedSnapshot {
    let path = plane.files.path().join("snapshots/main/all/snapshot");
    inspect(&mut std::fs::read(path).unwrap().as_slice()).unwrap()
}

const fn outcome(sequence: u64, version: u64) -> BeatOutcome {
    BeatOutcome::Published { sequence, version }
}

#[tokio::test]
async fn every_beat_has_a_new_sequence_and_the_whole_content() {
    let plane = start().await;
    let plan = Change::set(
        EntryKey::new(EntryKind::Client, "globex").within("api/clients"),
        serde_json::json!({"plan": "gold"}),
    );
    let own = Change::set(
        EntryKey::new(EntryKind::Client, "acme").within("api/clients"),
        serde_json::json!({"plan": "gold"}),
    );
    let key = "ab".repeat(32);
    let api_key = Change::set(
        EntryKey::new(EntryKind::Key, key.clone()),
        serde_json::json!({"owner": "acme", "plan": "gold"}),
    );
    apply(&plane.database, vec![plan, own, api_key]).await.unwrap();
    let mut publisher = plane.publisher("one");
    assert_eq!(publisher.beat().await, outcome(1, 2));
    assert_eq!(publisher.beat().await, outcome(2, 2));
    let snapshot = published(&plane);
    assert_eq!(snapshot.head.stamp.sequence, 2);
    assert_eq!(snapshot.head.rows, 2);
    let clients = TableName { domain: "api".into(), table: "clients".into() };
    let terms = |value: &str| {
        let number = snapshot.content.table.find(clients.tag(), value, Minute(0)).unwrap();
        snapshot.content.rules.terms[number.index()].text.as_str()
    };
    assert_eq!((terms("acme"), terms("globex")), ("rate=500", "gold"), "a row goes before a plan");
    assert_eq!(snapshot.content.keys, format!("{key} acme gold\n"));
    assert_eq!(snapshot.content.rules.documents[0].text, RULES);
    assert_eq!(missing(PUBLISHER_METRICS, &*plane.broadcast), [""; 0]);
    assert_eq!(plane.broadcast.snapshot("all").unwrap().len(), plane.cell.class.file_bytes());
}

#[tokio::test]
async fn ended_rows_are_not_published() {
    let plane = start().await;
    apply(&plane.database, vec![row("guest", "rate=9").until(support::START + 60)]).await.unwrap();
    let mut publisher = plane.publisher("one");
    publisher.beat().await;
    assert_eq!(published(&plane).head.rows, 2);
    plane.clock.advance(Nanos::from_secs(61));
    publisher.beat().await;
    assert_eq!(published(&plane).head.rows, 1);
}

#[tokio::test]
async fn an_emptied_database_and_a_doubled_one_go_on_with_the_last_good_content() {
    let plane = start().await;
    let many = (0..2_000).map(|number| row(&format!("c{number}"), "gold")).collect();
    apply(&plane.database, many).await.unwrap();
    let mut publisher = plane.publisher("one");
    assert_eq!(publisher.beat().await, outcome(1, 2));
    let removed = Change::remove(EntryKey::new(EntryKind::Document, "api.yaml"));
    apply(&plane.database, vec![removed]).await.unwrap();
    assert_eq!(publisher.beat().await, outcome(2, 2));
    let refused = plane.broadcast.status().refused.unwrap();
    assert!(
        refused.starts_with("version 3 is not published (empty): all 1 documents"),
        "{refused}"
    );
    let more = (2_000..4_500).map(|number| row(&format!("c{number}"), "gold"));
    let more = more.chain([document("api.yaml", RULES)]).collect();
    apply(&plane.database, more).await.unwrap();
    assert_eq!(publisher.beat().await, outcome(3, 2));
    let refused = plane.broadcast.status().refused.unwrap();
    assert!(refused.contains("(doubled): 2001 rows have become 4501"), "{refused}");
    // A process that starts now publishes what was good, too.
    publisher.stop().await;
    drop(publisher);
    let mut publisher = plane.publisher("two");
    assert_eq!(publisher.beat().await, outcome(4, 2));
    let allow = serde_json::json!({"guards": ["doubled"], "why": "a large customer came"});
    let answer = plane.call(&plane.admin, "POST", "/v1/publisher/allow", &allow).await;
    assert_eq!(answer.status, 200, "{}", answer.json);
    assert_eq!(publisher.beat().await, outcome(5, 4));
    assert_eq!(plane.broadcast.status().refused, None);
}

#[tokio::test]
async fn a_database_older_than_what_is_published_needs_a_new_epoch() {
    let plane = start().await;
    let mut publisher = plane.publisher("one");
    assert_eq!(publisher.beat().await, outcome(1, 1));
    assert_eq!(publisher.beat().await, outcome(2, 1));
    drop(publisher);
    // Another database with the same cell and key, and an empty history.
    let mut other = start().await;
    other.key = plane.key.to_secret_text().parse().unwrap();
    let directory = plane.files.path().join("snapshots");
    let open = || {
        let target = tidegate_plane::DirectoryTarget::open(&directory).unwrap();
        other.publisher_to("other", vec![Box::new(target)])
    };
    let mut publisher = open();
    // The same version: it goes on after the published sequence.
    assert_eq!(publisher.beat().await, outcome(3, 1));
    drop(publisher);
    apply(&plane.database, vec![row("acme", "rate=1")]).await.unwrap();
    let mut newer = plane.publisher("one");
    assert_eq!(newer.beat().await, outcome(4, 2));
    drop(newer);
    let mut publisher = open();
    let BeatOutcome::Failed(error) = publisher.beat().await else { panic!() };
    assert!(error.starts_with("behind: epoch 1, version 2 is published"), "{error}");
    let epoch = serde_json::json!({"why": "restored from a backup"});
    let answer = other.call(&other.admin, "POST", "/v1/publisher/epoch", &epoch).await;
    assert_eq!(answer.json["epoch"], 2);
    assert_eq!(publisher.beat().await, outcome(1, 1));
    assert_eq!(published(&plane).head.stamp.epoch, 2);
}

#[tokio::test]
async fn one_of_two_publishers_publishes_and_the_other_takes_over() {
    let plane = start().await;
    let mut first = plane.publisher_to("first", Vec::new());
    let mut second = plane.publisher_to("second", Vec::new());
    assert_eq!(first.beat().await, outcome(1, 1));
    assert_eq!(second.beat().await, BeatOutcome::Waiting);
    assert_eq!(first.beat().await, outcome(2, 1));
    // The first one is paused for longer than the lease.
    plane.clock.advance(Nanos::from_secs(16));
    assert_eq!(second.beat().await, outcome(3, 1));
    assert_eq!(plane.broadcast.status().fence, 2);
    assert_eq!(first.beat().await, BeatOutcome::Waiting);
}

#[tokio::test]
async fn a_directory_has_one_publisher() {
    let plane = start().await;
    let path = plane.files.path().join("snapshots");
    let _first = tidegate_plane::DirectoryTarget::open(&path).unwrap();
    let error = tidegate_plane::DirectoryTarget::open(&path).unwrap_err();
    assert!(error.to_string().starts_with("another publisher writes to"), "{error}");
}

#[cfg(feature = "objects")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_store_keeps_the_newest_and_an_old_writer_overwrites_nothing() {
    use std::time::Duration;

    use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
    use tidegate_plane::{ObjectTarget, TargetStore};
    use tidegate_test_servers::moto::MotoServer;

    let server = tokio::task::spawn_blocking(|| MotoServer::start("limits")).await.unwrap();
    let open = || {
        let store = AmazonS3Builder::new()
            .with_access_key_id("test")
            .with_secret_access_key("test")
            .with_region("us-east-1")
            .with_bucket_name("limits")
            .with_endpoint(format!("http://127.0.0.1:{}", server.port()))
            .with_allow_http(true)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .build()
            .unwrap();
        let deadline = Duration::from_secs(30);
        Box::new(ObjectTarget::new(Arc::new(store), "s3://limits/eu", "eu", deadline))
    };
    let plane = start().await;
    let mut first = plane.publisher_to("first", vec![open()]);
    let mut second = plane.publisher_to("second", vec![open()]);
    assert_eq!(first.beat().await, outcome(1, 1));
    assert_eq!(first.beat().await, outcome(2, 1));
    plane.clock.advance(Nanos::from_secs(16));
    assert_eq!(second.beat().await, outcome(3, 1));
    // The first one writes on, as if it had been paused just before its put.
    let old = open();
    let late = bytes::Bytes::from_static(b"late");
    let error = old.put("main", "all", late.clone()).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    let found = old.get("main", "all").await.unwrap().unwrap();
    let snapshot = inspect(&mut found.as_slice()).unwrap();
    assert_eq!(snapshot.head.stamp.sequence, 3);
    assert_eq!(second.beat().await, outcome(4, 1));
    let error = old.put("main", "all", late).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[tokio::test]
async fn a_stolen_key_that_pushed_the_sequence_far_ahead_is_shut_out_by_a_certified_epoch() {
    let plane = start().await;
    let directory = plane.files.path().join("keys-of-the-plane");
    let keys = KeyFiles::of(&directory);
    let made = keys.create().unwrap();
    let trust = |trusted: Vec<PublicKey>| Trust {
        cell: "main".to_owned(),
        ring: None,
        keys: trusted,
        epoch_key: Some(made.epoch.public_key()),
    };
    let stolen = made.signing.public_key();
    let publish = async |keys: &KeyFiles| {
        let settings = PublisherSettings {
            owner: "one".to_owned(),
            ring: "all".to_owned(),
            key: keys.signing().unwrap(),
            certificate: keys.certificate().unwrap(),
            targets: Vec::new(),
        };
        let (database, cell) = (Arc::clone(&plane.database), plane.cell.clone());
        let broadcast = Arc::clone(&plane.broadcast);
        let mut publisher =
            Publisher::new(database, cell, plane.clock.clone(), settings, broadcast);
        assert!(matches!(publisher.beat().await, BeatOutcome::Published { .. }));
        plane.broadcast.snapshot("all").unwrap()
    };
    let node = |file: &[u8], trust: &Trust, last: Option<&Position>| {
        read(&mut &*file, trust, last, None).map(|snapshot| snapshot.position())
    };
    // The thief signs a file with a sequence that no publisher reaches.
    plane.database.raise_sequence(1, 1 << 62).await.unwrap();
    let far = publish(&keys).await;
    let far = node(&far, &trust(vec![stolen]), None).unwrap();
    assert!(far.sequence > 1 << 62);
    // The owner takes the next key into use, and certifies the next epoch for it.
    let next = keys.next().unwrap();
    assert_eq!(keys.next().unwrap(), next);
    assert_eq!(keys.finish_rotation().unwrap(), next);
    let event = AuditEvent {
        actor: "test".to_owned(),
        action: "start epoch",
        object: "the publisher".to_owned(),
        outcome: "applied".to_owned(),
        why: "a stolen key".to_owned(),
    };
    assert_eq!(plane.database.start_epoch(0, event, 0).await.unwrap(), 2);
    keys.certify(&made.epoch, "main", 2).unwrap();
    let recovered = publish(&keys).await;
    // Also servers that were not told of the new key follow the certificate.
    for trusted in [vec![stolen], vec![stolen, next]] {
        let accepted = node(&recovered, &trust(trusted), Some(&far)).unwrap();
        assert_eq!((accepted.epoch, accepted.sequence), (2, 1));
        let refused = node(
            &plane_file(&plane, &made.signing, 2, 1 << 62),
            &trust(vec![stolen]),
            Some(&accepted),
        );
        assert!(refused.is_err(), "the stolen key signs nothing in the certified epoch");
    }
}

/// A file of this content that somebody else signs.
fn plane_file(plane: &Plane, key: &SigningKey, epoch: u64, sequence: u64) -> Vec<u8> {
    let newest = plane.broadcast.snapshot("all").unwrap();
    let snapshot = inspect(&mut &*newest).unwrap();
    let content = EncodedContent::new(plane.cell.class, &snapshot.content).unwrap();
    let stamp = Stamp { epoch, sequence, certificate: None, ..snapshot.head.stamp };
    content.sign(&stamp, key).unwrap()
}
