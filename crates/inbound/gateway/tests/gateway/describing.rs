//! Descriptors and costs of requests.

use std::fs;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use tempfile::TempDir;
use tidegate_engine::{Descriptor, Entry, Verb};
use tidegate_gateway::{
    ApiKeySettings, CostSettings, DescriptorSettings, EntrySettings, GatewaySettings,
    InvalidCredential, JwtKey, JwtSettings, KeySetUrl, PathMatch, RouteSettings, ValueFrom,
    WhenMissing,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::harness::{Harness, START, by_user, to, until};
use crate::upstream::Upstream;

/// A rule that allows `count` requests per hour for each value of `what`.
fn each(what: &str, count: u32) -> String {
    format!(
        "- key: {what}\n  limits: [{{algorithm: token_bucket, unit: hour, \
         requests_per_unit: {count}}}]"
    )
}

fn described(mut settings: GatewaySettings, value: ValueFrom) -> GatewaySettings {
    settings.routes[0].descriptors =
        vec![DescriptorSettings::new([EntrySettings::new("what", value)])];
    settings
}

/// The statuses of these requests, with one of each value allowed.
async fn statuses(value: ValueFrom, requests: Vec<http::request::Builder>) -> Vec<u16> {
    let upstream = Upstream::start().await;
    let mut settings = described(to(&[upstream.url()]), value);
    settings.routes[0].templates = vec!["/users/{id}/orders".into(), "/files/{*path}".into()];
    let harness = Harness::limited(settings, &each("what", 1));
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(harness.send(request).await.status.as_u16());
    }
    statuses
}

#[tokio::test]
async fn the_template_of_a_routes_path_has_parameters_too() {
    let upstream = Upstream::start().await;
    for (value, others) in
        [(ValueFrom::PathParameter("id".into()), 200), (ValueFrom::PathTemplate, 429)]
    {
        let mut settings = described(to(&[upstream.url()]), value);
        settings.routes[0].path = PathMatch::Template("/users/{id}/orders".into());
        let harness = Harness::limited(settings, &each("what", 1));
        let mut statuses = Vec::new();
        for user in [1, 1, 2] {
            statuses.push(harness.get(&format!("/users/{user}/orders")).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 429, others]);
    }
}

#[tokio::test]
async fn values_are_extracted_from_all_parts_of_the_head() {
    let get = |path: &str| Request::get(path);
    let with = |name: &str, value: &str| Request::get("/").header(name, value);
    for (value, requests) in [
        (ValueFrom::Header("x-a".parse().unwrap()), vec![with("x-a", "1"), with("x-a", "1")]),
        (ValueFrom::Cookie("s".into()), vec![with("cookie", "s=1"), with("cookie", "t=2; s=1")]),
        (ValueFrom::Query("q".into()), vec![get("/?q=1"), get("/other?a&q=%31")]),
        (ValueFrom::PathTemplate, vec![get("/users/1/orders"), get("/users/2/orders")]),
        (
            ValueFrom::PathParameter("id".into()),
            vec![get("/users/1/orders"), get("/users/1/orders")],
        ),
        (ValueFrom::Path, vec![get("/%61?x"), get("//a")]),
        (ValueFrom::Method, vec![get("/a"), get("/b")]),
        (ValueFrom::Host, vec![with("host", "A.test"), with("host", "a.test:80")]),
        (ValueFrom::Route, vec![get("/a"), get("/b")]),
        (ValueFrom::Fixed("all".into()), vec![get("/a"), get("/b")]),
    ] {
        assert_eq!(statuses(value.clone(), requests).await, [200, 429], "{value:?}");
    }
}

#[tokio::test]
async fn different_values_have_separate_limits() {
    let with = |name: &str, value: &str| Request::get("/").header(name, value);
    for (value, requests) in [
        (ValueFrom::Header("x-a".parse().unwrap()), vec![with("x-a", "1"), with("x-a", "2")]),
        (
            ValueFrom::PathParameter("id".into()),
            vec![Request::get("/users/1/orders"), Request::get("/users/2/orders")],
        ),
        (ValueFrom::Method, vec![Request::get("/a"), Request::post("/a")]),
        // Without the value the request is not limited by this descriptor.
        (ValueFrom::Query("q".into()), vec![Request::get("/"), Request::get("/")]),
    ] {
        assert_eq!(statuses(value.clone(), requests).await, [200, 200], "{value:?}");
    }
}

