//! S9 and S10: a fleet of ten nodes, of which one dies, and a board that stops answering.
//!
//! The production board and nodes in virtual time. The first node wants all its capacity, the
//! others half. Requests take 20 ms, and nodes beat every 200 ms at different moments. There are
//! no critical requests: the fleet never refuses them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{
    CheckInput, Concurrency, Holder, Limit, Nanos, Period, State, Timestamp,
};
use tidegate_overload::{Board, Category, Credit, FleetSettings, FleetShedder};

const NODES: usize = 10;
const CAPACITY: u64 = 64;
const STEP: Nanos = Nanos::from_millis(10);
/// Steps between two beats of a node.
const BEAT: u64 = 20;
/// Steps that a request takes.
const SERVICE: u64 = 2;
/// Slots of a caller, and how long a slot outlives a holder that died.
const SLOTS: u64 = 20;
const SLOT_LEASE: Duration = Duration::from_secs(10);

/// The results of the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetFindings {
    /// S9: seconds until the share of a dead node is divided again.
    pub grant_back_after: f64,
    /// S9: seconds until the slots of a dead holder are free again.
    pub slots_back_after: f64,
    /// The most requests in flight over the pool of the live nodes.
    pub over_admission: f64,
    /// S10: the smallest admitted share of the wanted requests in a second of the outage.
    pub admitted_in_outage: f64,
    /// S10: the same before it.
    pub admitted_before: f64,
}

impl FleetFindings {
    /// Name, result and goal of each metric, and whether it was reached.
    pub fn goals(&self) -> [(&'static str, f64, f64, bool); 4] {
        let at_most = |name, reached, wanted| (name, reached, wanted, reached <= wanted);
        [
            at_most("S9: seconds until a dead node's grant is back", self.grant_back_after, 3.0),
            at_most(
                "S9: seconds until a dead holder's slots are back",
                self.slots_back_after,
                11.0,
            ),
            at_most("S9, S10: most in flight beside the pool", self.over_admission, 1.0),
            (
                "S10: least admitted while the board is silent, of what was wanted",
                self.admitted_in_outage,
                0.8,
                self.admitted_in_outage >= 0.8,
            ),
        ]
    }
}

/// Simulates both scenarios.
pub(crate) fn play() -> FleetFindings {
    let (grant_back_after, crash_peak) = crash();
    let (admitted_before, admitted_in_outage, outage_peak) = outage();
    FleetFindings {
        grant_back_after,
        slots_back_after: slots_back(),
        over_admission: crash_peak.max(outage_peak),
        admitted_in_outage,
        admitted_before,
    }
}

struct Node {
    shedder: Arc<FleetShedder>,
    wants: u64,
    alive: bool,
    /// Credits with the step at which their request ends.
    inside: VecDeque<(u64, Credit)>,
}

struct Fleet {
    board: Board,
    nodes: Vec<Node>,
    step: u64,
    board_answers: bool,
    wanted: u64,
    admitted: u64,
    peak: f64,
}

impl Fleet {
    fn new() -> Self {
        let settings = FleetSettings::default();
        let node = |index: usize| Node {
            shedder: Arc::new(FleetShedder::new(settings, CAPACITY)),
            wants: if index == 0 { CAPACITY } else { CAPACITY / 2 },
            alive: true,
            inside: VecDeque::new(),
        };
        let mut fleet = Fleet {
            board: Board::new(settings, Timestamp::EPOCH),
            nodes: (0..NODES).map(node).collect(),
            step: 0,
            board_answers: true,
            wanted: 0,
            admitted: 0,
            peak: 0.0,
        };
        // Long enough for grants to settle before the measurement.
        fleet.run(30);
        fleet.peak = 0.0;
        fleet
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.step.saturating_mul(STEP.get()))
    }

