//! Other settings while requests are served: what changes at once, and what goes on.

use std::fs;
use std::time::Duration;

use http::Request;
use tidegate_gateway::{
    ApiKeySettings, DescriptorSettings, Ejection, EntrySettings, GatewaySettings, HealthCheck,
    PathMatch, RouteSettings, UpstreamSettings, ValueFrom,
};

use crate::bench::{Bench, Told, by_user, to, until, within};
use crate::upstream::{Nobody, Upstream};

const ONE_AN_HOUR: &str =
    "- key: user\n  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1}]";

/// The SHA-256 of `letmein`.
const LETMEIN: &str = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";

/// The same settings with one more route before the others, which takes this path.
fn with_route(mut settings: GatewaySettings, path: &str, hosts: &[String]) -> GatewaySettings {
    let mut route = RouteSettings::new("other", "other");
    route.path = PathMatch::Prefix(path.to_owned());
    settings.routes.insert(0, route);
    settings.upstreams.insert(0, UpstreamSettings::new("other", hosts.to_vec()));
    settings
}

/// A request that is answered, and whose connection can be used again.
async fn served(bench: &Bench) {
    assert_eq!(bench.get("/").await.status, 200);
    until("an idle connection", || bench.gateway.read().in_flight == 0).await;
}

#[tokio::test]
async fn a_request_ends_on_what_it_began_with_while_later_ones_go_elsewhere() {
    let (old, new) = (Upstream::start().await, Upstream::start().await);
    let bench = Bench::open(to(&[old.url()]));
    let mut client = bench.one().await;
    let held = tokio::spawn(client.begin(Request::get("/slow"), ""));
    until("the request", || old.seen().len() == 1).await;
    bench.gateway.reload(to(&[new.url()])).unwrap();
    assert_eq!(bench.get("/").await.status, 200);
    assert_eq!((old.seen().len(), new.seen().len()), (1, 1));
    until("the end of the later one", || bench.gateway.read().in_flight == 1).await;
    old.let_go();
    let told = Told::of(within("the answer", held).await.unwrap().unwrap()).await.unwrap();
    assert_eq!((told.status.as_u16(), told.body.as_str()), (200, "hello"));
    until("both ends", || bench.count("served") == 2).await;
}

#[tokio::test]
async fn no_request_fails_while_settings_change_again_and_again() {
    const REQUESTS: usize = 30;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let bench = Bench::open(to(&[first.url()]));
    let (mut one, mut two) = (bench.one().await, bench.two().await);
    let asking = tokio::spawn(async move {
        for _ in 0..REQUESTS {
            assert_eq!(one.send(Request::post("/echo"), "x").await.body, "x");
            assert_eq!(two.send(Request::post("/echo"), "y").await.body, "y");
        }
    });
    let mut changes = 0;
    while !asking.is_finished() {
        let hosts = if changes % 2 == 0 { &second } else { &first };
        bench.gateway.reload(to(&[hosts.url()])).unwrap();
        changes += 1;
        tokio::task::yield_now().await;
    }
    asking.await.unwrap();
    assert!(changes > 0);
    until("the end of the last", || bench.gateway.read().in_flight == 0).await;
    assert_eq!(bench.count("served"), 2 * REQUESTS as u64);
    // Of servers that no document has any more nothing is left open.
    bench.gateway.reload(to(&[Nobody::new().url()])).unwrap();
    until("closed connections", || first.open() + second.open() == 0).await;
}

#[tokio::test]
async fn a_connection_that_is_open_sees_new_routes_and_new_trust() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let bench = Bench::open(to(&[upstream.url()]));
    let mut client = bench.one().await;
    let asked = || Request::get("/new").header("x-forwarded-for", "203.0.113.7");
    client.send(asked(), "").await;
    assert_eq!(upstream.last().header("x-forwarded-for"), "127.0.0.1");
    let mut settings = with_route(to(&[upstream.url()]), "/new", &[other.url()]);
    settings.trusted_hops = vec!["127.0.0.0/8".parse().unwrap()];
    bench.gateway.reload(settings).unwrap();
    client.send(asked(), "").await;
    assert_eq!(other.last().header("x-forwarded-for"), "203.0.113.7, 127.0.0.1");
}

