//! Answers of the gateway, the HTTP API and the rate limit service: status, header fields and what
//! bodies are like.

use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use super::Golden;
use super::shape;
use crate::client::{Client, Spoken, Told};
use crate::process::{Answer, Folder, Serving, Start, exchange};
use crate::upstream::Upstream;

const RULES: &str = "
domain: gateway
descriptors:
  - key: user
    limits:
      - {name: calls, requests_per_unit: 2, unit: year}
  - key: job
    rate_limit: {name: jobs, algorithm: concurrency, requests_per_unit: 1, time_to_live: 1h}
  - key: turn
    rate_limit: {name: turns, algorithm: leaky_bucket, requests_per_unit: 10, unit: hour}
  - key: payout
    rate_limit: {name: payouts, requests_per_unit: 1, unit: year, on_store_error: deny}
";

/// Each set of header fields on its own, then the default.
const FORMATS: &[&str] = &[
    "rate_limit_fields: [x_retry_after]",
    "rate_limit_fields: [x_reset]",
    "rate_limit_fields: [x_reset_epoch]",
    "rate_limit_fields: [legacy]",
    "rate_limit_fields: [draft_11]",
    "rate_limit_fields_on: refusal",
    "",
];

pub(crate) fn capture() -> Vec<Golden> {
    vec![gateway(), shed(), http_api(), undecided(), rls()]
}

/// A request that its upstream holds by now, and its answer to come.
pub(crate) fn hold(serving: &mut Serving, upstream: &Upstream) -> JoinHandle<Answer> {
    let address = serving.address("gateway");
    let asked = thread::spawn(move || {
        let stream = TcpStream::connect(address).expect("it accepts");
        exchange(stream, "GET", "/hold", &[], "")
    });
    while !upstream.next().starts_with("GET /hold") {}
    asked
}

/// One call of the rate limit service, with one descriptor of one entry.
pub(crate) fn should_rate_limit(client: &mut Client, domain: &str, key: &str, value: &str) -> Told {
    let entry = field(1, key) + &field(2, value);
    let message = field(1, domain) + &field(2, &field(1, &entry));
    let length = char::from(u8::try_from(message.len()).expect("short"));
    assert!(length.is_ascii(), "a length of one byte");
    let frame = format!("\0\0\0\0{length}{message}");
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    client.post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", &headers, &frame)
}

/// A field of a protobuf message that has a length.
fn field(number: u8, text: &str) -> String {
    let length = u8::try_from(text.len()).expect("short");
    assert!(length < 128, "a length of one byte");
    format!("{}{}{text}", char::from(number << 3 | 2), char::from(length))
}

fn start(folder: &Folder) -> Start<'_> {
    Start::new(folder).args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
}

fn show(lines: &mut Vec<String>, about: &str, answer: &Answer) {
    lines.push(format!("## {about}"));
    lines.extend(shape::answer(answer));
    lines.push(String::new());
}

/// In each format: admitted, refused, and a call over gRPC that is refused.
fn gateway() -> Golden {
    let upstream = Upstream::start();
    let mut lines = Vec::new();
    for format in FORMATS {
        let folder = Folder::with_rules(RULES);
        folder.write("gateway.yaml", &upstream.document(format));
        let mut serving = start(&folder).serving();
        let user = [("x-user", "ada")];
        let mut ask = |about: &str, headers: &[(&str, &str)]| {
            let answer = serving.ask("gateway", "GET", "/x", headers, "");
            show(&mut lines, &format!("{format} {about}"), &answer);
        };
        ask("first", &user);
        ask("second", &user);
        ask("refused", &user);
        ask("refused, asking for HTML", &[("x-user", "ada"), ("accept", "text/html")]);
        ask("refused, a gRPC call", &[("x-user", "ada"), ("content-type", "application/grpc")]);
    }
    Golden::lines("answers/gateway.txt", &lines)
}

/// When the node is full, and when there is no route, no upstream, or nothing that can be read.
fn shed() -> Golden {
    let upstream = Upstream::start();
    let folder = Folder::with_rules(RULES);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = nobody.local_addr().expect("an address");
    drop(nobody);
    let document = format!(
        "routes:
- {{name: gone, path: /gone, upstreams: gone}}
- {{name: some, path: /hold, upstreams: api}}
- {{name: one, path: /x, methods: [GET], upstreams: api}}
upstreams:
- {{name: api, hosts: ['http://{}']}}
- {{name: gone, hosts: ['http://{gone}']}}
",
        upstream.address
    );
    folder.write("gateway.yaml", &document);
    let mut serving = start(&folder).args(["--set", "overload.capacity=1"]).serving();
    let mut lines = Vec::new();
    for (about, path) in [("no route", "/nowhere"), ("no upstream", "/gone")] {
        show(&mut lines, about, &serving.get("gateway", path));
    }
    let holding = hold(&mut serving, &upstream);
    show(&mut lines, "shed", &serving.get("gateway", "/x"));
    let grpc = [("content-type", "application/grpc")];
    show(&mut lines, "shed, a gRPC call", &serving.ask("gateway", "GET", "/x", &grpc, ""));
    upstream.let_go();
    assert_eq!(holding.join().expect("answered").status, 200);
    Golden::lines("answers/gateway-faults.txt", &lines)
}

