//! The access log: what its lines say, and that none is lost when the service stops.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::thread;

use serde_json::Value;

use crate::client::{Client, Spoken};
use crate::gateway::{as_user, folder, start};
use crate::process::{PATIENCE, is_open};
use crate::upstream::Upstream;

/// More than a pipe holds, at some 250 bytes each.
const REQUESTS: usize = 500;

#[test]
fn every_request_has_its_line_when_the_service_has_stopped() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    // A log that takes nothing until somebody reads, so that lines wait when it stops.
    let pipe = folder.path("access.log");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("a shell");
    assert!(made.success());
    let reading = OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
    let settings = ["--set", "gateway.access_log.to=access.log", "--set", "shutdown.grace=1h"];
    let mut serving = start(&folder).args(settings).serving();
    let address = serving.address("gateway");
    let mut client = Client::plain(&address, Spoken::Two);
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/x", &[]).status, 200);
    }
    drop(client);
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopping");
    serving.until(|_| (!is_open(&address)).then_some(()));
    let (send, lines) = sync_channel(REQUESTS);
    thread::spawn(move || {
        for line in BufReader::new(reading).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    for number in 1..=REQUESTS {
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("line {number} is lost"));
        let line: Value = serde_json::from_str(&line).expect("a whole line");
        assert_eq!((&line["outcome"], &line["protocol"]), (&"served".into(), &"HTTP/2.0".into()));
    }
    assert_eq!(serving.ended().0.code(), Some(0));
}

#[test]
fn a_refused_request_is_logged_with_its_limit_and_a_hashed_caller() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let settings =
        ["--set", "gateway.access_log.to=access.log", "--set", "gateway.access_log.caller=hashed"];
    let mut serving = start(&folder).args(settings).serving();
    for expected in [200, 200, 429] {
        assert_eq!(as_user(&mut serving, "ada").status, expected);
    }
    serving.signal("TERM");
    assert_eq!(serving.ended().0.code(), Some(0));
    let text = std::fs::read_to_string(folder.path("access.log")).expect("a log");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect();
    let server = upstream.address.to_string();
    assert_eq!((&lines[0]["upstream"], &lines[0]["refused_by"]), (&server.into(), &Value::Null));
    assert_eq!((&lines[2]["refused_by"], &lines[2]["category"]), (&"rate".into(), &"get".into()));
    assert!(lines[2]["limit"].is_string(), "{}", lines[2]);
    // printf %s 127.0.0.1 | sha256sum | cut -c -16
    assert_eq!(lines[2]["caller"], "12ca17b49af22894");
}
