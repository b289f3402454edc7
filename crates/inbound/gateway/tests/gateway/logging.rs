//! The access log and the counters.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use parking_lot::{Condvar, Mutex};
use tidegate_engine::ManualClock;
use tidegate_gateway::{AccessLogFormat, AccessLogSettings, CallerFormat, GatewayParts};
use tidegate_metrics::{AnswerKind, Meter};

use crate::harness::{Harness, PATIENCE, START, by_user, engine, to, until};
use crate::upstream::Upstream;

/// A writer in memory that can be made to hang.
#[derive(Clone, Default)]
struct Paper {
    text: Arc<Mutex<String>>,
    stuck: Arc<(Mutex<bool>, Condvar)>,
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (stuck, free) = &*self.stuck;
        let mut stuck = stuck.lock();
        while *stuck {
            free.wait(&mut stuck);
        }
        self.text.lock().push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn logged(log: AccessLogSettings) -> (Harness, Paper, Arc<Meter>, Upstream) {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.access_log = Some(log);
    let (paper, meter) = (Paper::default(), Arc::new(Meter::new("gateway")));
    let parts = GatewayParts {
        access_log: Some(Box::new(paper.clone())),
        meter: Some(Arc::clone(&meter)),
        ..GatewayParts::default()
    };
    let rules =
        "- key: user\n  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1}]";
    let engine = engine(rules, ManualClock::at(START));
    let harness = Harness::with(engine, settings, parts, |endpoint| endpoint);
    (harness, paper, meter, upstream)
}

#[tokio::test]
async fn each_request_is_a_line_of_json() {
    let (harness, paper, meter, _upstream) = logged(AccessLogSettings::default()).await;
    let request = || Request::get("/echo?x=1").header("x-user", "7");
    let mut client = harness.one().await;
    client.send(request().header("user-agent", "tests"), "body").await;
    client.send(request(), "").await;
    client.send(Request::get("/a/../b"), "").await;
    until("three lines", || paper.text.lock().lines().count() == 3).await;
    let text = paper.text.lock().clone();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines[0]["status"].as_u64(), lines[0]["bytes"].as_u64()), (Some(200), Some(4)));
    assert_eq!(
        (&lines[0]["client"], &lines[0]["user_agent"]),
        (&"127.0.0.1".into(), &"tests".into())
    );
    assert_eq!((&lines[0]["route"], &lines[0]["outcome"]), (&"all".into(), &"served".into()));
    assert_eq!(lines[0]["time"], "2023-11-14T00:00:00.000Z");
    assert_eq!(lines[1]["outcome"], "rate_limited");
    assert_eq!((&lines[2]["route"], &lines[2]["outcome"]), (&"".into(), &"bad_target".into()));
    let answers = meter.read().answers;
    let of = |answered: AnswerKind| answers[answered as usize];
    assert_eq!(
        (of(AnswerKind::Admitted), of(AnswerKind::Refused), of(AnswerKind::Invalid)),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn a_line_names_the_limit_the_caller_and_the_upstream() {
    for (format, caller) in [
        (CallerFormat::Plain, Some("127.0.0.1")),
        // printf %s 127.0.0.1 | sha256sum | cut -c -16
        (CallerFormat::Hashed, Some("12ca17b49af22894")),
        (CallerFormat::Off, None),
    ] {
        let log = AccessLogSettings { caller: format, ..AccessLogSettings::default() };
        let (harness, paper, _meter, upstream) = logged(log).await;
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let request = || {
            let request =
                Request::post("/echo").header("x-user", "7").header("x-request-id", "r-1");
            request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        };
        let mut client = harness.one().await;
        client.send(request(), "").await;
        client.send(request(), "").await;
        client.send(Request::get("/a/../b").header("traceparent", "nonsense"), "").await;
        until("three lines", || paper.text.lock().lines().count() == 3).await;
        let text = paper.text.lock().clone();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let members = |line: &serde_json::Value, names: &[&str]| -> Vec<Option<String>> {
            names.iter().map(|name| line[name].as_str().map(ToOwned::to_owned)).collect()
        };
        let own = |text: &str| Some(text.to_owned());
        let caller = caller.map(ToOwned::to_owned);
        for line in &lines[..2] {
            let found = members(line, &["category", "caller", "request_id", "trace_id"]);
            assert_eq!(found, [own("post"), caller.clone(), own("r-1"), own(trace)], "{line}");
        }
        let names = ["limit", "refused_by", "upstream"];
        let server = upstream.address.to_string();
        assert_eq!(members(&lines[0], &names), [None, None, Some(server)]);
        assert_eq!(members(&lines[1], &names), [own("user"), own("rate"), None]);
        let rest = ["limit", "refused_by", "upstream", "category", "caller", "trace_id"];
        assert_eq!(members(&lines[2], &rest), [const { None }; 6]);
        let id = lines[2]["request_id"].as_str().map(str::len);
        assert_eq!(id, Some(36), "a request without an id gets one");
    }
}

#[tokio::test]
async fn the_common_log_format_is_written() {
    let settings =
        AccessLogSettings { format: AccessLogFormat::Common, ..AccessLogSettings::default() };
    let (harness, paper, ..) = logged(settings).await;
    harness.get("/echo").await;
    until("a line", || !paper.text.lock().is_empty()).await;
    let line = "127.0.0.1 - - [14/Nov/2023:00:00:00 +0000] \"GET /echo HTTP/1.1\" 200 0\n";
    assert_eq!(*paper.text.lock(), line);
}

#[tokio::test]
async fn one_of_n_requests_is_logged() {
    let settings =
        AccessLogSettings { one_of: NonZeroU64::new(3).unwrap(), ..AccessLogSettings::default() };
    let (harness, paper, ..) = logged(settings).await;
    for _ in 0..7 {
        harness.get("/").await;
    }
    until("three lines", || paper.text.lock().lines().count() == 3).await;
    assert_eq!(harness.count("served"), 7);
}

#[tokio::test]
async fn a_log_that_hangs_slows_no_request_and_lost_lines_are_counted() {
    let settings = AccessLogSettings { waiting_max: 2, ..AccessLogSettings::default() };
    let (harness, paper, ..) = logged(settings).await;
    *paper.stuck.0.lock() = true;
    for _ in 0..20 {
        assert_eq!(harness.get("/").await.status, 200);
    }
    let dropped = harness.gateway.read().log_dropped;
    assert!((10..=18).contains(&dropped), "{dropped}");
    *paper.stuck.0.lock() = false;
    paper.stuck.1.notify_all();
}

#[tokio::test]
async fn a_flush_waits_for_every_line_but_not_for_a_log_that_hangs() {
    let (harness, paper, ..) = logged(AccessLogSettings::default()).await;
    *paper.stuck.0.lock() = true;
    for _ in 0..50 {
        assert_eq!(harness.get("/").await.status, 200);
    }
    until("the ends", || harness.gateway.read().in_flight == 0).await;
    assert!(!harness.gateway.flush_log(Duration::ZERO));
    *paper.stuck.0.lock() = false;
    paper.stuck.1.notify_all();
    assert!(harness.gateway.flush_log(PATIENCE));
    assert_eq!(paper.text.lock().lines().count(), 50);
}
