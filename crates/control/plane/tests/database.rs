//! The rules database: the same behaviour on SQLite and PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::future::Future;
use std::sync::Arc;

use support::{RULES, START, apply, document, row};
use tidegate_plane::{
    Author, Change, ChangeSet, EntryKey, EntryKind, Expectation, NodeReport, PageQuery, PlaneError,
    RulesDatabase,
};

async fn on_sqlite<F: Future<Output = ()>>(case: impl Fn(Arc<RulesDatabase>) -> F) {
    let files = tempfile::tempdir().unwrap();
    let database = RulesDatabase::open(&files.path().join("data")).await.unwrap();
    case(Arc::new(database)).await;
}

#[cfg(feature = "postgres")]
async fn on_postgres<F: Future<Output = ()>>(schema: &str, case: impl Fn(Arc<RulesDatabase>) -> F) {
    use tidegate_test_servers::postgres::PostgresServer;
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    let database = RulesDatabase::connect(&server.url(), schema).await.unwrap();
    case(Arc::new(database)).await;
}

/// A case on both databases.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $case() { super::on_sqlite(super::$case).await; })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test] async fn $case() { super::on_postgres(stringify!($case), super::$case).await; })*
        }
    };
}

cases!(
    a_change_is_a_version_and_its_past_can_be_read,
    nothing_of_a_set_with_one_problem_is_applied,
    of_two_editors_of_one_row_one_is_told,
    the_same_change_twice_is_one_change,
    rules_that_do_not_compile_are_refused_with_their_place,
    a_restored_version_is_a_new_one_without_old_switches_and_keys,
    a_full_cell_refuses_one_row_more,
    a_check_changes_nothing,
    the_audit_names_every_version,
    pages_are_ordered_and_whole_while_others_write,
    the_lease_has_one_holder_and_its_sequence_never_repeats,
    teams_change_their_own_entries,
    reports_of_nodes_are_kept,
);

fn key(name: &str) -> EntryKey {
    EntryKey::new(EntryKind::Row, name).within("api/clients")
}

async fn a_change_is_a_version_and_its_past_can_be_read(database: Arc<RulesDatabase>) {
    assert_eq!(database.version().await.unwrap(), 0);
    let first = apply(&database, vec![row("acme", "rate=1"), row("globex", "gold")]).await.unwrap();
    assert_eq!((first.version, first.changed), (1, 2));
    apply(&database, vec![row("acme", "rate=2").until(START + 60)]).await.unwrap();
    apply(&database, vec![Change::remove(key("acme"))]).await.unwrap();
    let terms = async |version| {
        let found = database.entry(key("acme"), version).await.unwrap();
        found.map(|entry| (entry.text("terms"), entry.until))
    };
    assert_eq!(terms(0).await, None);
    assert_eq!(terms(1).await, Some(("rate=1".to_owned(), None)));
    assert_eq!(terms(2).await, Some(("rate=2".to_owned(), Some(START + 60))));
    assert_eq!(terms(3).await, None);
    let versions = database.versions(u64::MAX, 10).await.unwrap();
    let told: Vec<_> =
        versions.iter().map(|one| (one.version, one.author.as_str(), one.changes)).collect();
    assert_eq!(told, [(3, "ada", 1), (2, "ada", 1), (1, "ada", 2)]);
    let differences = database.differences(1, 3).await.unwrap();
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].before.as_ref().unwrap().body["terms"], "rate=1");
    assert!(differences[0].after.is_none());
    assert!(matches!(database.differences(1, 9).await, Err(PlaneError::NotFound(_))));
}

async fn nothing_of_a_set_with_one_problem_is_applied(database: Arc<RulesDatabase>) {
    let set = vec![row("a", "rate=1"), row("b", " "), row("a", "rate=2"), row("", "x")];
    let Err(PlaneError::Invalid(problems)) = apply(&database, set).await else { panic!() };
    let places: Vec<_> = problems.iter().map(|one| one.place.as_str()).collect();
    assert_eq!(places, ["changes[2]", "changes[3].name", "changes[1].body.terms"]);
    assert_eq!(database.version().await.unwrap(), 0);
    assert_eq!(database.totals(EntryKind::Row).await.unwrap().entries, 0);
    assert_eq!(database.entry(key("a"), 1).await.unwrap(), None);
}

