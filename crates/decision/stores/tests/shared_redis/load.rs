//! Callers under load, and the answers that they received.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{FixedWindow, Limit, Period, Window};
use tidegate_stores::{
    Answer, Check, Consistency, FailureKind, Fingerprinter, Key, OnStoreError, Policy, StoreError,
    Verb,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fleet::{Node, WITHIN};
use tidegate_test_servers::eventually;

/// Callers at each node.
const CALLERS: usize = 2;
/// The pause between two rounds of a caller.
const PACE: Duration = Duration::from_millis(10);
/// How long a thread may wait for a processor when several suites share the machine.
const SLACK: Duration = Duration::from_millis(900);

const SECOND: Duration = Duration::from_secs(1);

/// A limit under load, with its policy.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    pub(crate) policy: Policy,
}

impl Subject {
    pub(crate) fn new(name: &'static str, limit: Limit, consistency: Consistency) -> Self {
        assert_eq!(tidegate_stores::consistency_for(consistency, &limit), consistency, "{name}");
        Subject { name, limit, policy: Policy { consistency, on_store_error: OnStoreError::Local } }
    }

    pub(crate) fn check(&self) -> Check<'_> {
        let fingerprint = Fingerprinter::shared().of(1, self.name.as_bytes());
        Check { policy: self.policy, ..Check::new(Key { fingerprint, group: 1 }, &self.limit, 1) }
    }

    pub(crate) fn quota(&self) -> u64 {
        self.limit.algorithm().quota()
    }
}

/// A window that does not end while a test runs, unless once a year.
pub(crate) fn lasting(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::MAX)))
}

/// A limit that is used up in the test: it has to hold.
pub(crate) const TIGHT: u64 = 600;
/// A limit that is never used up: each request is to be counted, and once.
pub(crate) const WIDE: u64 = 3_000_000;

/// Every mode, with a limit that has to hold and one that counts.
pub(crate) fn every_mode() -> Vec<Subject> {
    use Consistency::{Eventual, Exact, Leased};
    vec![
        Subject::new("exact, tight", lasting(TIGHT), Exact),
        Subject::new("exact, wide", lasting(WIDE), Exact),
        Subject::new("leased, tight", lasting(TIGHT), Leased),
        Subject::new("leased, wide", lasting(WIDE), Leased),
        Subject::new("eventual, tight", lasting(TIGHT), Eventual),
        Subject::new("eventual, wide", lasting(WIDE), Eventual),
    ]
}

/// The basis of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rests {
    /// The shared store, now or a moment ago.
    OnTheStore,
    /// The node alone.
    OnTheNode,
}

/// The answers about one subject at one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Admitted with the store behind it.
    pub(crate) firm: u64,
    /// Admitted by the node alone.
    pub(crate) local: u64,
    pub(crate) firm_refused: u64,
    pub(crate) local_refused: u64,
    pub(crate) undecided: BTreeMap<FailureKind, String>,
    pub(crate) slowest: Duration,
    /// Requests that waited until their deadline.
    pub(crate) waited: u64,
    /// When something was admitted.
    admitted_at: Vec<Instant>,
}

impl Tally {
    fn note(&mut self, decided: Result<Answer, StoreError>, begun: Instant) {
        let took = begun.elapsed();
        self.answered += 1;
        self.slowest = self.slowest.max(took);
        self.waited += u64::from(took >= WITHIN);
        match decided {
            Ok(answer) => {
                let place = match (answer.decision.is_admitted(), answer.basis.is_degraded()) {
                    (true, false) => &mut self.firm,
                    (true, true) => &mut self.local,
                    (false, false) => &mut self.firm_refused,
                    (false, true) => &mut self.local_refused,
                };
                *place += 1;
                if answer.decision.is_admitted() {
                    self.admitted_at.push(Instant::now());
                }
            }
            Err(error) => {
                self.undecided.insert(error.kind(), error.to_string());
            }
        }
    }

    fn resting(&self, rests: Rests) -> u64 {
        match rests {
            Rests::OnTheStore => self.firm + self.firm_refused,
            Rests::OnTheNode => self.local + self.local_refused,
        }
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.firm + self.local
    }