#[tokio::test]
async fn servers_that_stay_keep_their_connections_and_their_health() {
    let (nobody, upstream, more) =
        (Nobody::new(), Upstream::start().await, Upstream::start().await);
    let settings = |hosts: &[String]| {
        let mut settings = to(hosts);
        let long = Duration::from_secs(3_600);
        settings.upstreams[0].ejection = Ejection { failures: 1, base: long, max: long };
        settings
    };
    let bench = Bench::open(settings(&[nobody.url(), upstream.url()]));
    for _ in 0..10 {
        served(&bench).await;
    }
    let hosts = |bench: &Bench| bench.gateway.read().upstreams.last().unwrap().1.clone();
    let before = hosts(&bench);
    assert!(before[0].1.ejected);
    assert_eq!(before[1].1.opened, 1);

    // Another group beside it, then another server in it.
    let beside = settings(&[nobody.url(), upstream.url()]);
    bench.gateway.reload(with_route(beside, "/other", &[more.url()])).unwrap();
    assert_eq!(hosts(&bench), before);
    bench.gateway.reload(settings(&[more.url(), nobody.url(), upstream.url()])).unwrap();
    let after = hosts(&bench);
    assert_eq!((&after[1..], after[0].1.opened), (&before[..], 0));
    for _ in 0..20 {
        served(&bench).await;
    }
    assert_eq!(upstream.connections(), 1);
    assert_eq!(hosts(&bench)[1].1.failures, 1);
}

