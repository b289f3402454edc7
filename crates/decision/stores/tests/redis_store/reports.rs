//! Reports of cumulative counts: the script charges by the same rule as Rust.

use std::collections::HashMap;

use tidegate_algorithms::{CheckInput, Nanos, State};
use tidegate_stores::{CountReport, NodeId, Remains, Remote, ReportAnswer, ReportRecord};

use super::*;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const STEPS: u64 = 250;

/// Random numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// A counter and its records, in Rust.
#[derive(Default)]
struct Model {
    state: State,
    /// Whether the server has the counter's key.
    exists: bool,
    /// The records by node; `None` if the server does not have their key.
    records: Option<HashMap<u64, ReportRecord>>,
}

impl Model {
    fn report(&mut self, node: u64, report: &CountReport, now: Timestamp) -> ReportAnswer {
        let idle = report.limit.peek(&mut self.state.clone(), CheckInput::new(0, now));
        let is_list = matches!(self.state, State::Log(_));
        let is_gone = if is_list { idle.remaining == idle.limit } else { !self.exists };
        let only_counter = self.records.is_none() && !is_gone;
        let remains = if only_counter { Remains::OnlyCounter } else { Remains::RecordsOrNothing };
        let record = self.records.as_ref().and_then(|records| records.get(&node).copied());
        let due = report.due(record, remains);
        self.exists |= due.units > 0;
        if record.is_none_or(|old| (report.epoch, report.total) > (old.epoch, old.total)) {
            let record = ReportRecord { epoch: report.epoch, total: report.total };
            self.records.get_or_insert_default().insert(node, record);
        }
        report.charge(&mut self.state, due, now)
    }
}

fn limits() -> Vec<(&'static str, Limit)> {
    vec![
        ("bucket", Limit::new(TokenBucket::new(600, Period::MINUTE, 400))),
        ("fine bucket", Limit::new(TokenBucket::new(7_777_777, Period::MINUTE, 1_000_000))),
        ("window", Limit::new(FixedWindow::new(400, Window::Every(Period::MINUTE)))),
        ("log", Limit::new(SlidingLog::new(400, Period::MINUTE).expect("small"))),
        ("slices", Limit::new(SlidingWindow::new(400, Period::MINUTE, 4).expect("few slices"))),
    ]
}

async fn report(
    store: &RedisStore,
    node: u64,
    reports: &[&CountReport],
    now: Timestamp,
) -> Vec<ReportAnswer> {
    let mut results = Vec::new();
    store.report_counts(NodeId(node), reports, now, PATIENCE, &mut results).await;
    results.into_iter().map(|result| result.expect("the store answers")).collect()
}

#[tokio::test]
async fn the_script_charges_reports_by_the_rule_of_rust() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    for (seed, (name, limit)) in limits().into_iter().enumerate() {
        let key = Key { fingerprint: fingerprint(name), group: 0 };
        let counter = store.key_text(key);
        let records = format!("{counter}:r");
        let (mut model, mut chance) = (Model::default(), Chance(seed as u64 + 1));
        let (mut now, mut counts) = (START, [(1_u64, 0_u64); 3]);
        for step in 0..STEPS {
            now = now.after(Nanos::new(chance.below(300_000) * 1_000));
            store.set_clock(now);
            let node = chance.below(3);
            let (epoch, total) = &mut counts[usize::try_from(node).expect("small")];
            match chance.below(20) {
                // The node counts the key from the beginning.
                0 => (*epoch, *total) = (*epoch + 1, 0),
                // The server loses keys.
                1 => {
                    server.tell(&["DEL", &counter, &records]);
                    model = Model::default();
                }
                2 => {
                    server.tell(&["DEL", &records]);
                    model.records = None;
                }
                _ => *total += chance.below(12),
            }
            // Some reports are late ones.
            let shown = total.saturating_sub(chance.below(3) * chance.below(8));
            let told = CountReport {
                key,
                limit: limit.clone(),
                epoch: epoch.saturating_sub(u64::from(chance.below(15) == 0)),
                total: shown,
                confirmed: chance.below(3) * shown / 2,
                current: chance.below(shown + 1),
                age: Nanos::new(chance.below(2_000_000) * 1_000),
            };
            let expected = model.report(node, &told, now);
            let answers = report(&store, node, &[&told], now).await;
            assert_eq!(answers, [expected], "{name}, step {step}: {told:?}");
        }
    }
}

#[tokio::test]
async fn many_reports_in_one_call_are_charged_each() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(FixedWindow::new(1_000, Window::Every(Period::MAX)));
    let told = |number: u64, total| CountReport {
        key: Key { fingerprint: fingerprint(&format!("key {number}")), group: 0 },
        limit: limit.clone(),
        epoch: 1,
        total,
        confirmed: 0,
        current: total,
        age: Nanos::ZERO,
    };
    let reports: Vec<CountReport> = (0..200).map(|number| told(number, number)).collect();
    let reports: Vec<&CountReport> = reports.iter().collect();
    for (node, times) in [(1, 1), (1, 1), (2, 2), (2, 2)] {
        let answers = report(&store, node, &reports, NOW).await;
        for (number, answer) in (0_u64..).zip(&answers) {
            assert_eq!(answer.decision.remaining, 1_000 - number * times, "{number}");
        }
    }
}

#[tokio::test]
async fn records_of_reports_expire_with_their_counts() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(TokenBucket::new(1, Period::SECOND, 30));
    let key = Key { fingerprint: fingerprint("a"), group: 0 };
    let (epoch, total, confirmed, current, age) = (1, 5, 0, 5, Nanos::ZERO);
    let told = CountReport { key, limit, epoch, total, confirmed, current, age };
    report(&store, 1, &[&told], NOW).await;
    let left = server.tell(&["TTL", &format!("{}:r", store.key_text(key))]);
    // The burst refills in 30 s, and a minute is added.
    assert!(matches!(left, Reply::Number(80..=92)), "{left:?}");
}
