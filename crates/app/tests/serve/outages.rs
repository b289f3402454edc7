//! An outage of Redis is never reported as over the limit: each door, policy and kind of failure.

use crate::client::{Client, HttpAnswer, Spoken};
use crate::process::{Folder, Serving, Start};
use crate::upstream::Upstream;
use tidegate_test_servers::server::Server;

const POLICIES: [&str; 3] = ["local", "allow", "deny"];

/// Enough requests that the circuit breaker opens on the way.
const ROUNDS: usize = 4;

const RULES: &str = "
domain: gateway
descriptors:
  - key: local
    rate_limit: {unit: hour, requests_per_unit: 99, on_store_error: local}
  - key: allow
    rate_limit: {unit: hour, requests_per_unit: 99, on_store_error: allow}
  - key: deny
    rate_limit: {unit: hour, requests_per_unit: 99, on_store_error: deny}
  - key: plain
    rate_limit: {unit: hour, requests_per_unit: 99}
  - key: dark
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 99}
";

/// How Redis fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It is killed while the service runs.
    Killed,
    /// No server listens from the start.
    Absent,
    /// It accepts calls and never answers.
    Silent,
    /// It does not accept the password.
    WrongPassword,
}

impl Failure {
    const ALL: [Failure; 4] =
        [Failure::Killed, Failure::Absent, Failure::Silent, Failure::WrongPassword];

    /// A server that fails, and a service that uses it.
    fn serving(self, start: impl FnOnce(&Server) -> Serving) -> (Server, Serving) {
        let mut server = Server::redis();
        match self {
            Failure::Absent => server.kill(),
            Failure::WrongPassword => {
                server.ask(&["CONFIG", "SET", "requirepass", "right"]);
            }
            Failure::Killed | Failure::Silent => {}
        }
        let mut serving = start(&server);
        match self {
            Failure::Killed | Failure::Silent => {
                serving.until(|serving| {
                    let answer = check(serving, "allow", "before").json();
                    (answer["degraded"] != true).then_some(())
                });
                if self == Failure::Killed { server.kill() } else { server.freeze() }
            }
            Failure::Absent | Failure::WrongPassword => {}
        }
        (server, serving)
    }

    /// Texts of envoyproxy/ratelimit for it, of which one is the error.
    fn upstream_texts(self, server: &Server) -> Vec<String> {
        let refused = format!("dial tcp 127.0.0.1:{}: connect: connection refused", server.port());
        let closed = "response returned from Conn: EOF".to_owned();
        let wrong = "response returned from Conn: WRONGPASS invalid username-password pair or user \
                     is disabled.";
        match self {
            Failure::Killed => {
                let reset = "response returned from Conn: read: connection reset by peer";
                let broken = "response returned from Conn: read: broken pipe";
                vec![closed, refused, reset.to_owned(), broken.to_owned()]
            }
            Failure::Absent => vec![refused],
            Failure::Silent => vec!["response returned from Conn: i/o timeout".to_owned()],
            Failure::WrongPassword => vec![wrong.to_owned()],
        }
    }
}

fn body(key: &str, value: &str) -> String {
    let entries = format!(r#"[{{"key":"{key}","value":"{value}"}}]"#);
    format!(r#"{{"domain":"gateway","descriptors":[{{"entries":{entries}}}]}}"#)
}

fn check(serving: &mut Serving, key: &str, value: &str) -> crate::process::Answer {
    serving.ask("http", "POST", "/v1/check", &[], &body(key, value))
}

/// One call of the rate limit service.
fn should_rate_limit(serving: &mut Serving, key: &str, value: &str) -> HttpAnswer {
    let entry = field(1, key) + &field(2, value);
    let message = field(1, "gateway") + &field(2, &field(1, &entry));
    let length = char::from(u8::try_from(message.len()).expect("short"));
    let frame = format!("\0\0\0\0{length}{message}");
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut client = Client::plain(&serving.address("grpc"), Spoken::Two);
    client.post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", &headers, &frame)
}

/// A field of a protobuf message that has a length.
fn field(number: u8, text: &str) -> String {
    let length = u8::try_from(text.len()).expect("short");
    format!("{}{}{text}", char::from(number << 3 | 2), char::from(length))
}

/// The gRPC status of a call, and its overall code if it has one: 1 is OK, 2 is OVER_LIMIT.
fn grpc_outcome(answer: &HttpAnswer) -> (String, Option<u8>) {
    let trailer = answer.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    let status =
        trailer.map_or(answer.header("grpc-status"), |value| value.to_str().expect("text"));
    // After the prefix of the frame: the tag of the overall code, and the code.
    let code = match answer.body.as_bytes() {
        [_, _, _, _, _, 0x08, code, ..] => Some(*code),
        _ => None,
    };
    (status.to_owned(), code)
}

fn gateway_document(upstream: &Upstream) -> String {
    let route = |policy: &str| {
        format!(
            "- {{name: {policy}, path: /{policy}, upstreams: api, descriptors: [{{entries: [{{key: \
             {policy}, from: header, name: X-User}}]}}]}}\n"
        )
    };
    let routes: String = POLICIES.map(route).concat();
    format!(
        "routes:\n{routes}upstreams:\n- {{name: api, hosts: ['http://{}']}}\n",
        upstream.address
    )
}

#[test]
fn an_outage_is_unavailable_or_admitted_at_every_door_and_never_over_the_limit() {
    let upstream = Upstream::start();
    for failure in Failure::ALL {
        let folder = Folder::with_rules(RULES);
        folder.write("gateway.yaml", &gateway_document(&upstream));
        let (_server, mut serving) = failure.serving(|server| {
            Start::new(&folder)
                .args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
                .args(["--redis", &server.url()])
                .args(["--set", "store.redis.deadline=100ms"])
                .args(["--set", "store.redis.connect_timeout=300ms"])
                .serving()
        });
        for round in 0..ROUNDS {
            let value = format!("v{round}");
            for policy in POLICIES {
                let about = format!("{failure:?}, {policy}, round {round}");
                let is_denied = policy == "deny";
                let grpc = grpc_outcome(&should_rate_limit(&mut serving, policy, &value));
                let expected = if is_denied { ("14", None) } else { ("0", Some(1)) };
                assert_eq!((grpc.0.as_str(), grpc.1), expected, "gRPC: {about}");

                let status = if is_denied { 503 } else { 200 };
                let json = serving.ask("http", "POST", "/json", &[], &body(policy, &value));
                assert_eq!(json.status, status, "/json: {about}: {}", json.body);
                assert!(!json.body.contains("OVER_LIMIT"), "/json: {about}: {}", json.body);

                let checked = check(&mut serving, policy, &value);
                assert_eq!(checked.status, status, "/v1/check: {about}: {}", checked.body);
                assert_eq!(checked.json()["degraded"], true, "/v1/check: {about}");

                let headers = [("x-user", value.as_str())];
                let path = format!("/{policy}");
                let passed = serving.ask("gateway", "GET", &path, &headers, "");
                assert_eq!(passed.status, status, "gateway: {about}: {}", passed.body);
                if is_denied {
                    assert!(passed.body.contains("could not be checked"), "{}", passed.body);
                }
            }
        }
    }
}

fn compat<'f>(folder: &'f Folder, server: &Server) -> Start<'f> {
    Start::new(folder)
        .args(["--compat", "--log-level", "info"])
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", format!("127.0.0.1:{}", server.port()))
        .env("REDIS_TIMEOUT", "300ms")
}

