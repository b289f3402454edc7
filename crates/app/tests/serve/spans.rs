//! Spans and request ids, received by a real collector over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::client::{Client, Spoken};
use crate::process::{Folder, PATIENCE, RULES, Start, write_below};
use crate::upstream::Upstream;

/// Accepts requests with spans, and answers them.
struct Collector(TcpListener);

impl Collector {
    fn new() -> Self {
        Collector(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("an address"))
    }

    /// The first request: its head, and its body.
    fn receive(&self) -> (String, Vec<u8>) {
        let (stream, _) = self.0.accept().expect("spans come");
        read_request(stream)
    }
}

fn read_request(stream: TcpStream) -> (String, Vec<u8>) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    write!(stream.get_mut(), "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("answered");
    (head, body)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn under_compat_spans_go_to_the_path_of_traces_below_the_endpoint() {
    let folder = Folder::with_rules(RULES);
    write_below(&folder.path("data/config/shop.yaml"), RULES);
    let collector = Collector::new();
    let mut serving = Start::bare(&folder)
        .args(["--compat"])
        .env("RUNTIME_ROOT", folder.path("data"))
        .env("LOG_LEVEL", "info")
        .env("USE_STATSD", "false")
        .env("TRACING_ENABLED", "true")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/base/", collector.url()))
        .serving();
    serving.get("http", "/healthcheck");
    let mut client = Client::plain(&serving.address("grpc"), Spoken::Two);
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    client.post("/grpc.health.v1.Health/Check", &grpc, "\0\0\0\0\0");
    // Domain `shop`, one descriptor with `user` and `ada`, one with `category` and `critical`: all lengths are below 128,
    // so that it is text.
    let call = "\0\0\0\0\u{2d}\n\u{4}shop\u{12}\r\n\u{b}\n\u{4}user\u{12}\u{3}ada\
                \u{12}\u{16}\n\u{14}\n\u{8}category\u{12}\u{8}critical";
    for _ in 0..3 {
        let answer = client.post(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            &grpc,
            call,
        );
        assert_eq!(answer.status, 200);
    }
    serving.signal("TERM");
    let (head, body) = collector.receive();
    assert!(head.starts_with("POST /base/v1/traces HTTP/1.1"), "{head}");
    for text in [
        "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        "rpc.system",
        "rpc.service",
        "rpc.method",
        "rpc.grpc.status_code",
        "tidegate.limit",
        "calls",
        "tidegate.refused_by",
        "tidegate.category",
        "critical",
        "tidegate.caller",
        "tidegate.code",
        "rate_limited",
    ] {
        assert!(contains(&body, text), "{text}");
    }
    for health in ["healthcheck", "grpc.health"] {
        assert!(!contains(&body, health), "a health check was traced");
    }
}

#[test]
fn a_gateway_span_has_its_route_and_is_the_parent_of_the_upstreams() {
    let folder = Folder::with_rules(RULES);
    let collector = Collector::new();
    let upstream = Upstream::start();
    folder.write("gateway.yaml", &upstream.document("domain: shop\n"));
    let mut serving = Start::new(&folder)
        .args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
        .args(["--set", "traces.enabled=true", "--set", "traces.protocol=http"])
        .args(["--set", &format!("traces.endpoint={}", collector.url())])
        .serving();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let headers = [("traceparent", parent.as_str()), ("x-user", "ada")];
    assert_eq!(serving.ask("gateway", "GET", "/x", &headers, "").status, 200);
    let seen = upstream.next();
    let field = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name}: {seen}")).to_owned()
    };
    let forwarded = field("traceparent");
    assert!(forwarded.starts_with(&format!("00-{trace}-")), "{forwarded}");
    assert_ne!(forwarded, parent, "our span is the parent");
    assert_eq!(field("x-request-id").len(), 36);
    for _ in 0..2 {
        serving.ask("gateway", "GET", "/x", &headers, "");
    }
    serving.signal("TERM");
    let (head, body) = collector.receive();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    for text in [
        "http.route",
        "tidegate.outcome",
        "tidegate.code",
        "served",
        "rate_limited",
        "tidegate.limit",
        "tidegate.refused_by",
        "tidegate.category",
        "tidegate.request_id",
    ] {
        assert!(contains(&body, text), "{text}");
    }
}