    /// The most that was admitted within any span of this length.
    fn most_in(&self, span: Duration) -> u64 {
        let mut most = 0;
        let mut first = 0;
        for (at, instant) in self.admitted_at.iter().enumerate() {
            while self.admitted_at[first] + span < *instant {
                first += 1;
            }
            most = most.max(at + 1 - first);
        }
        most as u64
    }
}

/// Callers at work.
#[derive(Debug)]
pub(crate) struct Load {
    work: Arc<Work>,
    callers: Vec<JoinHandle<()>>,
    runtime: Handle,
}

#[derive(Debug)]
struct Work {
    subjects: Vec<Subject>,
    /// By node, then by subject.
    tallies: Vec<Mutex<Vec<Tally>>>,
    stop: AtomicBool,
    pause: AtomicBool,
    at_work: AtomicUsize,
}

impl Load {
    pub(crate) fn start(runtime: &Handle, nodes: &[Arc<Node>], subjects: Vec<Subject>) -> Self {
        let none = || Mutex::new(vec![Tally::default(); subjects.len()]);
        let work = Arc::new(Work {
            tallies: nodes.iter().map(|_| none()).collect(),
            subjects,
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            at_work: AtomicUsize::new(0),
        });
        let callers = nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| (0..CALLERS).map(move |_| (at, Arc::clone(node))));
        let callers = callers.map(|(at, node)| runtime.spawn(Arc::clone(&work).call(at, node)));
        Load { callers: callers.collect(), work, runtime: runtime.clone() }
    }

    /// The answers so far.
    pub(crate) fn seen(&self) -> LoadReport {
        self.work.seen()
    }

    /// Waits until every node has received `more` answers of this basis about every subject.
    #[track_caller]
    pub(crate) fn wait_for(&self, rests: Rests, more: u64) {
        let before = self.seen();
        eventually(&format!("answers that rest {rests:?}"), || {
            let seen = self.seen();
            let mut pairs = seen.each().zip(before.each());
            pairs.all(|(now, then)| now.resting(rests) >= then.resting(rests) + more).then_some(())
        });
    }

    /// Waits until the store itself refuses every limit that can be used up.
    #[track_caller]
    pub(crate) fn wait_until_used_up(&self) {
        let before = self.seen();
        eventually("that the limits are used up", || {
            let seen = self.seen();
            let tight = |tally: &(&Subject, u64)| tally.0.quota() < WIDE;
            let refused = |seen: &LoadReport| -> Vec<u64> {
                seen.by_subject(|tally| tally.firm_refused).filter(tight).map(|it| it.1).collect()
            };
            let (now, then) = (refused(&seen), refused(&before));
            now.iter().zip(then).all(|(now, then)| *now > then).then_some(())
        });
    }

    /// Waits until no call is in flight, and keeps callers from starting another.
    #[track_caller]
    pub(crate) fn pause(&self) {
        self.work.pause.store(true, Ordering::SeqCst);
        eventually("that all callers rest", || {
            (self.work.at_work.load(Ordering::SeqCst) == 0).then_some(())
        });
    }

    pub(crate) fn go_on(&self) {
        self.work.pause.store(false, Ordering::SeqCst);
    }

    /// Ends the load: every caller has its answer by then.
    #[track_caller]
    pub(crate) fn stop(self) -> LoadReport {
        self.work.stop.store(true, Ordering::Relaxed);
        let (seen, runtime) = (Arc::clone(&self.work), self.runtime);
        runtime.block_on(async {
            for caller in self.callers {
                caller.await.unwrap();
            }
        });
        let seen = seen.seen();
        seen.assert_all_answered();
        seen
    }
}

impl Work {
    fn seen(&self) -> LoadReport {
        let tallies = self.tallies.iter().map(|tallies| tallies.lock().clone()).collect();
        LoadReport { subjects: self.subjects.clone(), tallies }
    }

