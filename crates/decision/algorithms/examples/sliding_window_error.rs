//! How far a sliding window is from the sliding log that it stands for.
//!
//! Each limiter is judged by its own admissions, counted exactly: a request is wrongly admitted if the period before it
//! was full, and wrongly refused if it had room. The total is compared with the admissions of a sliding log on the same
//! traffic. Prints the table of `docs/algorithms.md`; the same seed makes the same table.
//!
//! ```sh
//! cargo run --release -p tidegate-algorithms --example sliding_window_error
//! ```

use std::collections::VecDeque;

use tidegate_algorithms::{
    CheckInput, Limit, Nanos, Period, SlidingLog, SlidingWindow, State, Timestamp,
};

const LIMIT: u64 = 100;
const PERIOD: Nanos = Nanos::from_secs(10);
const PERIODS: u64 = 1_000;
const SLICES: [u16; 6] = [1, 2, 4, 8, 16, 64];
const SEED: u64 = 20_240_229;
const MILLISECOND: u64 = 1_000_000;

fn main() {
    let traffics = [
        ("random, 0.5 × the limit", random(50)),
        ("random, 1 × the limit", random(100)),
        ("random, 2 × the limit", random(200)),
        ("bursts at a slice's end", bursts()),
    ];
    println!(
        "| Traffic | Buckets | Wrongly admitted | Wrongly refused | Admitted, of the log's \
         | Busiest period, of the limit |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    let period = Period::new(PERIOD.into()).expect("ten seconds are a period");
    let log = Limit::new(SlidingLog::new(LIMIT, period).expect("a small limit"));
    for (name, arrivals) in &traffics {
        let exact = measure(arrivals, &log);
        for slices in SLICES {
            let window = SlidingWindow::new(LIMIT, period, slices).expect("few slices");
            let error = measure(arrivals, &Limit::new(window));
            println!(
                "| {name} | {slices} | {} | {} | {} | {} |",
                percent(error.wrongly_admitted, error.asked),
                percent(error.wrongly_refused, error.asked),
                percent(error.admitted, exact.admitted),
                percent(error.busiest, LIMIT),
            );
        }
    }
}

/// What a limiter got wrong.
#[derive(Default)]
struct Error {
    asked: u64,
    admitted: u64,
    wrongly_admitted: u64,
    wrongly_refused: u64,
    /// The most admitted in any one period.
    busiest: u64,
}

fn measure(arrivals: &[u64], limit: &Limit) -> Error {
    let mut state = State::Unused;
    let mut admitted: VecDeque<u64> = VecDeque::new();
    let mut error = Error::default();
    for now in arrivals.iter().copied() {
        while admitted.front().is_some_and(|first| now - first >= PERIOD.get()) {
            admitted.pop_front();
        }
        let fits = (admitted.len() as u64) < LIMIT;
        let decision = limit.check(&mut state, CheckInput::new(1, Timestamp::from_nanos(now)));
        error.asked += 1;
        if decision.is_admitted() {
            admitted.push_back(now);
            error.admitted += 1;
            error.wrongly_admitted += u64::from(!fits);
            error.busiest = error.busiest.max(admitted.len() as u64);
        } else {
            error.wrongly_refused += u64::from(fits);
        }
    }
    error
}

/// Arrivals that know nothing of one another, so many per period on average:
/// each millisecond has the same small chance.
fn random(per_period: u64) -> Vec<u64> {
    let steps = PERIOD.get() / MILLISECOND;
    let mut numbers = Numbers(SEED);
    (0..steps * PERIODS)
        .filter(|_| numbers.below(steps) < per_period)
        .map(|step| step * MILLISECOND)
        .collect()
}

/// What hurts most: all of the limit in the last instant of a slice, then more
/// every millisecond while that slice leaves the window.
fn bursts() -> Vec<u64> {
    let mut arrivals = Vec::new();
    for round in 0..PERIODS / 4 {
        let slice_end = (round * 4 + 1) * PERIOD.get();
        arrivals.extend((0..LIMIT).map(|_| slice_end - 1));
        let millis = 2 * PERIOD.get() / MILLISECOND;
        arrivals.extend((0..millis).map(|turn| slice_end + turn * MILLISECOND));
    }
    arrivals
}

/// A small generator of even quality (splitmix64), so that the table is the
/// same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// In percent with two digits.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = part * 10_000 / whole.max(1);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}