    /// Simulates seconds. Returns the admitted share of the wanted requests in the worst second.
    fn run(&mut self, seconds: u64) -> f64 {
        let mut least = 1.0_f64;
        for _ in 0..seconds {
            (self.wanted, self.admitted) = (0, 0);
            (0..100).for_each(|_| self.advance());
            least = least.min(self.admitted as f64 / self.wanted.max(1) as f64);
        }
        least
    }

    fn advance(&mut self) {
        self.step += 1;
        let now = self.now();
        for (index, node) in (0_u64..).zip(&mut self.nodes) {
            while node.inside.front().is_some_and(|(ends, _)| *ends <= self.step) {
                node.inside.pop_front();
            }
            if !node.alive {
                continue;
            }
            // Each node beats at its own moment.
            if (self.step + index * 2).is_multiple_of(BEAT) {
                if self.board_answers {
                    let report = node.shedder.report(index, now);
                    if let Ok(grant) = self.board.beat(now, &report) {
                        node.shedder.accept(now, &grant);
                    }
                } else {
                    node.shedder.miss_beat();
                }
            }
            self.wanted += node.wants;
            while (node.inside.len() as u64) < node.wants
                && let Some(credit) = node.shedder.try_enter(now, Category::Post)
            {
                node.inside.push_back((self.step + SERVICE, credit));
            }
            self.admitted += node.inside.len() as u64;
        }
        self.note_peak();
    }

    fn note_peak(&mut self) {
        let alive = self.nodes.iter().filter(|node| node.alive);
        let inside: usize = alive.clone().map(|node| node.inside.len()).sum();
        let pool = FleetSettings::default().pool(alive.count() as u64 * CAPACITY);
        self.peak = self.peak.max(inside as f64 / pool.max(1) as f64);
    }
}

fn crash() -> (f64, f64) {
    let mut fleet = Fleet::new();
    let died = fleet.step;
    if let Some(node) = fleet.nodes.first_mut() {
        node.alive = false;
        node.inside.clear();
    }
    // A minute is far beyond any lease.
    while fleet.board.nodes() == NODES && fleet.step < died + 6_000 {
        fleet.advance();
    }
    let after = (fleet.step - died) as f64 / 100.0;
    fleet.run(10);
    (after, fleet.peak)
}

/// A minute without answers, a minute of errors, then the board again. A node counts both as missed
/// beats.
fn outage() -> (f64, f64, f64) {
    let mut fleet = Fleet::new();
    let before = fleet.run(10);
    fleet.board_answers = false;
    let during = fleet.run(120);
    fleet.board_answers = true;
    fleet.run(30);
    (before, during, fleet.peak)
}

/// A holder takes all slots of a caller and dies; another one tries every 100 ms.
fn slots_back() -> f64 {
    let lease = Period::new(SLOT_LEASE);
    let Some(limit) = lease.ok().and_then(|lease| Concurrency::new(SLOTS, lease).ok()) else {
        return f64::INFINITY;
    };
    let (limit, mut state) = (Limit::new(limit), State::default());
    let ask = |cost: u64, millis: u64, holder: u64| {
        let now = Timestamp::EPOCH.after(Nanos::from_millis(1_000 + millis));
        CheckInput { holder: Holder(holder), ..CheckInput::new(cost, now) }
    };
    limit.check(&mut state, ask(SLOTS, 0, 1));
    let tries = (1..600).map(|tenth| tenth * 100);
    let back =
        tries.clone().find(|millis| limit.check(&mut state, ask(SLOTS, *millis, 2)).is_admitted());
    back.map_or(f64::INFINITY, |millis| millis as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_node_held_comes_back_and_the_pool_is_never_exceeded() {
        let found = play();
        assert!(found.goals().iter().all(|(_, _, _, met)| *met), "{found:?}");
        assert!(found.grant_back_after > 1.0 && found.slots_back_after > 9.0, "leases hold");
        assert!(found.admitted_before > found.admitted_in_outage, "safe is less than granted");
    }
}