#[tokio::test]
async fn a_missing_value_can_be_replaced_or_left_out() {
    for (missing, expected) in [
        (None, [200, 200]),
        (Some(WhenMissing::SkipDescriptor), [200, 200]),
        (Some(WhenMissing::Use("nobody".into())), [200, 429]),
        (Some(WhenMissing::SkipEntry), [200, 429]),
        (Some(WhenMissing::Reject), [400, 400]),
    ] {
        let upstream = Upstream::start().await;
        let mut settings = by_user(to(&[upstream.url()]));
        let entries = &mut settings.routes[0].descriptors[0].entries;
        entries[0].when_missing = missing;
        entries.insert(0, EntrySettings::new("all", ValueFrom::Fixed("".into())));
        let limit = "limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1}]";
        let rules = format!("- key: all\n  {limit}\n  descriptors:\n  - key: user\n    {limit}\n");
        let harness = Harness::limited(settings, &rules);
        let reply = [harness.get("/").await, harness.get("/").await];
        assert_eq!(reply.map(|reply| reply.status.as_u16()), expected);
    }
}

const SECRET: &[u8] = b"a secret of both sides";

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn token(header: &str, claims: &str, secret: &[u8]) -> String {
    let message = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{message}.{}", base64(hmac::sign(&key, message.as_bytes()).as_ref()))
}

fn bearing(token: &str) -> http::request::Builder {
    Request::get("/").header("authorization", format!("Bearer {token}"))
}

