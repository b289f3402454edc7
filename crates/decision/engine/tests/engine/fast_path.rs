//! The fast path of a request with one descriptor decides as the general path does.

use super::*;

/// Rules of every kind that the fast path decides, and of some that it leaves to the general path.
const RULES: &str = "
domain: api
descriptors:
  - key: user
    limits:
      - {name: burst, algorithm: token_bucket, requests_per_unit: 3, unit: second, burst: 6}
      - {name: day, requests_per_unit: 40, unit: day}
      - {name: in_flight, algorithm: concurrency, requests_per_unit: 4, time_to_live: 5s}
  - key: token
    limits: [{algorithm: token_bucket, requests_per_unit: 3, unit: second, burst: 5}]
  - key: tokens
    limits:
      - {name: short, algorithm: token_bucket, requests_per_unit: 4, unit: second, burst: 5}
      - {name: long, algorithm: token_bucket, requests_per_unit: 30, unit: minute, burst: 9}
  - key: costly
    limits:
      - {name: one, algorithm: token_bucket, requests_per_unit: 4, unit: second, burst: 5}
      - {name: two, algorithm: token_bucket, requests_per_unit: 9, unit: second, cost: 2}
  - key: either
    limits:
      - {name: this, algorithm: token_bucket, requests_per_unit: 1, unit: second, burst: 2, quota_mode: true}
      - {name: that, algorithm: token_bucket, requests_per_unit: 20, unit: minute, burst: 4, quota_mode: true}
  - key: job
    limits: [{algorithm: leaky_bucket, requests_per_unit: 2, unit: second, queue: 4}]
  - key: path
    limits:
      - {name: all, requests_per_unit: 9, unit: minute, cost: 2}
      - {name: quota, requests_per_unit: 3, unit: second, mode: shadow}
  - key: page
    limits: [{algorithm: sliding_window, requests_per_unit: 5, unit: second}]
  - key: slot
    limits:
      - {name: one, algorithm: concurrency, requests_per_unit: 2, time_to_live: 5s}
      - {name: other, algorithm: concurrency, requests_per_unit: 3, time_to_live: 9s}
";

const KEYS: &[&str] =
    &["user", "token", "tokens", "costly", "either", "job", "path", "page", "slot"];

/// Pseudo-random numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 40).map_or(0, |drawn| drawn % end)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[test]
fn a_request_is_decided_the_same_beside_a_descriptor_that_meets_nothing() {
    for charge in ["all_or_nothing", "always"] {
        for seed in 0..20 {
            decide_both_ways(charge, Draw(seed));
        }
    }
}

fn decide_both_ways(charge: &str, mut draw: Draw) {
    let text = RULES.replace("domain: api", &format!("domain: api\ncharge: {charge}"));
    let (short, clock) = engine(&text);
    let (long, other_clock) = engine(&text);
    let (short, long) = (Arc::new(short), Arc::new(long));
    let nothing = entries(&[("nobody", "knows this")]);
    let mut held = Vec::new();
    let mut refused = 0;
    for step in 0..300 {
        let wait = Duration::from_millis(draw.one_of(&[0, 7, 90, 400]));
        clock.advance(wait);
        other_clock.advance(wait);
        let key = draw.one_of(KEYS);
        let value = draw.one_of(&["ada", "grace"]);
        let one = entries(&[(key, value)]);
        let alone = [Descriptor::new(&one)];
        let beside = [Descriptor::new(&one), Descriptor::new(&nothing)];
        let cost = draw.one_of(&[0, 1, 1, 3]);
        let alone = Request::new("api", &alone).with_cost(cost);
        let beside = Request::new("api", &beside).with_cost(cost);
        let holds = draw.below(3) > 0;
        let (verdict, expected) = if holds {
            let ((verdict, permit), (expected, also)) =
                (short.admit_now(&alone, Tenure::Held), long.admit_now(&beside, Tenure::Held));
            assert_eq!(permit.is_empty(), also.is_empty(), "{charge}, step {step}");
            held.push((permit, also));
            (verdict, expected)
        } else {
            (short.check_now(&alone), long.check_now(&beside))
        };
        assert_eq!(told(&verdict), told(&expected), "{charge}, step {step}, {key} {value}");
        refused += u64::from(!verdict.is_admitted());
        if draw.below(3) == 0 && !held.is_empty() {
            drop(held.swap_remove(draw.below(held.len())));
        }
    }
    assert!(refused > 20, "{refused} refused");
}

/// A verdict without the rules that it matched.
fn told(verdict: &Verdict) -> String {
    let rulings = verdict.rulings();
    format!("{:?} {:?} {:?}", verdict.outcome(), verdict.undecided(), rulings)
}
