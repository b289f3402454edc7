//! What operators and service managers do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::process::{Folder, PATIENCE, RULES, Start, is_open};

#[test]
fn told_to_stop_it_stops_and_says_so() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    let address = serving.address("http");
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopped");
    let (status, _) = serving.ended();
    assert_eq!(status.code(), Some(0));
    assert!(!is_open(&address));
}

#[test]
fn a_request_that_has_begun_is_finished_before_it_stops() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    let mut stream = TcpStream::connect(serving.address("http")).expect("it accepts");
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    let (first, rest) = body.split_at(20);
    let head = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
    // The server has read the head once it asks for the rest.
    write!(stream, "{head}expect: 100-continue\r\n\r\n{first}").expect("sent");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).expect("asked to go on");
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopping");
    write!(stream, "{rest}").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(serving.ended().0.code(), Some(0));
}

#[test]
fn while_it_waits_to_stop_it_serves_but_is_not_ready() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).args(["--set", "shutdown.delay=1h"]).serving();
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopping");
    serving.until(|serving| (serving.get("http", "/readyz").status == 503).then_some(()));
    assert_eq!(serving.get("http", "/livez").status, 200);
    assert_eq!(serving.check("ada").status, 200);
    serving.signal("TERM");
    assert_eq!(serving.ended().0.code(), Some(0));
}

#[test]
fn the_service_manager_is_told_when_it_serves_and_when_it_stops() {
    let folder = Folder::with_rules(RULES);
    let path = folder.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let serving = Start::new(&folder).env("NOTIFY_SOCKET", &path).serving();
    let hear = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert!(hear().starts_with("READY=1\nSTATUS=grpc at 127.0.0.1:"));
    serving.signal("TERM");
    // Signs of life may come between.
    while hear() != "STOPPING=1" {}
}

