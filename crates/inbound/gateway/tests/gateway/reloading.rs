//! Reloading settings while requests are served.

use std::fs;
use std::time::Duration;

use http::Request;
use tidegate_gateway::{
    ApiKeySettings, DescriptorSettings, Ejection, EntrySettings, GatewaySettings, HealthCheck,
    PathMatch, RouteSettings, UpstreamSettings, ValueFrom,
};

use crate::harness::{Harness, Reply, by_user, to, until, within};
use crate::upstream::{ClosedPort, Upstream};

const ONE_AN_HOUR: &str =
    "- key: user\n  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1}]";

/// The SHA-256 of `letmein`.
const LETMEIN: &str = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";

/// The settings with one more route in front, for this path.
fn with_route(mut settings: GatewaySettings, path: &str, hosts: &[String]) -> GatewaySettings {
    let mut route = RouteSettings::new("other", "other");
    route.path = PathMatch::Prefix(path.to_owned());
    settings.routes.insert(0, route);
    settings.upstreams.insert(0, UpstreamSettings::new("other", hosts.to_vec()));
    settings
}

/// Sends a request, and waits until its upstream connection is back in the pool.
async fn served(harness: &Harness) {
    assert_eq!(harness.get("/").await.status, 200);
    until("an idle connection", || harness.gateway.read().in_flight == 0).await;
}

#[tokio::test]
async fn a_request_keeps_the_document_that_it_began_with() {
    let (old, new) = (Upstream::start().await, Upstream::start().await);
    let harness = Harness::open(to(&[old.url()]));
    let mut client = harness.one().await;
    let held = tokio::spawn(client.begin(Request::get("/slow"), ""));
    until("the request", || old.seen().len() == 1).await;
    harness.gateway.reload(to(&[new.url()])).unwrap();
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!((old.seen().len(), new.seen().len()), (1, 1));
    until("the end of the later one", || harness.gateway.read().in_flight == 1).await;
    old.let_go();
    let reply = Reply::of(within("the answer", held).await.unwrap().unwrap()).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "hello"));
    until("both ends", || harness.count("served") == 2).await;
}

#[tokio::test]
async fn no_request_fails_while_settings_change_again_and_again() {
    const REQUESTS: usize = 30;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let harness = Harness::open(to(&[first.url()]));
    let (mut one, mut two) = (harness.one().await, harness.two().await);
    let asking = tokio::spawn(async move {
        for _ in 0..REQUESTS {
            assert_eq!(one.send(Request::post("/echo"), "x").await.body, "x");
            assert_eq!(two.send(Request::post("/echo"), "y").await.body, "y");
        }
    });
    let mut changes = 0;
    while !asking.is_finished() {
        let hosts = if changes % 2 == 0 { &second } else { &first };
        harness.gateway.reload(to(&[hosts.url()])).unwrap();
        changes += 1;
        tokio::task::yield_now().await;
    }
    asking.await.unwrap();
    assert!(changes > 0);
    until("the end of the last", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.count("served"), 2 * REQUESTS as u64);
    // Connections to removed hosts are closed.
    harness.gateway.reload(to(&[ClosedPort::new().url()])).unwrap();
    until("closed connections", || first.open() + second.open() == 0).await;
}

#[tokio::test]
async fn an_open_connection_uses_new_routes_and_trusted_hops() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let harness = Harness::open(to(&[upstream.url()]));
    let mut client = harness.one().await;
    let asked = || Request::get("/new").header("x-forwarded-for", "203.0.113.7");
    client.send(asked(), "").await;
    assert_eq!(upstream.last().header("x-forwarded-for"), "127.0.0.1");
    let mut settings = with_route(to(&[upstream.url()]), "/new", &[other.url()]);
    settings.trusted_hops = vec!["127.0.0.0/8".parse().unwrap()];
    harness.gateway.reload(settings).unwrap();
    client.send(asked(), "").await;
    assert_eq!(other.last().header("x-forwarded-for"), "203.0.113.7, 127.0.0.1");
}

