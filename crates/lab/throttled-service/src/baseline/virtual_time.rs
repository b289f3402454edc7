//! Runs a baseline against a judge in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use std::time::Duration;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::Cost;

use super::{BaselineClient, BaselineReport};
use crate::arrivals::{Arrival, ArrivalLog};
use crate::chance::Chance;
use crate::judge::{Judge, Judgement};
use crate::settings::Latency;

/// Runs a client until it has finished or `end` has come. Each request arrives after one delay, and its answer after
/// another.
pub fn run_in_virtual_time(
    client: &mut dyn BaselineClient,
    judge: &mut Judge,
    cost: Cost,
    latency: Latency,
    end: Timestamp,
    seed: u64,
) -> (BaselineReport, ArrivalLog) {
    let mut run = Run {
        events: BinaryHeap::new(),
        chance: Chance::new(seed),
        latency,
        log: ArrivalLog::default(),
        report: BaselineReport { sends: 0, throttled: 0, accepted: 0, elapsed: Duration::ZERO },
    };
    let mut now = Timestamp::EPOCH;
    while now < end && !client.has_finished() {
        for record in client.send(now) {
            run.report.sends += 1;
            let arrives = run.after_delay(now);
            run.events.push(Reverse((arrives, Event::Arrives { record, sent: now })));
        }
        while let Some(Reverse((_, event))) = run.pop_due(now) {
            run.apply(event, client, judge, cost, now);
        }
        let next_event = run.events.peek().map(|Reverse((at, _))| *at);
        let next = [next_event, client.next_send()].into_iter().flatten().min();
        match next {
            Some(next) => now = now.max(next),
            None => break,
        }
    }
    (run.report, run.log)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { record: usize, sent: Timestamp },
    Answered { record: usize, accepted: bool },
}

struct Run {
    events: BinaryHeap<Reverse<(Timestamp, Event)>>,
    chance: Chance,
    latency: Latency,
    log: ArrivalLog,
    report: BaselineReport,
}

impl Run {
    fn after_delay(&mut self, now: Timestamp) -> Timestamp {
        now.after(Nanos::from(self.latency.draw(&mut self.chance)))
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<Reverse<(Timestamp, Event)>> {
        let is_due = self.events.peek().is_some_and(|Reverse((at, _))| *at <= now);
        is_due.then(|| self.events.pop()).flatten()
    }

    fn apply(
        &mut self,
        event: Event,
        client: &mut dyn BaselineClient,
        judge: &mut Judge,
        cost: Cost,
        now: Timestamp,
    ) {
        match event {
            Event::Arrives { record, sent } => {
                let accepted = judge.judge(cost, now) == Judgement::Accepted;
                let answered = self.after_delay(now);
                self.events.push(Reverse((answered, Event::Answered { record, accepted })));
                self.log.push(Arrival {
                    received: sent,
                    judged: now,
                    departed: Some(sent),
                    id: Some(record.to_string().into()),
                    attempt: None,
                    slot: None,
                    cost,
                    status: if accepted { 200 } else { 429 },
                });
            }
            Event::Answered { record, accepted } => {
                if accepted {
                    self.report.accepted += 1;
                } else {
                    self.report.throttled += 1;
                }
                self.report.elapsed = Duration::from_nanos(now.as_nanos());
                client.answer(record, accepted, now);
            }
        }
    }
}