fn stat(serving: &mut Serving, name: &str) -> u64 {
    let stats = serving.get("debug", "/stats").body;
    let prefix = format!("ratelimit.service.call.should_rate_limit.{name}: ");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    line.and_then(|count| count.parse().ok()).expect("the statistic is there")
}

#[test]
fn under_compat_an_outage_is_upstreams_error_and_counted_as_such() {
    for failure in Failure::ALL {
        let folder = Folder::with_rules(RULES);
        let (server, mut serving) = failure.serving(|server| {
            let start = compat(&folder, server);
            let wrong = failure == Failure::WrongPassword;
            if wrong { start.env("REDIS_AUTH", "wrong").serving() } else { start.serving() }
        });
        let texts = failure.upstream_texts(&server);
        let before = stat(&mut serving, "redis_error");
        let mut calls = 0;
        for round in 0..ROUNDS {
            // Upstream fails in shadow mode too.
            for key in ["plain", "dark"] {
                let told = should_rate_limit(&mut serving, key, &format!("v{round}"));
                calls += 1;
                let message = told.header("grpc-message").to_owned();
                assert_eq!(grpc_outcome(&told), ("2".to_owned(), None), "{failure:?}: {message}");
                assert!(texts.contains(&message), "{failure:?}: {message}");
            }
        }
        assert_eq!(stat(&mut serving, "redis_error") - before, calls, "{failure:?}");
        let json = serving.ask("http", "POST", "/json", &[], &body("plain", "v"));
        assert_eq!((json.status, json.body.as_str()), (400, "Bad Request\n"), "as upstream's");
    }
}

#[test]
fn under_compat_one_setting_chooses_our_policies() {
    for (policy, expected) in
        [("local", ("0", Some(1))), ("allow", ("0", Some(1))), ("deny", ("2", None))]
    {
        let folder = Folder::with_rules(RULES);
        let (_server, mut serving) = Failure::Absent.serving(|server| {
            let setting = format!("store.redis.on_error={policy}");
            compat(&folder, server).args(["--set", &setting]).serving()
        });
        let outcome = grpc_outcome(&should_rate_limit(&mut serving, "plain", "v"));
        assert_eq!((outcome.0.as_str(), outcome.1), expected, "{policy}");
        // A policy in the rules wins.
        let outcome = grpc_outcome(&should_rate_limit(&mut serving, "allow", "v"));
        assert_eq!((outcome.0.as_str(), outcome.1), ("0", Some(1)), "{policy}");
    }
}

#[test]
fn calls_without_a_domain_are_counted_as_errors_of_the_service() {
    let server = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut serving = compat(&folder, &server).serving();
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut client = Client::plain(&serving.address("grpc"), Spoken::Two);
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let told = client.post(path, &headers, "\0\0\0\0\0");
    assert_eq!(told.header("grpc-message"), "rate limit domain must not be empty");
    assert_eq!(stat(&mut serving, "service_error"), 1);
    assert_eq!(stat(&mut serving, "redis_error"), 0);
}

#[test]
fn an_unreachable_redis_is_logged_at_the_start_and_shown_as_not_ready() {
    let mut server = Server::redis();
    server.kill();
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder)
        .args(["--redis", &server.url(), "--set", "health.needs_store=true"])
        .serving();
    let line = serving.wait_for(|line| {
        line["message"].as_str().is_some_and(|text| text.contains("cannot be reached"))
    });
    assert_eq!(line["level"], "WARN", "{line}");
    assert!(line.to_string().contains(&format!("127.0.0.1:{}", server.port())), "{line}");
    let ready = serving.get("http", "/readyz");
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert!(ready.body.contains(&format!("127.0.0.1:{}", server.port())), "{}", ready.body);
    server.restart();
    serving.until(|serving| (serving.get("http", "/readyz").status == 200).then_some(()));
}