#[tokio::test]
async fn unchanged_hosts_keep_their_connections_and_their_health() {
    let (closed, upstream, more) =
        (ClosedPort::new(), Upstream::start().await, Upstream::start().await);
    let settings = |hosts: &[String]| {
        let mut settings = to(hosts);
        let long = Duration::from_secs(3_600);
        settings.upstreams[0].ejection = Ejection { failures: 1, base: long, max: long };
        settings
    };
    let harness = Harness::open(settings(&[closed.url(), upstream.url()]));
    for _ in 0..10 {
        served(&harness).await;
    }
    let hosts = |harness: &Harness| harness.gateway.read().upstreams.last().unwrap().1.clone();
    let before = hosts(&harness);
    assert!(before[0].1.ejected);
    assert_eq!(before[1].1.opened, 1);

    // First another group is added, then another host to this one.
    let beside = settings(&[closed.url(), upstream.url()]);
    harness.gateway.reload(with_route(beside, "/other", &[more.url()])).unwrap();
    assert_eq!(hosts(&harness), before);
    harness.gateway.reload(settings(&[more.url(), closed.url(), upstream.url()])).unwrap();
    let after = hosts(&harness);
    assert_eq!((&after[1..], after[0].1.opened), (&before[..], 0));
    for _ in 0..20 {
        served(&harness).await;
    }
    assert_eq!(upstream.connections(), 1);
    assert_eq!(hosts(&harness)[1].1.failures, 1);
}

#[tokio::test]
async fn hosts_with_changed_settings_start_fresh_and_old_connections_close() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    served(&harness).await;
    assert_eq!(upstream.open(), 1);
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].pool.idle_max = 7;
    harness.gateway.reload(settings).unwrap();
    assert_eq!(harness.gateway.read().upstreams[0].1[0].1.opened, 0);
    until("the end of the old connection", || upstream.open() == 0).await;
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn health_checks_follow_the_current_hosts() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let checked = |hosts: &[String]| {
        let mut settings = to(hosts);
        settings.upstreams[0].health = Some(HealthCheck {
            path: "/health".into(),
            interval: Duration::from_millis(10),
            unhealthy_after: 1,
            ..HealthCheck::default()
        });
        settings
    };
    let harness = Harness::open(to(&[first.url()]));
    let gateway = harness.gateway.clone();
    let maintenance = tokio::spawn(async move { gateway.maintain().await });
    first.fall_sick(true);
    second.fall_sick(true);
    let healthy = |harness: &Harness| -> Vec<bool> {
        harness.gateway.read().upstreams[0].1.iter().map(|(_, host)| host.healthy).collect()
    };
    harness.gateway.reload(checked(&[first.url()])).unwrap();
    until("the bad check", || healthy(&harness) == [false]).await;
    harness.gateway.reload(checked(&[first.url(), second.url()])).unwrap();
    assert!(!healthy(&harness)[0], "what is known stays");
    until("the bad checks", || healthy(&harness) == [false, false]).await;
    // Without health checks no host is unhealthy.
    harness.gateway.reload(to(&[first.url(), second.url()])).unwrap();
    assert_eq!(healthy(&harness), [true, true]);
    let before = first.connections();
    harness.gateway.reload(checked(&[first.url()])).unwrap();
    until("another check", || first.connections() > before).await;
    maintenance.abort();
}

#[tokio::test]
async fn counters_of_limits_and_routes_survive_a_reload() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), ONE_AN_HOUR);
    assert_eq!(harness.get_as("ada").await.status, 200);
    let settings = with_route(by_user(to(&[upstream.url()])), "/other", &[upstream.url()]);
    harness.gateway.reload(settings).unwrap();
    assert_eq!(harness.get_as("ada").await.status, 429);
    until("the end", || harness.gateway.read().in_flight == 0).await;
    let routes = harness.gateway.read().routes;
    assert_eq!(routes[0], ("other".to_owned(), Vec::new()));
    assert_eq!(routes[1].1, [("served", 1), ("rate_limited", 1)]);
}

