//! Makes the vectors that the client libraries in other languages are held to: `sdk/vectors`.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_client::{AnswerKind, Step, TargetState};
use tidegate_response_fields::{PolicyUnit, ResponseFields};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The time of day in all vectors, in seconds since the epoch.
const DAY_SECONDS: u64 = 1_800_000_000;
const SCENARIOS: u64 = 40;
const STEPS: u64 = 60;

/// Answers, and what is read of them.
pub(crate) fn field_vectors() -> Value {
    let cases: [&[(&str, &str)]; 29] = [
        &[],
        &[("retry-after", "7")],
        &[("retry-after", " 2.5 ")],
        &[("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT")],
        &[
            ("date", "Fri, 15 Jan 2027 09:00:00 GMT"),
            ("retry-after", "Fri, 15 Jan 2027 09:00:10 GMT"),
        ],
        &[("retry-after", "soon")],
        &[("retry-after", "-1")],
        &[("retry-after-ms", "1500")],
        &[("x-ms-retry-after-ms", "20")],
        &[("retry-after", "2"), ("retry-after-ms", "1100")],
        &[("retry-after", "60"), ("retry-after-ms", "60")],
        &[("grpc-retry-pushback-ms", "250")],
        &[("grpc-retry-pushback-ms", "-1")],
        &[("age", "3"), ("retry-after", "7")],
        &[("ratelimit-policy", "\"hourly\";q=5;w=3600"), ("ratelimit", "\"hourly\";r=4;t=720")],
        &[
            ("ratelimit-policy", "\"slots\";q=2;qu=\"concurrent-requests\""),
            ("ratelimit", "\"slots\";r=0"),
        ],
        &[
            ("ratelimit-policy", "\"bytes\";q=9;qu=\"content-bytes\""),
            ("ratelimit", "\"bytes\";r=1;t=1"),
        ],
        &[
            ("ratelimit-policy", "\"a\\\"b\";q=1;w=1 , c;q=2;w=2"),
            ("ratelimit", "c;r=1, \"a\\\"b\";r=0;t=9"),
        ],
        &[("ratelimit-policy", "100;w=60"), ("ratelimit", "limit=100, remaining=0, reset=30")],
        &[("ratelimit", "\"open;r=1")],
        &[("ratelimit", "\"x\";r=-5;t=1")],
        &[("ratelimit-limit", "10"), ("ratelimit-remaining", "3"), ("ratelimit-reset", "12")],
        &[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1800000900"),
        ],
        &[
            ("x-ratelimit-limit", "100, 100;w=60"),
            ("x-ratelimit-remaining", "7"),
            ("x-ratelimit-reset", "1800000900000"),
        ],
        &[
            ("x-rate-limit-limit", "15"),
            ("x-rate-limit-remaining", "14"),
            ("x-rate-limit-reset", "1799999999"),
        ],
        &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "120ms"),
        ],
        &[
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        &[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:20Z"),
        ],
        &[("x-ratelimit-remaining", "1.5"), ("x-ratelimit-limit", "x")],
    ];
    let cases: Vec<Value> = cases
        .iter()
        .map(|fields| {
            let headers = header_map(fields);
            let read = ResponseFields::read(&headers, Timestamp::from_secs(DAY_SECONDS));
            json!({ "headers": header_object(fields), "expect": fields_value(&read) })
        })
        .collect();
    json!({ "day_seconds": DAY_SECONDS, "cases": cases })
}

/// Sequences of calls and answers in virtual time, and what is decided after each.
pub(crate) fn pacing_vectors() -> Value {
    let scenarios: Vec<Value> = (0..SCENARIOS).map(scenario).collect();
    json!({ "day_seconds": DAY_SECONDS, "scenarios": scenarios })
}