#[test]
fn the_kill_switch_admits_everything_until_it_is_switched_back() {
    let folder =
        Folder::with_rules(RULES.replace("requests_per_unit: 2", "requests_per_unit: 0").as_str());
    let mut serving = Start::new(&folder).serving();
    assert_eq!(serving.check("ada").status, 429);
    let json = [("content-type", "application/json")];
    let off = serving.ask("debug", "PUT", "/switches/kill", &json, r#"{"off":true}"#);
    assert_eq!(off.status, 200, "{off:?}");
    assert_eq!(serving.check("ada").status, 200);
    serving.ask("debug", "PUT", "/switches/kill", &json, r#"{"off":false}"#);
    assert_eq!(serving.check("ada").status, 429);
}

#[test]
fn with_a_token_changes_ask_for_it() {
    let folder = Folder::with_rules(RULES);
    let mut serving =
        Start::new(&folder).env("TIDEGATE_DEBUG_TOKEN", "a-secret-of-enough-length").serving();
    let kill = |serving: &mut crate::process::Serving, headers: &[(&str, &str)]| {
        serving.ask("debug", "PUT", "/switches/kill", headers, r#"{"off":true}"#).status
    };
    assert_eq!(kill(&mut serving, &[]), 401);
    let right = [("authorization", "Bearer a-secret-of-enough-length")];
    assert_eq!(kill(&mut serving, &right), 200);
}

#[test]
fn beyond_this_machine_switches_need_a_token() {
    let folder = Folder::with_rules(RULES);
    let (status, told) = Start::new(&folder).args(["--set", "debug.listen=0.0.0.0:0"]).failing();
    assert_eq!(status.code(), Some(1));
    assert!(told.contains("token"), "{told}");
}

#[test]
fn the_log_level_is_changed_while_it_runs() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    let json = [("content-type", "application/json")];
    for wrong in [r#"{"level":"tidegate=loud"}"#, r#"{"level":"nonsense"}"#] {
        let wrong = serving.ask("debug", "PUT", "/log-level", &json, wrong);
        assert_eq!(wrong.status, 400, "{wrong:?}");
        assert!(wrong.body.contains("error, warn, info, debug or trace"), "{wrong:?}");
    }
    assert_eq!(serving.get("debug", "/log-level").json()["level"], "info");
    let right = serving.ask("debug", "PUT", "/log-level", &json, r#"{"level":"debug"}"#);
    assert_eq!(right.status, 200, "{right:?}");
    assert_eq!(serving.get("debug", "/log-level").json()["level"], "debug");
}

#[test]
fn traces_are_sent_with_what_was_decided() {
    let folder = Folder::with_rules(RULES);
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}/v1/traces", collector.local_addr().expect("an address"));
    let mut serving = Start::new(&folder)
        .args(["--set", "traces.enabled=true", "--set", "traces.protocol=http"])
        .args(["--set", &format!("traces.endpoint={endpoint}")])
        .serving();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("content-type", "application/json"), ("traceparent", parent)];
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    serving.ask("http", "POST", "/v1/check", &headers, body);
    // Spans that wait are sent when it stops.
    serving.signal("TERM");
    let (mut stream, _) = collector.accept().expect("spans come");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut sent = Vec::new();
    let mut bytes = [0; 4096];
    while !contains(&sent, b"tidegate.outcome") {
        let length = stream.read(&mut bytes).expect("spans");
        assert!(length > 0, "the spans broke off");
        sent.extend_from_slice(&bytes[..length]);
    }
    assert!(contains(&sent, &[0x0a, 0xf7, 0x65, 0x19]), "the caller's trace goes on");
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("answered");
    assert_eq!(serving.ended().0.code(), Some(0));
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Sends requests on an HTTP/1.1 connection until it is asked to close. Returns whether every request was answered.
fn busy_until_close(stream: TcpStream, served: &SyncSender<()>) -> bool {
    let mut stream = BufReader::new(stream);
    loop {
        let sent = stream.get_mut().write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
        let Some((head, length)) = sent.ok().and_then(|()| read_head(&mut stream)) else {
            return false;
        };
        let mut body = vec![0; length];
        if !head.starts_with("HTTP/1.1 200") || stream.read_exact(&mut body).is_err() {
            return false;
        }
        if head.contains("connection: close") {
            return true;
        }
        // Full, or closed, after the first requests.
        let _ = served.try_send(());
    }
}

/// The head of an answer, and the length of its body. `None` if the connection is closed.
fn read_head(stream: &mut impl BufRead) -> Option<(String, usize)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    Some((head, length))
}

#[test]
fn busy_http1_clients_that_honour_close_lose_no_request_when_it_stops() {
    for delay in ["0s", "1h"] {
        let folder = Folder::with_rules(RULES);
        let delay = format!("shutdown.delay={delay}");
        let mut serving = Start::new(&folder).args(["--set", &delay]).serving();
        let address = serving.address("http");
        let (served, answers) = sync_channel(1_000);
        let busy: Vec<_> = (0..30)
            .map(|_| {
                let stream = TcpStream::connect(&address).expect("it accepts");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                let served = served.clone();
                std::thread::spawn(move || busy_until_close(stream, &served))
            })
            .collect();
        assert_eq!(answers.iter().take(300).count(), 300, "they are busy");
        serving.signal("TERM");
        serving.wait_for(|line| line["message"] == "stopping");
        let kept = busy.into_iter().map(|busy| busy.join().expect("a client"));
        assert_eq!(kept.filter(|kept| !kept).count(), 0, "{delay}: requests are lost");
        serving.signal("TERM");
        assert_eq!(serving.ended().0.code(), Some(0));
    }
}

#[test]
fn liveness_is_answered_when_silent_connections_fill_the_door() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).args(["--set", "http.connections_max=4"]).serving();
    let address = serving.address("http");
    let half = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{";
    let silent: Vec<TcpStream> = ["", "GET / HT", half, half]
        .into_iter()
        .map(|start| {
            let mut stream = TcpStream::connect(&address).expect("it accepts");
            stream.write_all(start.as_bytes()).expect("sent");
            stream
        })
        .collect();
    serving.until(|_| {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
    drop(silent);
}
