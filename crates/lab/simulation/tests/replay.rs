//! Recordings played through rules: orders, flips, bounds, damaged input, exactness.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;
use std::sync::Arc;

use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Options, Request, Snapshot,
    Source, Timestamp, compile,
};
use tidegate_insight::{DecisionRecord, RecordedDescriptor, RecordedVerb, RecordedVerdict};
use tidegate_simulation::replay::{
    ClientModel, DescriptorRecipes, Format, LogReader, Recording, ReplayError, ReplayOptions,
    ReplayReport, RequestDescriber, SetResult, Threshold, replay, version_text,
};
use tidegate_simulation::sites::{DayRequest, SimulatedDay};

fn rules(limit: &str) -> Arc<Snapshot> {
    let text = format!("domain: web\ndescriptors:\n- key: address\n  limits:\n  - {limit}\n");
    Arc::new(compile(&[Source::new("rules.yaml", text)], &Options::default()).expect("valid rules"))
}

const TEN_A_MINUTE: &str = "{unit: minute, requests_per_unit: 10}";
const FIVE_A_MINUTE: &str = "{unit: minute, requests_per_unit: 5}";

/// A combined line at a second after noon.
fn line(address: &str, second: u64) -> String {
    let (hour, minute, second) = (12 + second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{address} - - [16/Jul/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"\n"
    )
}

struct Replay {
    new: Arc<Snapshot>,
    old: Option<Arc<Snapshot>>,
    clients: ClientModel,
    anonymise: bool,
}

impl Replay {
    fn of(new: &str) -> Self {
        Replay { new: rules(new), old: None, clients: ClientModel::Both, anonymise: false }
    }

    fn against(self, old: &str) -> Self {
        Replay { old: Some(rules(old)), ..self }
    }

    fn try_play(&self, texts: Vec<Vec<u8>>) -> Result<ReplayReport, ReplayError> {
        let recipe = ["address=$remote_addr".to_owned()];
        let mut recipes = DescriptorRecipes::new("web", &recipe).expect("valid recipes");
        let logs = texts.into_iter().enumerate().map(|(index, text)| {
            Recording::new(&format!("log {index}"), Cursor::new(text), None).unwrap()
        });
        let options = ReplayOptions {
            rules: Arc::clone(&self.new),
            against: self.old.clone(),
            describer: Some(&mut recipes as &mut dyn RequestDescriber),
            clients: self.clients,
            anonymise: self.anonymise,
            progress: &mut |_| {},
        };
        replay(logs.collect(), options)
    }

    fn play(&self, text: &str) -> ReplayReport {
        self.try_play(vec![text.as_bytes().to_vec()]).unwrap()
    }
}

#[test]
fn refusals_follow_the_rules_in_the_time_of_the_log() {
    // Twenty in the first minute, ten in the second.
    let log: String = (0..20).chain(60..70).map(|second| line("192.0.2.1", second)).collect();
    let report = Replay::of(TEN_A_MINUTE).play(&log);
    assert_eq!((report.new.requests, report.new.refused), (30, 10));
    assert_eq!(report.seconds, 69);
    assert_eq!(report.worst[0].caller, "address=192.0.2.1");
}

#[test]
fn flips_name_the_callers_that_are_affected() {
    let mut log = String::new();
    for second in 0..8 {
        log += &line("192.0.2.1", second);
        if second < 3 {
            log += &line("192.0.2.2", second);
        }
    }
    let report = Replay::of(FIVE_A_MINUTE).against(TEN_A_MINUTE).play(&log);
    let flips = report.flips.as_ref().unwrap();
    assert_eq!((flips.newly_refused, flips.newly_admitted, flips.callers), (3, 0, 1));
    assert_eq!(flips.most[0].caller, "address=192.0.2.1");
    assert_eq!((flips.most[0].newly_refused, flips.most[0].requests), (3, 8));
    assert_eq!(flips.most[0].first, "2026-07-16T12:00:05.000Z");
    let back = Replay::of(TEN_A_MINUTE).against(FIVE_A_MINUTE).play(&log);
    assert_eq!(back.flips.unwrap().newly_admitted, 3);
}

#[test]
fn clients_that_wait_bound_the_refusals_from_below() {
    // One a second for ten minutes, where ten a minute are allowed.
    let log: String = (0..600).map(|second| line("192.0.2.1", second)).collect();
    let report = Replay::of(TEN_A_MINUTE).play(&log);
    assert_eq!(report.new.refused, 500);
    let obedient = report.obedient.unwrap();
    assert_eq!(obedient.refused, 10);
    assert!(obedient.requests < 120, "{}", obedient.requests);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let mut log = String::new();
    for second in 0..900 {
        for caller in 0..(second % 7) {
            log += &line(&format!("192.0.2.{}", caller * second % 50), second);
        }
    }
    let play = || {
        let report = Replay::of(FIVE_A_MINUTE).against(TEN_A_MINUTE).play(&log);
        let formats = [Format::Text, Format::Markdown, Format::Json];
        (formats.map(|format| report.render(format)), report.html())
    };
    assert_eq!(play(), play());
}

#[test]
fn several_logs_are_merged_by_time() {
    let one: String = (0..60).step_by(2).map(|second| line("192.0.2.1", second)).collect();
    let two: String = (1..60).step_by(2).map(|second| line("192.0.2.1", second)).collect();
    let both: String = (0..60).map(|second| line("192.0.2.1", second)).collect();
    let replayed = Replay::of(TEN_A_MINUTE);
    let merged = replayed.try_play(vec![one.into_bytes(), two.into_bytes()]).unwrap();
    let single = replayed.play(&both);
    assert_eq!(merged.new, single.new);
    assert_eq!(merged.worst, single.worst);
}

#[test]
fn damaged_recordings_are_played_as_far_as_they_go() {
    let good = line("192.0.2.1", 0);
    let long = "x".repeat(1 << 20);
    let cases: [(&str, Vec<u8>, u64, u64); 7] = [
        ("empty", Vec::new(), 0, 0),
        ("one line", good.clone().into_bytes(), 1, 0),
        ("CRLF", good.replace('\n', "\r\n").into_bytes(), 1, 0),
        ("without an end", good.trim_end().as_bytes().to_vec(), 1, 0),
        ("junk between", format!("{good}junk\n\n{good}").into_bytes(), 2, 1),
        ("a long line", format!("{good}{long}\n{good}").into_bytes(), 2, 1),
        ("binary", [good.as_bytes(), &[0, 1, 0xff, 0xfe, b'\n'], good.as_bytes()].concat(), 2, 1),
    ];
    for (name, bytes, requests, unreadable) in cases {
        let report = Replay::of(TEN_A_MINUTE).try_play(vec![bytes]).unwrap();
        assert_eq!((report.new.requests, report.unreadable()), (requests, unreadable), "{name}");
    }
}

#[test]
fn lines_out_of_order_by_hours_are_moved_and_reported() {
    let log = line("192.0.2.1", 7_200) + &line("192.0.2.1", 7_300) + &line("192.0.2.1", 0);
    let report = Replay::of(TEN_A_MINUTE).play(&log);
    assert_eq!(report.new.requests, 3);
    assert!(report.notes.iter().any(|note| note.contains("late")), "{:?}", report.notes);
}

#[test]
fn a_log_of_an_unknown_format_is_an_error_that_shows_its_first_line() {
    let error = Replay::of(TEN_A_MINUTE).try_play(vec![b"hello\n".to_vec()]).unwrap_err();
    assert!(error.to_string().contains("`hello`"), "{error}");
}

#[test]
fn callers_can_be_hidden_and_their_values_cannot_become_markup() {
    let text = "\"$remote_user\" [$time_local] $status";
    let rules = "{unit: minute, requests_per_unit: 1}";
    let log = "\"<script>alert(1)</script>\" [16/Jul/2026:12:00:00 +0000] 200\n".repeat(3);
    for anonymise in [false, true] {
        let mut recipes =
            DescriptorRecipes::new("web", &["address=$remote_user".to_owned()]).unwrap();
        let reader = LogReader::of(text).unwrap();
        let log = Recording::new("log", Cursor::new(log.clone()), Some(reader)).unwrap();
        let options = ReplayOptions {
            rules: self::rules(rules),
            against: None,
            describer: Some(&mut recipes as &mut dyn RequestDescriber),
            clients: ClientModel::AsLogged,
            anonymise,
            progress: &mut |_| {},
        };
        let report = replay(vec![log], options).unwrap();
        assert_eq!(report.worst[0].refused, 2);
        assert!(!report.html().contains("<script"));
        assert_eq!(report.worst[0].caller.contains("alert"), !anonymise);
    }
}

#[test]
fn thresholds_fail_a_report() {
    let log: String = (0..20).map(|second| line("192.0.2.1", second)).collect();
    let report = Replay::of(TEN_A_MINUTE).play(&log);
    let failure = |text: &str| text.parse::<Threshold>().unwrap().failure(&report);
    assert_eq!(failure("refused > 1%").as_deref(), Some("refused > 1%: it is 50.000 %"));
    assert_eq!(failure("refused > 50%"), None);
    assert_eq!(failure("refused >= 10").as_deref(), Some("refused >= 10: it is 10"));
    assert_eq!(failure("unreadable > 0"), None);
}

/// The decision log of an engine that decides random requests, as a server writes it.
fn decision_log(snapshot: &Arc<Snapshot>, requests: u64) -> String {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let engine = Engine::new(store, Arc::clone(&clock));
    engine.install(Arc::clone(snapshot));
    let mut log = String::new();
    let mut random: u64 = 1;
    for sequence in 0..requests {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        clock.advance(std::time::Duration::from_nanos(random >> 38));
        let (user, cost) = (format!("user-{}", (random >> 40) % 9), 1 + (random >> 50) % 3);
        let entries = [Entry { key: "address", value: &user }];
        let descriptors = [Descriptor { cost: Some(cost), ..Descriptor::new(&entries) }];
        let verdict = engine.check_now(&Request::new("web", &descriptors));
        let record = DecisionRecord {
            time_ns: tidegate_engine::Clock::now(&clock).as_nanos(),
            sequence,
            domain: "web".into(),
            descriptors: vec![RecordedDescriptor {
                entries: vec![("address".into(), user.as_str().into())],
                cost: Some(cost),
                ..RecordedDescriptor::default()
            }],
            cost: 1,
            verb: RecordedVerb::Check,
            rules: version_text(snapshot.version()).into(),
            verdict: match verdict.is_admitted() {
                true => RecordedVerdict::Admitted,
                false => RecordedVerdict::Refused,
            },
            refused_by: Vec::new(),
            one_of: 1,
            hashed: false,
        };
        log += &serde_json::to_string(&record).unwrap();
        log.push('\n');
    }
    log
}

#[test]
fn a_decision_log_replays_with_every_verdict_the_same() {
    let limits = [
        "{algorithm: token_bucket, unit: second, requests_per_unit: 2, burst: 5}",
        "{algorithm: sliding_window, per: 3s, requests_per_unit: 4, buckets: 3}",
        "{algorithm: sliding_log, per: 3s, requests_per_unit: 4}",
        "{algorithm: leaky_bucket, unit: second, requests_per_unit: 2, queue: 3}",
        "{unit: second, requests_per_unit: 2, soft: {over: 50%, for: 3s}}",
        "{unit: second, requests_per_unit: 2, enforce_percent: 50}",
    ];
    for limit in limits {
        let replayed = Replay::of(limit);
        let report = replayed.play(&decision_log(&replayed.new, 5_000));
        let verdicts = report.verdicts.unwrap();
        assert_eq!((verdicts.compared, verdicts.different), (5_000, 0), "{limit}");
        assert!(report.new.refused > 100, "{limit}");
    }
}

#[test]
fn a_gap_in_a_decision_log_is_reported() {
    let replayed = Replay::of(TEN_A_MINUTE);
    let log = decision_log(&replayed.new, 10);
    let cut: String = log
        .lines()
        .filter(|line| !line.contains("\"sequence\":4,"))
        .map(|line| format!("{line}\n"))
        .collect();
    let report = replayed.play(&cut);
    assert!(report.notes.contains(&"1 decisions are missing in the log".to_owned()));
}

#[test]
fn sliding_windows_are_compared_with_an_exact_log() {
    let log: String = (0..1_200).map(|second| line("192.0.2.1", second)).collect();
    let report =
        Replay::of("{algorithm: sliding_window, unit: minute, requests_per_unit: 10}").play(&log);
    assert_eq!(report.windows[0].judged, 1_200);
    assert!(report.windows[0].wrongly_admitted < 0.1);
}

/// A day of 1,500 callers whose rates differ, as a decision log; only callers that `is_logged` are in it.
fn simulated_day(is_logged: impl Fn(u64) -> bool) -> String {
    let mut log = String::new();
    let mut random: u64 = 99;
    let mut events = Vec::new();
    for caller in 0..1_500_u64 {
        // A few busy minutes at a rate of its own.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(caller);
        let (begin, rate) = ((random >> 33) % 86_000, 2 + (random >> 45) % 30);
        let kept = is_logged(random >> 40);
        for request in 0..rate * 4 {
            events.push((begin * 1_000 + request * 60_000 / rate, caller, kept));
        }
    }
    events.sort_unstable();
    for (sequence, (millis, caller, kept)) in events.iter().enumerate() {
        if *kept {
            let time = 1_800_000_000_000_000_000 + millis * 1_000_000;
            log += &format!(
                "{{\"time_ns\":{time},\"sequence\":{sequence},\"domain\":\"web\",\"descriptors\":[{{\"entries\":\
                 [[\"address\",\"user-{caller}\"]]}}],\"rules\":\"\",\"verdict\":\"admitted\"}}\n"
            );
        }
    }
    log
}

#[test]
fn a_tenth_of_the_callers_predicts_the_change_of_the_refused_share_within_one_point() {
    let replayed = Replay {
        clients: ClientModel::AsLogged,
        ..Replay::of("{unit: minute, requests_per_unit: 15}").against(TEN_A_MINUTE)
    };
    let change = |log: &str| {
        let report = replayed.play(log);
        report.new.refused_share - report.old.unwrap().refused_share
    };
    let whole = change(&simulated_day(|_| true));
    assert!(whole < -0.05, "{whole}");
    let tenth = change(&simulated_day(|hash| hash % 10 == 3));
    assert!((whole - tenth).abs() <= 0.01, "{whole} and {tenth}");
}

/// Replays an access log of whole seconds beside the decisions that were made at exact times.
#[test]
fn an_access_log_of_a_simulated_day_replays_nearly_every_verdict() {
    let snapshot = rules(TEN_A_MINUTE);
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_784_203_200)));
    let engine =
        Engine::new(MemoryStore::new(MemoryConfig::default()).unwrap(), Arc::clone(&clock));
    engine.install(Arc::clone(&snapshot));
    let (mut log, mut refused, mut random) = (String::new(), 0_u64, 5_u64);
    let requests = 30_000_u64;
    let mut millis = 0;
    for _ in 0..requests {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        millis += (random >> 33) % 2_000;
        clock.set(Timestamp::from_nanos((1_784_203_200_000 + millis) * 1_000_000));
        let address = format!("192.0.2.{}", (random >> 40) % 6);
        let entries = [Entry { key: "address", value: &address }];
        let admitted =
            engine.check_now(&Request::new("web", &[Descriptor::new(&entries)])).is_admitted();
        refused += u64::from(!admitted);
        log += &line(&address, millis / 1_000);
    }
    let report = Replay::of(TEN_A_MINUTE).play(&log);
    let difference = report.new.refused.abs_diff(refused);
    assert!(refused > 1_000, "{refused}");
    assert!(difference * 1_000 <= requests * 5, "{difference} of {requests}");
}