fn scenario(seed: u64) -> Value {
    let mut draws = 0;
    let mut draw = |below: u64| {
        draws += 1;
        xxh3_64_with_seed(&u64::to_le_bytes(draws), seed) % below
    };
    let (quota, window) = (1 + draw(60), 1 + draw(20));
    let states = draw(4) > 0;
    let mut now_ms = 1_000;
    let mut target = TargetState::new(at(now_ms));
    let mut in_flight: Vec<u64> = Vec::new();
    let mut remaining = quota;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let wait_max = [1_000, 60_000][usize::from(draw(4) > 0)];
        let step = target.plan(at(now_ms), Nanos::from_millis(wait_max));
        steps.push(json!({ "at_ms": now_ms, "plan": { "wait_max_ms": wait_max }, "expect": step_value(step) }));
        if step == Step::Send {
            let sequence = target.count_send(true, at(now_ms));
            steps.push(json!({ "at_ms": now_ms, "send": {}, "expect": { "sequence": sequence } }));
            in_flight.push(sequence);
        }
        now_ms += match step {
            Step::Wait(wait) if draw(3) > 0 => wait.get().div_ceil(1_000_000),
            _ => draw(40) * draw(40),
        };
        if !in_flight.is_empty() && draw(5) > 0 {
            let index = usize::try_from(draw(in_flight.len() as u64)).unwrap_or(0);
            let sequence = in_flight.remove(index);
            remaining = remaining.saturating_sub(1);
            if draw(8) == 0 {
                remaining = quota;
            }
            let (kind, status) = match draw(12) {
                0 => (AnswerKind::Refused, 429),
                1 => (AnswerKind::Short, 503),
                2 => (AnswerKind::Failed, 502),
                _ => (AnswerKind::Served, 200),
            };
            let mut fields = Vec::new();
            if states {
                fields.push(("ratelimit-policy", format!("\"rate\";q={quota};w={window}")));
                fields
                    .push(("ratelimit", format!("\"rate\";r={remaining};t={}", 1 + draw(window))));
            }
            if status == 429 && draw(3) > 0 {
                fields.push(("retry-after", (1 + draw(4)).to_string()));
            }
            let borrowed: Vec<(&str, &str)> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let read =
                ResponseFields::read(&header_map(&borrowed), Timestamp::from_secs(DAY_SECONDS));
            target.record_answer(sequence, kind, &read, at(now_ms), 0);
            steps.push(json!({
                "at_ms": now_ms,
                "answer": { "sequence": sequence, "status": status, "headers": header_object(&borrowed) },
                "expect": { "held_ns": target.held_for(at(now_ms)).get() },
            }));
        }
        if draw(10) == 0 {
            let stated = draw(2) == 0;
            let paid = target.spend_retry(stated, at(now_ms));
            steps.push(json!({ "at_ms": now_ms, "retry": { "stated": stated }, "expect": { "paid": paid } }));
        }
        if draw(10) == 0 {
            let random = draw(65_536);
            let dropped = target.drops(at(now_ms), random);
            steps.push(json!({ "at_ms": now_ms, "drop": { "random": random }, "expect": { "dropped": dropped } }));
        }
    }
    json!({ "seed": seed, "steps": steps })
}

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn step_value(step: Step) -> Value {
    match step {
        Step::Send => json!({ "step": "send" }),
        Step::Wait(wait) => json!({ "step": "wait", "ns": wait.get() }),
        Step::WaitForAnswer => json!({ "step": "wait_for_answer" }),
        Step::Held(wait) => json!({ "step": "held", "ns": wait.get() }),
    }
}

fn fields_value(read: &ResponseFields) -> Value {
    let policies: Vec<Value> = read
        .policies
        .iter()
        .map(|policy| {
            json!({
                "name": policy.name.as_str(),
                "unit": match policy.unit {
                    PolicyUnit::Requests => "requests",
                    PolicyUnit::Concurrency => "concurrency",
                    PolicyUnit::Other => "other",
                },
                "quota": policy.quota,
                "window_ns": policy.window.map(Nanos::get),
                "remaining": policy.remaining,
                "reset_ns": policy.reset.map(Nanos::get),
            })
        })
        .collect();
    json!({ "wait_ns": read.wait.map(Nanos::get), "forbids_retry": read.forbids_retry, "policies": policies })
}

fn header_map(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?))
    };
    fields.iter().filter_map(field).collect()
}

fn header_object(fields: &[(&str, &str)]) -> Value {
    fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
