//! A lost master of a cluster, and the keys of the other masters.

use tidegate_stores::Consistency;

use crate::fleet::{Fleet, Plan};
use crate::load::{LoadReport, Subject, WIDE, lasting};
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::{Server, Setup};

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Checks of each key while the master is gone.
const TIMES: u64 = 50;

fn keys(master: &Server) -> i64 {
    match master.tell(&["DBSIZE"]) {
        Reply::Number(keys) => keys,
        _ => 0,
    }
}

/// The slot that a subject's counter lies in.
fn slot(fleet: &Fleet, subject: &Subject, server: &Server) -> usize {
    let key = fleet.nodes[0].store.remote().key_text(subject.check().key);
    match server.tell(&["CLUSTER", "KEYSLOT", &key]) {
        Reply::Number(slot) => usize::try_from(slot).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The smallest value of any of these.
fn least(
    seen: &LoadReport,
    names: &[&str],
    number: impl Fn(&crate::load::Tally) -> u64 + Copy,
) -> u64 {
    names.iter().map(|name| seen.of(name, number)).min().unwrap()
}

#[test]
fn a_lost_master_leaves_the_keys_of_the_others_exact() {
    let setup = Setup::redis().with("cluster-require-full-coverage", &["no"]);
    let mut cluster = Cluster::start_with(3, 0, &setup);
    let url = format!("redis-cluster://{}?connect_timeout=300ms", cluster.addresses());
    let fleet = Plan::new(2, &url).unhurried().start();
    // There is nothing yet but the register, which is the worst to lose.
    let lost = (0..3).find(|at| keys(&cluster.masters[*at]) > 0).unwrap();
    let subject = |name| Subject::new(name, lasting(WIDE), Consistency::Exact);
    let subjects: Vec<Subject> = NAMES.into_iter().map(subject).collect();
    let lies_there = |subject: &&Subject| {
        let slot = slot(&fleet, subject, &cluster.masters[lost]);
        cluster.slots(lost).contains(&slot)
    };
    let (gone, there): (Vec<&Subject>, Vec<&Subject>) = subjects.iter().partition(lies_there);
    let names = |subjects: &[&Subject]| -> Vec<&str> {
        subjects.iter().map(|subject| subject.name).collect()
    };
    let (gone, healthy) = (names(&gone), names(&there));
    assert!(!gone.is_empty() && healthy.len() > 1, "{gone:?} and {healthy:?}");
    let load = fleet.load(subjects.clone());
    eventually("that all are asked for", || {
        (least(&load.seen(), &NAMES, |tally| tally.firm) > 5).then_some(())
    });
    cluster.masters[lost].kill();
    fleet.wait_until_degraded();
    let before = load.seen();
    eventually("that all go on", || {
        let seen = load.seen();
        let local = least(&seen, &gone, |tally| tally.local);
        let firm = healthy
            .iter()
            .map(|name| seen.of(name, |tally| tally.firm) - before.of(name, |tally| tally.firm));
        (local > TIMES && firm.min().unwrap() > TIMES).then_some(())
    });
    assert!(fleet.nodes.iter().all(|node| node.metrics().degraded));
    cluster.masters[lost].restart();
    cluster.wait_until_whole();
    fleet.measure_recovery("a master is lost", &load);
    let seen = load.stop();
    println!("a master is lost: {}", seen.words());
    for subject in there {
        let name = subject.name;
        assert_eq!(seen.of(name, |tally| tally.local + tally.local_refused), 0, "{name}");
        let firm = seen.of(name, |tally| tally.firm);
        assert_eq!(fleet.counted(subject), firm, "{name}: each was counted, and once");
    }
    assert!(seen.each().all(|tally| tally.undecided.is_empty()));
}