async fn of_two_editors_of_one_row_one_is_told(database: Arc<RulesDatabase>) {
    apply(&database, vec![row("acme", "rate=1")]).await.unwrap();
    let edit = |terms| {
        let change = row("acme", terms).expecting(Expectation::Version(1));
        let database = Arc::clone(&database);
        tokio::spawn(async move { apply(&database, vec![change]).await })
    };
    let (one, other) = (edit("rate=2"), edit("rate=3"));
    let outcomes = [one.await.unwrap(), other.await.unwrap()];
    let stale = outcomes.iter().filter(|outcome| matches!(outcome, Err(PlaneError::Stale { .. })));
    assert_eq!((stale.count(), database.version().await.unwrap()), (1, 2));
    let base = ChangeSet {
        base: Some(1),
        ..ChangeSet::new(Author::named("eve"), "", vec![row("globex", "gold")])
    };
    let outcome = database.apply(base, 10, 0).await;
    assert_eq!(outcome, Err(PlaneError::OldBase { expected: 1, found: 2 }));
    let absent = row("acme", "rate=9").expecting(Expectation::Absent);
    assert!(matches!(apply(&database, vec![absent]).await, Err(PlaneError::Stale { .. })));
}

async fn the_same_change_twice_is_one_change(database: Arc<RulesDatabase>) {
    let change = row("acme", "rate=1").expecting(Expectation::Absent);
    let first = apply(&database, vec![change.clone()]).await.unwrap();
    let second = apply(&database, vec![change]).await.unwrap();
    assert_eq!((first.changed, second.changed), (1, 0));
    assert_eq!((second.version, database.audit(0, 10).await.unwrap().len()), (1, 1));
}

