//! What stops a start, and what does not.

use std::net::TcpListener;

use crate::process::{Folder, RULES, Start};

#[test]
fn rules_with_problems_stop_the_start_and_all_problems_are_told() {
    let folder = Folder::with_rules("domain: shop\ndescriptors: [{key: a, valeu: b}, {kye: c}]\n");
    let (status, output) = Start::new(&folder).failing();
    assert_eq!(status.code(), Some(1));
    assert!(
        output.contains("did you mean `value`?") && output.contains("did you mean `key`?"),
        "{output}"
    );
}

#[test]
fn missing_rules_stop_the_start_unless_they_are_not_required() {
    let folder = Folder::with_rules(RULES);
    let (status, output) = Start::bare(&folder).args(["--rules", "nowhere.yaml"]).failing();
    assert_eq!(status.code(), Some(2));
    assert!(output.contains("`nowhere.yaml` does not exist"), "{output}");
    let settings = ["--rules", "nowhere.yaml", "--set", "rules.required=false"];
    let mut serving =
        Start::bare(&folder).args(settings).args(["--set", "health.needs_rules=true"]).serving();
    assert_eq!(serving.get("http", "/livez").status, 200);
    let ready = serving.get("http", "/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("no rules"), "{}", ready.body);
    folder.write("nowhere.yaml", RULES);
    serving.until(|serving| (serving.get("http", "/readyz").status == 200).then_some(()));
}

#[test]
fn a_configuration_with_problems_stops_the_start_with_their_places() {
    let folder = Folder::with_rules(RULES);
    folder.write("tidegate.yaml", "grpc:\n  streams_mx: 7\nshutdown: {grace: soon}\n");
    let (status, output) = Start::new(&folder).failing();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("tidegate.yaml:2") && output.contains("tidegate.yaml:3"), "{output}");
    assert!(output.contains("did you mean `streams_max`?"), "{output}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = Folder::with_rules(RULES);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (status, output) =
        Start::new(&folder).args(["--set", &format!("http.listen={address}")]).failing();
    assert_eq!(status.code(), Some(2));
    assert!(output.contains(&address), "{output}");
}

#[test]
fn certificates_that_cannot_be_used_stop_the_start() {
    let folder = Folder::with_rules(RULES);
    folder.write("cert.pem", "not a certificate");
    let settings = ["--set", "grpc.tls.cert=cert.pem", "--set", "grpc.tls.key=cert.pem"];
    let (status, output) = Start::new(&folder).args(settings).failing();
    assert_eq!(status.code(), Some(2));
    assert!(output.contains("cert.pem"), "{output}");
}