fn request(key: &str) -> String {
    let entries = format!(r#"[{{"key":"{key}","value":"ada"}}]"#);
    format!(r#"{{"domain":"gateway","descriptors":[{{"entries":{entries}}}]}}"#)
}

/// Every route of the HTTP API, with good and bad input.
fn http_api() -> Golden {
    let folder = Folder::with_rules(RULES);
    let mut serving =
        Start::new(&folder).args(["--set", "limiter.response_headers.enabled=true"]).serving();
    let mut lines = Vec::new();
    let mut ask = |method: &str, path: &str, body: &str| {
        let answer = serving.ask("http", method, path, &[], body);
        let about = format!("{method} {path} {body}");
        show(&mut lines, about.trim_end(), &answer);
        answer
    };
    let user = request("user");
    ask("POST", "/v1/check", &user);
    ask("POST", "/v1/peek", &user);
    ask("POST", "/v1/check", &user);
    ask("POST", "/v1/check", &user);
    ask("POST", "/v1/check?status=200", &user);
    ask("POST", "/v1/peek", &user);
    ask("POST", "/json", &user);
    ask("POST", "/v1/refund", &user);
    ask("POST", "/json", &user);
    ask("POST", "/v1/reset", &user);
    ask("POST", "/v1/explain", &user);
    ask("POST", "/v1/check", &format!(r#"{{"requests":[{user},{user}]}}"#));
    ask("POST", "/v1/check", &request("turn"));
    ask("POST", "/v1/check", &request("turn"));
    ask("POST", "/v1/check", &request("nothing"));
    ask("POST", "/v1/check", &user.replace("gateway", "elsewhere"));
    let held = ask("POST", "/v1/check", &request("job"));
    ask("POST", "/v1/check", &request("job"));
    let permit = held.json()["permit"].as_str().expect("a permit").to_owned();
    assert_eq!(permit.len(), 32, "{permit}");
    ask("POST", "/v1/release", "{}");
    ask("POST", "/v1/check", "nonsense");
    ask("POST", "/v1/check", r#"{"domain":5}"#);
    ask("GET", "/v1/check", "");
    for path in ["/v1/rules", "/healthcheck", "/livez", "/readyz", "/nowhere"] {
        ask("GET", path, "");
    }
    for released in ["first", "again"] {
        let body = format!(r#"{{"permit":"{permit}"}}"#);
        let answer = serving.ask("http", "POST", "/v1/release", &[], &body);
        show(&mut lines, &format!("POST /v1/release, {released}"), &answer);
        lines.push(format!("released: {}", answer.json()["released"]));
    }
    Golden::lines("answers/http-api.txt", &lines)
}

/// Without the shared store: local decisions, and requests that are not decided.
fn undecided() -> Golden {
    let folder = Folder::with_rules(RULES);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let mut serving = Start::new(&folder).args(["--redis", &url]).serving();
    let mut lines = Vec::new();
    for key in ["user", "payout"] {
        let answer = serving.ask("http", "POST", "/v1/check", &[], &request(key));
        show(&mut lines, &format!("{key}, without Redis"), &answer);
    }
    Golden::lines("answers/undecided.txt", &lines)
}

/// The rate limit service over gRPC: header fields and trailers.
fn rls() -> Golden {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    let mut client = Client::plain(&serving.address("grpc"), Spoken::Two);
    let mut lines = Vec::new();
    let mut tell = |about: &str, told: &Told| {
        lines.push(format!("## {about}"));
        lines.push(format!("status: {}", told.status));
        let pairs = |headers: &http::HeaderMap| {
            let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                (name.as_str().to_owned(), value.to_str().expect("text").to_owned())
            };
            headers.iter().map(pair).collect::<Vec<_>>()
        };
        let headers = pairs(&told.headers);
        lines.extend(shape::fields(headers.iter().map(|(name, value)| (&**name, &**value))));
        if let Some(trailers) = told.trailers.as_ref().map(pairs) {
            lines.push("trailers:".to_owned());
            lines.extend(shape::fields(trailers.iter().map(|(name, value)| (&**name, &**value))));
        }
        lines.push(String::new());
    };
    for about in ["admitted", "admitted", "over the limit"] {
        tell(about, &should_rate_limit(&mut client, "gateway", "user", "ada"));
    }
    tell("without a domain", &should_rate_limit(&mut client, "", "user", "ada"));
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    tell(
        "not a message",
        &client.post(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            &headers,
            "nonsense",
        ),
    );
    tell(
        "not a method",
        &client.post(
            "/envoy.service.ratelimit.v3.RateLimitService/Nothing",
            &headers,
            "\0\0\0\0\0",
        ),
    );
    tell("health", &client.post("/grpc.health.v1.Health/Check", &headers, "\0\0\0\0\0"));
    Golden::lines("answers/rls.txt", &lines)
}