async fn rules_that_do_not_compile_are_refused_with_their_place(database: Arc<RulesDatabase>) {
    apply(&database, vec![document("api.yaml", RULES)]).await.unwrap();
    let wrong = RULES.replace("second", "fortnight");
    let outcome = apply(&database, vec![document("api.yaml", &wrong)]).await;
    let Err(PlaneError::Invalid(problems)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((problems[0].place.as_str(), problems[0].line), ("api.yaml", Some(4)));
    assert_eq!(database.version().await.unwrap(), 1);
    let plan = EntryKey::new(EntryKind::Plan, "gold").within("api");
    let limits = serde_json::json!({"limits": [{"name": "rate", "unit": "eon"}]});
    let outcome = apply(&database, vec![Change::set(plan, limits)]).await;
    let Err(PlaneError::Invalid(problems)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(problems[0].place, "plans/api/gold.yaml");
}

async fn a_restored_version_is_a_new_one_without_old_switches_and_keys(
    database: Arc<RulesDatabase>,
) {
    let api_key = EntryKey::new(EntryKind::Key, "ab".repeat(32));
    let body = serde_json::json!({"owner": "acme", "plan": "gold"});
    apply(&database, vec![row("acme", "rate=1"), Change::set(api_key.clone(), body)])
        .await
        .unwrap();
    let switch = serde_json::json!({"target": "all", "mode": "shadow"});
    let switch = Change::set(EntryKey::new(EntryKind::Switch, "all"), switch);
    let changes =
        vec![row("acme", "rate=2"), row("new", "gold"), Change::remove(api_key.clone()), switch];
    apply(&database, changes).await.unwrap();
    let author = Author::named("eve");
    let restored = database.restore(1, author.clone(), "too strict".into(), 10, 0).await.unwrap();
    assert_eq!((restored.version, restored.changed), (3, 2));
    let at = async |key| database.entry(key, 3).await.unwrap();
    assert_eq!(at(key("acme")).await.unwrap().text("terms"), "rate=1");
    assert_eq!(at(key("new")).await, None);
    assert_eq!(at(api_key).await, None, "a revoked key stays revoked");
    assert!(at(EntryKey::new(EntryKind::Switch, "all")).await.is_some());
    assert_eq!(database.versions(u64::MAX, 1).await.unwrap()[0].restored, Some(1));
    let missing = database.restore(9, author, String::new(), 10, 0).await;
    assert!(matches!(missing, Err(PlaneError::NotFound(_))));
}

async fn a_full_cell_refuses_one_row_more(database: Arc<RulesDatabase>) {
    let rows = (0..10).map(|number| row(&format!("c{number}"), "gold")).collect();
    let set = |changes| ChangeSet::new(Author::named("ada"), "", changes);
    database.apply(set(rows), 10, 0).await.unwrap();
    let outcome = database.apply(set(vec![row("one-more", "gold")]), 10, 0).await;
    assert!(matches!(outcome, Err(PlaneError::Full(_))), "{outcome:?}");
    let swapped = vec![Change::remove(key("c0")), row("one-more", "gold")];
    assert!(database.apply(set(swapped), 10, 0).await.is_ok());
    let totals = database.totals(EntryKind::Row).await.unwrap();
    assert_eq!((totals.entries, totals.terms), (10, 1));
}

async fn a_check_changes_nothing(database: Arc<RulesDatabase>) {
    let set = |terms| ChangeSet::new(Author::named("ada"), "", vec![row("acme", terms)]);
    let checked = database.check(set("gold"), 10, 0).await.unwrap();
    assert_eq!((checked.version, checked.changed), (1, 1));
    assert!(matches!(database.check(set(""), 10, 0).await, Err(PlaneError::Invalid(_))));
    assert_eq!(database.version().await.unwrap(), 0);
    assert_eq!(database.audit(0, 10).await.unwrap(), []);
}

async fn the_audit_names_every_version(database: Arc<RulesDatabase>) {
    for number in 0..5 {
        apply(&database, vec![row("acme", &format!("rate={number}"))]).await.unwrap();
    }
    apply(&database, vec![Change::remove(key("acme"))]).await.unwrap();
    let check = database.verify_audit().await.unwrap();
    assert_eq!((check.rows, &check.broken), (6, &None));
    assert_eq!(database.audit(4, 1).await.unwrap()[0].version, Some(5));
}

async fn pages_are_ordered_and_whole_while_others_write(database: Arc<RulesDatabase>) {
    let rows = (0..50).map(|number| row(&format!("c{number:02}"), "gold")).collect();
    apply(&database, rows).await.unwrap();
    let other = EntryKey::new(EntryKind::Row, "Ä").within("api/other");
    apply(&database, vec![Change::set(other, serde_json::json!({"terms": "x"}))]).await.unwrap();
    let version = database.version().await.unwrap();
    let (mut found, mut after) = (Vec::new(), (String::new(), String::new()));
    loop {
        let query = PageQuery { kind: EntryKind::Row, collection: None, after, version, limit: 7 };
        let page = database.page(query).await.unwrap();
        let Some(last) = page.last() else { break };
        after = (last.key.collection.clone(), last.key.name.clone());
        found.extend(page.into_iter().map(|entry| entry.key.name));
        apply(&database, vec![row(&format!("later{}", found.len()), "gold")]).await.unwrap();
        apply(&database, vec![Change::remove(key("c49"))]).await.unwrap();
    }
    let mut expected: Vec<String> = (0..50).map(|number| format!("c{number:02}")).collect();
    expected.push("Ä".to_owned());
    assert_eq!(found, expected);
}

async fn the_lease_has_one_holder_and_its_sequence_never_repeats(database: Arc<RulesDatabase>) {
    let take = |owner: &str, now| database.take_sequence(owner.to_owned(), now, 1_000);
    let first = take("a", 0).await.unwrap().unwrap();
    assert_eq!(take("b", 999).await.unwrap(), None);
    let second = take("a", 500).await.unwrap().unwrap();
    assert_eq!((second.fence, second.sequence), (first.fence, first.sequence + 1));
    let taken = take("b", 1_500).await.unwrap().unwrap();
    assert_eq!((taken.fence, taken.sequence), (first.fence + 1, second.sequence + 1));
    assert_eq!(take("a", 1_600).await.unwrap(), None, "it was taken over");
    database.release_lease("b".to_owned()).await.unwrap();
    assert!(take("a", 1_700).await.unwrap().is_some());
    database.raise_sequence(1, 100).await.unwrap();
    database.raise_sequence(1, 50).await.unwrap();
    assert_eq!(take("a", 1_700).await.unwrap().unwrap().sequence, 101);
}

async fn teams_change_their_own_entries(database: Arc<RulesDatabase>) {
    let as_team = |owner: &str, changes| {
        let author = Author { name: owner.to_owned(), owner: owner.to_owned() };
        database.apply(ChangeSet::new(author, "", changes), 10, 0)
    };
    as_team("a", vec![row("acme", "rate=1")]).await.unwrap();
    let outcome = as_team("b", vec![row("acme", "rate=2")]).await;
    assert!(matches!(outcome, Err(PlaneError::Forbidden(_))), "{outcome:?}");
    let outcome = as_team("b", vec![Change::remove(key("acme"))]).await;
    assert!(matches!(outcome, Err(PlaneError::Forbidden(_))), "{outcome:?}");
    as_team("a", vec![row("acme", "rate=3")]).await.unwrap();
    // A token without an owner changes everything, and leaves the owner.
    apply(&database, vec![row("acme", "rate=4")]).await.unwrap();
    as_team("a", vec![row("acme", "rate=5")]).await.unwrap();
}

async fn reports_of_nodes_are_kept(database: Arc<RulesDatabase>) {
    let report = |version| NodeReport { version, ..NodeReport::default() };
    database.store_reports(vec![("n1".into(), 1_000, report(1))]).await.unwrap();
    database
        .store_reports(vec![("n1".into(), 5_000, report(2)), ("n2".into(), 5_000, report(1))])
        .await
        .unwrap();
    let nodes = database.nodes(7_500).await.unwrap();
    let told: Vec<_> = nodes
        .iter()
        .map(|one| (one.node.as_str(), one.report.version, one.silent_seconds))
        .collect();
    assert_eq!(told, [("n1", 2, 2), ("n2", 1, 2)]);
}

#[tokio::test]
async fn an_edited_audit_row_and_an_edited_entry_are_named() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let edit = |sql: &str| {
        let connection = rusqlite::Connection::open(path.join("control.db")).unwrap();
        connection.execute(sql, []).unwrap();
    };
    let database = RulesDatabase::open(&path).await.unwrap();
    for number in 0..4 {
        apply(&database, vec![row("acme", &format!("rate={number}"))]).await.unwrap();
    }
    edit("UPDATE entries SET body = '{\"terms\":\"rate=9\"}' WHERE from_version = 3");
    let broken = database.verify_audit().await.unwrap().broken.unwrap();
    assert_eq!(broken.0, 3, "{}", broken.1);
    edit("UPDATE audit SET actor = 'eve' WHERE sequence = 2");
    let broken = database.verify_audit().await.unwrap().broken.unwrap();
    assert_eq!(broken.0, 2, "{}", broken.1);
    edit("UPDATE audit SET actor = 'ada' WHERE sequence = 2");
    edit("UPDATE entries SET body = '{\"terms\":\"rate=2\"}' WHERE from_version = 3");
    assert_eq!(database.verify_audit().await.unwrap().broken, None);
    edit("DELETE FROM audit WHERE sequence = 4");
    let broken = database.verify_audit().await.unwrap().broken.unwrap();
    assert_eq!((broken.0, broken.1.as_str()), (3, "rows after it are missing"));
}

#[tokio::test]
async fn a_backup_is_a_database_with_the_same_history() {
    let files = tempfile::tempdir().unwrap();
    let database = RulesDatabase::open(&files.path().join("data")).await.unwrap();
    apply(&database, vec![row("acme", "rate=1")]).await.unwrap();
    let copy = files.path().join("copy");
    tidegate_data_dir::back_up(&files.path().join("data"), &copy).unwrap();
    apply(&database, vec![row("acme", "rate=2")]).await.unwrap();
    let copy = RulesDatabase::open(&copy).await.unwrap();
    assert_eq!(copy.version().await.unwrap(), 1);
    assert_eq!(copy.entry(key("acme"), 1).await.unwrap().unwrap().text("terms"), "rate=1");
    assert_eq!(copy.verify_audit().await.unwrap().broken, None);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_no_acknowledged_change_and_is_found_again() {
    use tidegate_test_servers::postgres::PostgresServer;
    let mut server = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap();
    let database = RulesDatabase::connect(&server.url(), "control").await.unwrap();
    for number in 0..20 {
        apply(&database, vec![row(&format!("c{number}"), "gold")]).await.unwrap();
    }
    let mut server = tokio::task::spawn_blocking(move || {
        server.kill();
        server
    })
    .await
    .unwrap();
    // A process of the server may outlive it for a moment and still commit; then the change is acknowledged.
    let acknowledged = match apply(&database, vec![row("meanwhile", "gold")]).await {
        Ok(applied) => applied.version,
        Err(PlaneError::Unavailable(_)) => 20,
        Err(error) => panic!("{error}"),
    };
    let _server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let version = database.version().await.unwrap();
    assert!((acknowledged..=21).contains(&version), "{acknowledged} {version}");
    assert_eq!(database.totals(EntryKind::Row).await.unwrap().entries, version);
    let applied = apply(&database, vec![row("after", "gold")]).await;
    assert_eq!(applied.unwrap().version, version + 1);
    assert_eq!(database.verify_audit().await.unwrap().broken, None);
}
