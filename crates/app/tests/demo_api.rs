//! `tidegate demo-api`, and the example that `make run` starts in front of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Ran, printed, tidegate};

/// Ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_demo_api_says_where_it_is_and_how_long_it_took() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo-api", "--listen", "127.0.0.1:0", "--capacity", "2", "--work", "1"]);
    let mut child = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.ends_with(": 2 at once, 1 ms each.\n"), "{said}");
    let address = said.split("http://").nth(1).unwrap().split(": ").next().unwrap().to_owned();
    assert_eq!(get(&address, "/health"), (200, "well\n".to_owned()));
    let (status, body) = get(&address, "/a?ms=3");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["path"], &body["worked_ms"]), (200, &"/a".into(), &3.into()));
    assert_eq!(get(&address, "/a?ms=x").0, 400);
}

#[test]
fn the_example_of_the_gateway_is_right() {
    let mut command = tidegate(&["config", "check", "--config", "examples/gateway/tidegate.yaml"]);
    let ran = Ran::from(command.current_dir(root()).output().unwrap());
    let right = "the configuration is right\n\
                 rules: 12 in 2 domains; gateway: 5 routes, 2 limited, 1 exempt\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, right), "{ran:?}");
    let schema: Value = serde_json::from_str(&printed(&["config", "schema", "gateway"])).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let text = std::fs::read_to_string(root().join("examples/gateway/gateway.yaml")).unwrap();
    let document: Value = serde_saphyr::from_str(&text).unwrap();
    assert!(validator.is_valid(&document));
    assert!(!validator.is_valid(&serde_json::json!({"routes": []})));
}

#[test]
fn config_check_says_what_is_wrong_with_the_gateways_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, "routes: [{name: a, upstreams: b}]\nupstreams: []\nheads: {}\n").unwrap();
    let words = ["config", "check", "--gateway", "gateway.yaml", "--format", "json"];
    let mut command = tidegate(&words);
    let ran = Ran::from(command.current_dir(folder.path()).output().unwrap());
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &said["ok"]), (1, &Value::Bool(false)), "{ran:?}");
    let problem = &said["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&3.into(), &1.into()), "{said}");
    assert_eq!(problem["hint"], "did you mean `head`?", "{said}");

    std::fs::write(&path, "routes: [{name: a, upstreams: b}]\nupstreams: []\n").unwrap();
    let ran = Ran::from(tidegate(&words).current_dir(folder.path()).output().unwrap());
    assert!(ran.stdout.contains("there are no upstreams `b`"), "{ran:?}");
}