#[tokio::test]
async fn servers_that_are_reached_otherwise_begin_anew_and_old_connections_close() {
    let upstream = Upstream::start().await;
    let bench = Bench::open(to(&[upstream.url()]));
    served(&bench).await;
    assert_eq!(upstream.open(), 1);
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].pool.idle_max = 7;
    bench.gateway.reload(settings).unwrap();
    assert_eq!(bench.gateway.read().upstreams[0].1[0].1.opened, 0);
    until("the end of the old connection", || upstream.open() == 0).await;
    assert_eq!(bench.get("/").await.status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn health_checks_follow_the_servers_that_there_are() {
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
    let bench = Bench::open(to(&[first.url()]));
    let gateway = bench.gateway.clone();
    let tending = tokio::spawn(async move { gateway.tend().await });
    first.fall_sick(true);
    second.fall_sick(true);
    let healthy = |bench: &Bench| -> Vec<bool> {
        bench.gateway.read().upstreams[0].1.iter().map(|(_, host)| host.healthy).collect()
    };
    bench.gateway.reload(checked(&[first.url()])).unwrap();
    until("the bad check", || healthy(&bench) == [false]).await;
    bench.gateway.reload(checked(&[first.url(), second.url()])).unwrap();
    assert!(!healthy(&bench)[0], "what is known stays");
    until("the bad checks", || healthy(&bench) == [false, false]).await;
    // Nobody asks any more, so nobody can be found to be ill.
    bench.gateway.reload(to(&[first.url(), second.url()])).unwrap();
    assert_eq!(healthy(&bench), [true, true]);
    let before = first.connections();
    bench.gateway.reload(checked(&[first.url()])).unwrap();
    until("another check", || first.connections() > before).await;
    tending.abort();
}

#[tokio::test]
async fn counts_of_limits_and_routes_go_on() {
    let upstream = Upstream::start().await;
    let bench = Bench::limited(by_user(to(&[upstream.url()])), ONE_AN_HOUR);
    assert_eq!(bench.get_as("ada").await.status, 200);
    let settings = with_route(by_user(to(&[upstream.url()])), "/other", &[upstream.url()]);
    bench.gateway.reload(settings).unwrap();
    assert_eq!(bench.get_as("ada").await.status, 429);
    until("the end", || bench.gateway.read().in_flight == 0).await;
    let routes = bench.gateway.read().routes;
    assert_eq!(routes[0], ("other".to_owned(), Vec::new()));
    assert_eq!(routes[1].1, [("served", 1), ("rate_limited", 1)]);
}

#[tokio::test]
async fn a_request_that_waits_in_line_keeps_its_place() {
    let upstream = Upstream::start().await;
    let rules =
        "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1, when_over: delay}]";
    let patient = || {
        let mut settings = by_user(to(&[upstream.url()]));
        settings.delay.wait_max = Duration::from_secs(3_600);
        settings
    };
    let bench = Bench::timed(patient(), rules);
    let mut first = bench.one().await;
    let held = tokio::spawn(first.begin(Request::get("/slow").header("x-user", "ada"), ""));
    until("the first", || upstream.seen().len() == 1).await;
    let mut second = bench.one().await;
    let waiting = tokio::spawn(second.begin(Request::get("/").header("x-user", "ada"), ""));
    until("the line", || bench.gateway.read().waiting == 1).await;
    bench.gateway.reload(patient()).unwrap();
    assert_eq!(bench.gateway.read().waiting, 1);
    upstream.let_go();
    for answer in [held, waiting] {
        let answer = within("an answer", answer).await.unwrap().unwrap();
        let told = Told::of(answer).await.unwrap();
        assert_eq!(told.status, 200);
    }
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing_and_all_problems_are_told() {
    let upstream = Upstream::start().await;
    let bench = Bench::open(to(&[upstream.url()]));
    let mut wrong = to(&["ftp://x".into()]);
    wrong.routes[0].path = PathMatch::Prefix("api".into());
    let error = bench.gateway.reload(wrong).unwrap_err();
    let places: Vec<&str> = error.problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(places, ["upstreams[0].hosts[0]", "routes[0].path"]);
    assert_eq!(bench.get("/").await.status, 200);
}

#[tokio::test]
async fn keys_of_callers_are_read_again_and_a_wrong_file_changes_nothing() {
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
    let bench = Bench::limited(settings(&path), ONE_AN_HOUR);
    assert_eq!(settings(&path).files(), std::slice::from_ref(&path));
    let asked = || bench.send(Request::get("/").header("x-api-key", "letmein"));
    assert_eq!(asked().await.status, 200);
    assert_eq!(asked().await.status, 429);

    fs::write(&path, "letmein acme gold\n").unwrap();
    for _ in 0..2 {
        let error = bench.gateway.reload(settings(&path)).unwrap_err();
        assert_eq!(error.problems[0].place, "api_keys");
        assert!(error.problems[0].problem.contains("line 1"), "{error}");
    }
    assert_eq!(asked().await.status, 429, "the plan is still `free`");
    fs::write(&path, format!("{LETMEIN} acme gold\n")).unwrap();
    bench.gateway.reload(settings(&path)).unwrap();
    assert_eq!(asked().await.status, 200);
}

#[tokio::test]
async fn bounds_of_waiting_and_keeping_are_those_of_the_present_settings() {
    let upstream = Upstream::start().await;
    let rules =
        "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1, when_over: queue}]";
    let settings = |requests_max: usize| {
        let mut settings = by_user(to(&[upstream.url()]));
        settings.queue.requests_max = requests_max;
        settings
    };
    let bench = Bench::timed(settings(0), rules);
    let mut first = bench.one().await;
    let held = tokio::spawn(first.begin(Request::get("/slow").header("x-user", "ada"), ""));
    until("the first", || upstream.seen().len() == 1).await;
    assert_eq!(bench.get_as("ada").await.status, 429);
    bench.gateway.reload(settings(1)).unwrap();
    assert_eq!(bench.get_as("ada").await.status, 202);
    upstream.let_go();
    assert_eq!(within("the answer", held).await.unwrap().unwrap().status(), 200);
}