#[tokio::test]
async fn a_request_in_a_line_keeps_its_position() {
    let upstream = Upstream::start().await;
    let rules =
        "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1, when_over: delay}]";
    let patient = || {
        let mut settings = by_user(to(&[upstream.url()]));
        settings.delay.wait_max = Duration::from_secs(3_600);
        settings
    };
    let harness = Harness::timed(patient(), rules);
    let mut first = harness.one().await;
    let held = tokio::spawn(first.begin(Request::get("/slow").header("x-user", "ada"), ""));
    until("the first", || upstream.seen().len() == 1).await;
    let mut second = harness.one().await;
    let waiting = tokio::spawn(second.begin(Request::get("/").header("x-user", "ada"), ""));
    until("the line", || harness.gateway.read().waiting == 1).await;
    harness.gateway.reload(patient()).unwrap();
    assert_eq!(harness.gateway.read().waiting, 1);
    upstream.let_go();
    for answer in [held, waiting] {
        let answer = within("an answer", answer).await.unwrap().unwrap();
        let reply = Reply::of(answer).await.unwrap();
        assert_eq!(reply.status, 200);
    }
}

#[tokio::test]
async fn invalid_settings_change_nothing_and_all_problems_are_reported() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let mut wrong = to(&["ftp://x".into()]);
    wrong.routes[0].path = PathMatch::Prefix("api".into());
    let error = harness.gateway.reload(wrong).unwrap_err();
    let places: Vec<&str> = error.problems.iter().map(|problem| problem.setting.as_str()).collect();
    assert_eq!(places, ["upstreams[0].hosts[0]", "routes[0].path"]);
    assert_eq!(harness.get("/").await.status, 200);
}

#[tokio::test]
async fn changed_api_keys_are_reloaded_and_an_invalid_file_changes_nothing() {
    let upstream = Upstream::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let settings = |path: &std::path::Path| {
        let mut settings = to(&[upstream.url()]);
        let plan = EntrySettings::new("user", ValueFrom::Plan);
        settings.routes[0].descriptors = vec![DescriptorSettings::new([plan])];
        settings.api_keys =
            Some(ApiKeySettings { file: Some(path.to_owned()), ..ApiKeySettings::default() });
        settings
    };
    fs::write(&path, format!("{LETMEIN} acme free\n")).unwrap();
    let harness = Harness::limited(settings(&path), ONE_AN_HOUR);
    assert_eq!(settings(&path).files(), std::slice::from_ref(&path));
    let asked = || harness.send(Request::get("/").header("x-api-key", "letmein"));
    assert_eq!(asked().await.status, 200);
    assert_eq!(asked().await.status, 429);

    fs::write(&path, "letmein acme gold\n").unwrap();
    for _ in 0..2 {
        let error = harness.gateway.reload(settings(&path)).unwrap_err();
        assert_eq!(error.problems[0].setting, "api_keys");
        assert!(error.problems[0].problem.contains("line 1"), "{error}");
    }
    assert_eq!(asked().await.status, 429, "the plan is still `free`");
    fs::write(&path, format!("{LETMEIN} acme gold\n")).unwrap();
    harness.gateway.reload(settings(&path)).unwrap();
    assert_eq!(asked().await.status, 200);
}

#[tokio::test]
async fn bounds_of_waiting_and_queueing_are_those_of_the_current_settings() {
    let upstream = Upstream::start().await;
    let rules =
        "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1, when_over: queue}]";
    let settings = |requests_max: usize| {
        let mut settings = by_user(to(&[upstream.url()]));
        settings.queue.requests_max = requests_max;
        settings
    };
    let harness = Harness::timed(settings(0), rules);
    let mut first = harness.one().await;
    let held = tokio::spawn(first.begin(Request::get("/slow").header("x-user", "ada"), ""));
    until("the first", || upstream.seen().len() == 1).await;
    assert_eq!(harness.get_as("ada").await.status, 429);
    harness.gateway.reload(settings(1)).unwrap();
    assert_eq!(harness.get_as("ada").await.status, 202);
    upstream.let_go();
    assert_eq!(within("the answer", held).await.unwrap().unwrap().status(), 200);
}