/// What a replay of yesterday's log says about other rules, and what callers that react then really meet.
#[test]
fn the_change_of_the_refused_share_is_predicted_from_a_tenth_of_the_callers() {
    let day = SimulatedDay { seed: 3, callers: 1_500 };
    let old = rules("{unit: minute, requests_per_unit: 30}");
    // The decisions of one caller of ten.
    let mut log = String::new();
    let before = day
        .play(&old, |request| {
            if request.caller % 10 == 3 {
                log += &decision_line(request);
            }
        })
        .unwrap();
    for limit in [20, 45] {
        let terms = format!("{{unit: minute, requests_per_unit: {limit}}}");
        let after = day.play(&rules(&terms), |_| {}).unwrap();
        let happened = after.refused_share() - before.refused_share();
        assert!(happened.abs() > 0.02, "{happened}");
        let replayed =
            Replay::of(&terms).against("{unit: minute, requests_per_unit: 30}").play(&log);
        let change =
            |set: &SetResult| set.refused_share - replayed.old.as_ref().unwrap().refused_share;
        let (insisting, waiting) =
            (change(&replayed.new), change(replayed.obedient.as_ref().unwrap()));
        let predicted = change(replayed.expected.as_ref().unwrap());
        let (low, high) = (waiting.min(insisting), waiting.max(insisting));
        println!("to {limit}: {happened:.4}, predicted {predicted:.4}, {low:.4} to {high:.4}");
        assert!(happened >= low - 0.01 && happened <= high + 0.01, "{low} to {high}: {happened}");
        assert!((predicted - happened).abs() <= 0.01, "{predicted}: {happened}");
    }
}

fn decision_line(request: &DayRequest<'_>) -> String {
    let verdict = if request.admitted { "admitted" } else { "refused" };
    format!(
        "{{\"time_ns\":{},\"sequence\":0,\"domain\":\"web\",\"descriptors\":[{{\"entries\":[[\"address\",\"{}\"]]}}],\
         \"rules\":\"\",\"verdict\":\"{verdict}\"}}\n",
        request.at.as_nanos(),
        request.address
    )
}