    async fn call(self: Arc<Self>, at: usize, node: Arc<Node>) {
        while !self.stop.load(Ordering::Relaxed) {
            self.at_work.fetch_add(1, Ordering::SeqCst);
            if !self.pause.load(Ordering::SeqCst) {
                self.round(at, &node).await;
            }
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            tokio::time::sleep(PACE).await;
        }
    }

    async fn round(&self, at: usize, node: &Node) {
        for (number, subject) in self.subjects.iter().enumerate() {
            self.tallies[at].lock()[number].asked += 1;
            let begun = Instant::now();
            let decided = node.send(Verb::Check, subject.check()).await;
            self.tallies[at].lock()[number].note(decided, begun);
        }
    }
}

/// The answers by node and subject.
#[derive(Clone, Debug)]
pub(crate) struct LoadReport {
    pub(crate) subjects: Vec<Subject>,
    tallies: Vec<Vec<Tally>>,
}

impl LoadReport {
    pub(crate) fn each(&self) -> impl Iterator<Item = &Tally> {
        self.tallies.iter().flatten()
    }

    /// A number of every subject, all nodes together.
    fn by_subject(&self, number: impl Fn(&Tally) -> u64) -> impl Iterator<Item = (&Subject, u64)> {
        self.subjects.iter().enumerate().map(move |(at, subject)| {
            (subject, self.tallies.iter().map(|tallies| number(&tallies[at])).sum())
        })
    }

    /// A number of one subject, all nodes together.
    #[track_caller]
    pub(crate) fn of(&self, name: &str, number: impl Fn(&Tally) -> u64) -> u64 {
        self.by_subject(number).find(|(subject, _)| subject.name == name).unwrap().1
    }

    /// The most that one node admitted of a subject within a second.
    #[track_caller]
    pub(crate) fn busiest_second(&self, name: &str) -> u64 {
        let at = self.subjects.iter().position(|subject| subject.name == name).unwrap();
        let each = self.tallies.iter().map(|tallies| tallies[at].most_in(SECOND));
        each.max().unwrap()
    }

    /// A number of everything.
    pub(crate) fn sum(&self, number: impl Fn(&Tally) -> u64) -> u64 {
        self.each().map(number).sum()
    }

    fn assert_all_answered(&self) {
        assert!(self.each().all(|tally| tally.asked == tally.answered), "{}", self.words());
    }

    /// No call waited much longer than the deadline, and every call got a decision.
    #[track_caller]
    pub(crate) fn assert_decided_in_time(&self) {
        for tally in self.each() {
            assert!(tally.slowest < WITHIN + SLACK, "{:?}: {}", tally.slowest, self.words());
            assert!(tally.undecided.is_empty(), "{:?}", tally.undecided);
        }
    }

    /// Every limit held: by the store's count, and with the nodes' shares in an outage. For `unknowing` nodes may not
    /// have known each other's counts.
    #[track_caller]
    pub(crate) fn assert_limits_held(&self, unknowing: Duration) {
        for (at, subject) in self.subjects.iter().enumerate() {
            let of = |number: &dyn Fn(&Tally) -> u64| -> u64 {
                self.tallies.iter().map(|tallies| number(&tallies[at])).sum()
            };
            let (name, quota) = (subject.name, subject.quota());
            let (firm, local) = (of(&|tally| tally.firm), of(&|tally| tally.local));
            let over = match subject.policy.consistency {
                Consistency::Exact | Consistency::Leased => 0,
                // However little it knows, a node alone keeps to the limit.
                Consistency::Eventual => of(&|tally| tally.most_in(unknowing))
                    .min(quota * (self.tallies.len() as u64 - 1)),
            };
            assert!(firm <= quota + over, "{name}: {firm} of {quota}, and {over} at the most");
            assert!(local <= quota, "{name}: {local} in shares of {quota}");
        }
    }

    /// A summary for assertion messages.
    pub(crate) fn words(&self) -> String {
        let each = self.by_subject(Tally::admitted).map(|(subject, admitted)| {
            let local = self.of(subject.name, |tally| tally.local);
            format!("{}: {admitted} admitted, {local} by shares", subject.name)
        });
        each.collect::<Vec<_>>().join("; ")
    }
}