#[tokio::test]
async fn verified_claims_limit_their_subject_and_invalid_tokens_are_ignored() {
    let upstream = Upstream::start().await;
    let mut settings = described(to(&[upstream.url()]), ValueFrom::Claim("sub".into()));
    settings.jwt = Some(JwtSettings {
        issuer: Some("us".into()),
        audience: Some("api".into()),
        ..JwtSettings::new(JwtKey::Secret(SECRET.to_vec()))
    });
    let harness = Harness::limited(settings, &each("what", 1));
    let now = START.as_nanos() / 1_000_000_000;
    let claims = |exp: u64| format!(r#"{{"sub":"7","iss":"us","aud":["x","api"],"exp":{exp}}}"#);
    let header = r#"{"alg":"HS256"}"#;
    let good = token(header, &claims(now + 60), SECRET);
    assert_eq!(harness.send(bearing(&good)).await.status, 200);
    assert_eq!(harness.send(bearing(&good)).await.status, 429);
    for bad in [
        token(header, &claims(now + 60), b"another secret"),
        token(header, &claims(now - 61), SECRET),
        token(header, &claims(now + 60).replace("us", "them"), SECRET),
        token(header, &claims(now + 60).replace("\"us\"", "[\"us\"]"), SECRET),
        token(header, &claims(now + 60).replace("api", "web"), SECRET),
        token(r#"{"alg":"none"}"#, &claims(now + 60), SECRET),
        token(r#"{"alg":"HS256","crit":["b64"]}"#, &claims(now + 60), SECRET),
        "nonsense".to_owned(),
        "a.b.c".to_owned(),
    ] {
        assert_eq!(harness.send(bearing(&bad)).await.status, 200, "{bad}");
    }
}

#[tokio::test]
async fn requests_without_a_valid_credential_can_be_rejected() {
    let upstream = Upstream::start().await;
    let mut settings = described(to(&[upstream.url()]), ValueFrom::Claim("sub".into()));
    settings.jwt = Some(JwtSettings::new(JwtKey::Secret(SECRET.to_vec())));
    let mut health = RouteSettings::new("health", "api");
    health.path = PathMatch::Prefix("/health".into());
    health.exempt = true;
    settings.routes.insert(0, health);
    let good = token(r#"{"alg":"HS256"}"#, r#"{"sub":"7"}"#, SECRET);
    let bad = token(r#"{"alg":"HS256"}"#, r#"{"sub":"7"}"#, b"another secret");
    for (when_missing, when_invalid, expected) in [
        (WhenMissing::SkipDescriptor, InvalidCredential::Ignore, [200, 200, 200]),
        (WhenMissing::SkipDescriptor, InvalidCredential::Reject, [200, 401, 200]),
        (WhenMissing::Reject, InvalidCredential::Ignore, [200, 401, 401]),
    ] {
        settings.routes[1].descriptors[0].entries[0].when_missing = Some(when_missing);
        settings.jwt.as_mut().unwrap().when_invalid = when_invalid;
        let harness = Harness::limited(settings.clone(), &each("what", 1));
        let mut statuses = Vec::new();
        for request in [bearing(&good), bearing(&bad), Request::get("/")] {
            let reply = harness.send(request).await;
            statuses.push(reply.status.as_u16());
            if reply.status == 401 {
                assert_eq!(reply.header("www-authenticate"), "Bearer");
            }
        }
        assert_eq!(statuses, expected);
        let exempt = Request::get("/health").header("authorization", format!("Bearer {bad}"));
        assert_eq!(harness.send(exempt).await.status, 200);
    }
}

#[tokio::test]
async fn unknown_api_keys_can_be_rejected() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    let keys =
        ApiKeySettings { when_unknown: InvalidCredential::Reject, ..ApiKeySettings::default() };
    settings.api_keys = Some(keys);
    let harness = Harness::open(settings);
    assert_eq!(harness.get("/").await.status, 200);
    let reply = harness.send(Request::get("/").header("x-api-key", "guess")).await;
    assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, "ApiKey"));
    assert_eq!(reply.json()["code"], "unknown_api_key");
    let call =
        Request::post("/").header("x-api-key", "guess").header("content-type", "application/grpc");
    assert_eq!(harness.two().await.send(call, "").await.header("grpc-status"), "16");
    let twice = Request::get("/").header("x-api-key", "a").header("x-api-key", "b");
    assert_eq!(harness.send(twice).await.status, 400);
}

#[tokio::test]
async fn each_of_several_values_is_charged() {
    let upstream = Upstream::start().await;
    for value in [
        ValueFrom::Header("x-user".parse().unwrap()),
        ValueFrom::Cookie("user".into()),
        ValueFrom::Query("user".into()),
    ] {
        let harness = Harness::limited(described(to(&[upstream.url()]), value), &each("what", 2));
        let request = |users: &[&str]| {
            let query: Vec<_> = users.iter().map(|user| format!("user={user}")).collect();
            let request = Request::get(format!("/?{}", query.join("&")));
            let request = request.header("cookie", query.join("; "));
            users.iter().fold(request, |request, user| request.header("x-user", *user))
        };
        let mut statuses = Vec::new();
        for users in [
            // User 7 twice, whatever stands beside it.
            &["7", "1"][..],
            &["2", "7"],
            &["3", "7"],
            &["7", "4"],
            // Equal ones are one.
            &["5", "5"],
            &["5"],
            &["5"],
            &["a", "b", "c", "d", "e"],
        ] {
            statuses.push(harness.send(request(users)).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429, 429, 200, 200, 429, 400]);
    }
}

#[tokio::test]
async fn a_changed_key_set_is_reloaded() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("keys.json");
    let set = |id: &str, secret: &[u8]| {
        format!(r#"{{"keys":[{{"kty":"oct","kid":"{id}","k":"{}"}}]}}"#, base64(secret))
    };
    fs::write(&path, set("old", SECRET)).unwrap();
    let upstream = Upstream::start().await;
    let mut settings = described(to(&[upstream.url()]), ValueFrom::Claim("a.b".into()));
    settings.jwt = Some(JwtSettings::new(JwtKey::KeySet(path.clone())));
    let harness = Harness::limited(settings.clone(), &each("what", 1));
    let old = token(r#"{"alg":"HS256","kid":"old"}"#, r#"{"a":{"b":7}}"#, SECRET);
    let new = token(r#"{"alg":"HS256","kid":"new"}"#, r#"{"a":{"b":8}}"#, b"next secret");
    let mut statuses = Vec::new();
    for bearer in [&old, &old, &new, &new] {
        statuses.push(harness.send(bearing(bearer)).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200]);

    fs::write(&path, "nonsense").unwrap();
    assert!(harness.gateway.refresh().unwrap_err().contains("no set of keys"));
    assert_eq!(harness.send(bearing(&old)).await.status, 429);

    fs::write(&path, set("new", b"next secret")).unwrap();
    assert_eq!(harness.gateway.refresh(), Ok(true));
    let mut statuses = Vec::new();
    for bearer in [&old, &new, &new] {
        statuses.push(harness.send(bearing(bearer)).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);

    // A reload of the settings reloads the keys too, and invalidates cached tokens.
    fs::write(&path, set("older", SECRET)).unwrap();
    harness.gateway.reload(settings).unwrap();
    let older = token(r#"{"alg":"HS256","kid":"older"}"#, r#"{"a":{"b":7}}"#, SECRET);
    assert_eq!(harness.send(bearing(&new)).await.status, 200);
    assert_eq!(harness.send(bearing(&older)).await.status, 429);
}

/// A server of a key set, which a test replaces.
async fn key_server() -> (String, watch::Sender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys.json", listener.local_addr().unwrap());
    let (answer, current) = watch::channel(String::new());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request).await;
            let body = current.borrow().clone();
            let status = if body.is_empty() { "500 Broken" } else { "200 OK" };
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, answer)
}

#[tokio::test]
async fn a_key_set_is_fetched_from_its_url_and_the_last_good_one_stays() {
    let upstream = Upstream::start().await;
    let (url, answer) = key_server().await;
    let mut settings = described(to(&[upstream.url()]), ValueFrom::Claim("sub".into()));
    let set = KeySetUrl { cache: Duration::from_millis(10), ..KeySetUrl::new(url) };
    settings.jwt = Some(JwtSettings {
        when_invalid: InvalidCredential::Reject,
        ..JwtSettings::new(JwtKey::KeySetUrl(set))
    });
    let harness = Harness::limited(settings, &each("what", 2));
    let gateway = harness.gateway.clone();
    tokio::spawn(async move { gateway.maintain().await });
    let fetches = || harness.gateway.read().key_set_fetches;
    let keys = |id: &str, secret: &[u8]| {
        format!(r#"{{"keys":[{{"kty":"oct","kid":"{id}","k":"{}"}}]}}"#, base64(secret))
    };
    let old = token(r#"{"alg":"HS256","kid":"old"}"#, r#"{"sub":"7"}"#, SECRET);
    let new = token(r#"{"alg":"HS256","kid":"new"}"#, r#"{"sub":"8"}"#, b"next secret");

    // Without any keys no token is judged.
    until("a failure", || fetches().1 > 0).await;
    assert_eq!(harness.send(bearing(&old)).await.status, 200);
    answer.send_replace(keys("old", SECRET));
    until("a fetch", || fetches().0 > 0).await;
    let mut statuses = Vec::new();
    for bearer in [&old, &old, &old, &new] {
        statuses.push(harness.send(bearing(bearer)).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 401]);

    for broken in [String::new(), "nonsense".to_owned()] {
        let failed = fetches().1;
        answer.send_replace(broken);
        until("a failure", || fetches().1 > failed).await;
        assert_eq!(harness.send(bearing(&old)).await.status, 429);
    }

    answer.send_replace(keys("new", b"next secret"));
    let fetched = fetches().0;
    until("a fetch", || fetches().0 > fetched).await;
    assert_eq!(harness.send(bearing(&old)).await.status, 401);
    assert_eq!(harness.send(bearing(&new)).await.status, 200);
}

#[tokio::test]
async fn the_plan_is_that_of_the_callers_key() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    let entries = [
        EntrySettings::new("plan", ValueFrom::Plan),
        EntrySettings::new("key", ValueFrom::ApiKeyName),
    ];
    settings.routes[0].descriptors = vec![DescriptorSettings::new(entries)];
    let hash = |key: &str| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    settings.api_keys = Some(ApiKeySettings {
        keys: vec![
            (hash("k1"), "one".into(), "free".into()),
            (hash("k2"), "two".into(), "gold".into()),
        ],
        ..ApiKeySettings::default()
    });
    let limit = |count| {
        format!(
            "descriptors:\n  - key: key\n    limits: [{{algorithm: token_bucket, unit: hour, \
             requests_per_unit: {count}}}]"
        )
    };
    let rules = format!(
        "- key: plan\n  value: free\n  {}\n- key: plan\n  value: gold\n  {}",
        limit(1),
        limit(3)
    );
    let harness = Harness::limited(settings, &rules);
    let mut statuses = Vec::new();
    for key in ["k1", "k1", "k2", "k2", "k2", "k2", "k3", "k3"] {
        let request = Request::get("/").header("x-api-key", key);
        statuses.push(harness.send(request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200, 200, 429, 200, 200]);
}

/// The units that user 7 has left of ten.
fn left(harness: &Harness) -> u64 {
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = tidegate_engine::Request::new("gateway", &descriptors).with_cost(1);
    let verdict = harness.engine.apply_now(Verb::Peek, &request);
    verdict.rulings()[0].decision.remaining
}

/// A gateway with this cost, and ten units per user.
async fn costing(cost: CostSettings) -> (Harness, Upstream) {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.routes[0].cost = cost;
    (Harness::limited(settings, &each("user", 10)), upstream)
}

#[tokio::test]
async fn a_cost_is_fixed_or_stated_by_the_caller() {
    let (harness, _upstream) = costing(CostSettings::Fixed(4)).await;
    harness.get_as("7").await;
    let before = left(&harness);
    harness.get_as("7").await;
    assert_eq!(before - left(&harness), 4);
    assert_eq!(harness.get_as("7").await.status, 429);

    let name: http::HeaderName = "x-weight".parse().unwrap();
    let (harness, _upstream) = costing(CostSettings::Header { name, min: 1, max: 3 }).await;
    let start = left(&harness);
    for (weight, costs) in [("2", 2), ("99", 3), ("many", 1), ("0", 1)] {
        let before = left(&harness);
        let request = Request::get("/").header("x-user", "7").header("x-weight", weight);
        harness.send(request).await;
        assert_eq!(before - left(&harness), costs, "{weight}");
    }
    assert_eq!(start - left(&harness), 7);
}

#[tokio::test]
async fn a_request_that_states_no_cost_does_not_pass_a_spent_limit() {
    let name: http::HeaderName = "x-weight".parse().unwrap();
    let weighing = |weights: &[&str]| {
        let request = Request::get("/").header("x-user", "7");
        weights.iter().fold(request, |request, weight| request.header("x-weight", *weight))
    };
    for (min, passes) in [(1, false), (0, true)] {
        let cost = CostSettings::Header { name: name.clone(), min, max: 10 };
        let (harness, upstream) = costing(cost).await;
        assert_eq!(harness.send(weighing(&["10"])).await.status, 200);
        let status = if passes { 200 } else { 429 };
        for weight in ["0", "00", "+0"] {
            assert_eq!(harness.send(weighing(&[weight])).await.status, status, "{weight}");
        }
        let seen = upstream.seen().len();
        for weights in [&["1", "0"][..], &["0", "5"], &["1, 2"], &["1", "1"]] {
            let reply = harness.send(weighing(weights)).await;
            assert_eq!(
                (reply.status.as_u16(), reply.json()["code"].as_str()),
                (400, Some("ambiguous_value"))
            );
        }
        assert_eq!(upstream.seen().len(), seen);
    }
}

#[tokio::test]
async fn a_request_without_a_body_does_not_pass_a_spent_limit_of_bytes() {
    let (harness, _upstream) = costing(CostSettings::BodyBytes { min: 1 }).await;
    let post = |bytes: usize| {
        let length = "x".repeat(bytes);
        format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\nx-user: 7\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n{length}"
        )
    };
    assert!(harness.raw(&post(10)).await.starts_with("HTTP/1.1 200 "));
    assert!(harness.raw(&post(0)).await.starts_with("HTTP/1.1 429 "));
    assert_eq!(harness.get_as("7").await.status, 429);
}

#[tokio::test]
async fn a_body_costs_its_bytes_whether_its_length_is_known_or_not() {
    let (harness, upstream) = costing(CostSettings::BodyBytes { min: 1 }).await;
    let start = left(&harness);
    let post = || Request::post("/echo").header("x-user", "7");
    harness.one().await.send(post(), "1234").await;
    assert_eq!(start - left(&harness), 4);
    let chunked = |body: &str| {
        format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\nx-user: 7\r\ntransfer-encoding: chunked\r\n\
             connection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        )
    };
    assert!(harness.raw(&chunked("abc")).await.ends_with("abc"));
    until("the charge", || start - left(&harness) == 7).await;
    // A cost above the rest is refused if it is known upfront, and passes if it is not.
    assert_eq!(harness.one().await.send(post(), "12345").await.status, 429);
    assert!(harness.raw(&chunked("1234567")).await.contains(" 200 "));
    until("the charge", || left(&harness) == 0).await;
    assert!(harness.raw(&chunked("1")).await.contains(" 429 "));
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test]
async fn an_upstream_reports_the_cost_and_the_client_does_not_see_it() {
    let (harness, _upstream) =
        costing(CostSettings::Reported { name: "x-cost".parse().unwrap(), max: 100 }).await;
    let start = left(&harness);
    let reply = harness.send(Request::get("/costly").header("x-user", "7")).await;
    assert!(!reply.headers.contains_key("x-cost"));
    until("the charge", || start - left(&harness) == 5).await;
    harness.get_as("7").await;
    until("the charge", || start - left(&harness) == 6).await;
}
