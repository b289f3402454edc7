//! Commands as processors.

use std::time::Duration;

use tidegate_delivery::{
    AttemptOutcome, AttemptResult, CommandProcessor, CommandSettings, CostSource, Processor,
};
use tidegate_queue::Payload;

use crate::harness::attempt;

fn shell(script: &str) -> CommandSettings {
    let mut settings = CommandSettings::new("/bin/sh");
    settings.arguments = vec!["-c".into(), script.into()];
    settings.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    settings
}

async fn run(settings: CommandSettings, body: &'static [u8]) -> AttemptResult {
    let payload = Payload::from_body(body).with_header("x-kind", "test");
    CommandProcessor::new(settings).process(&[attempt(1, payload)]).await.remove(0)
}

#[tokio::test]
async fn a_command_reads_the_record_and_its_exit_code_is_the_outcome() {
    let mut settings = shell("cat");
    settings.kept_bytes_max = 10_000;
    settings.real_cost = CostSource::JsonPointer("/cost".to_owned());
    let result = run(settings, b"hello").await;
    assert_eq!((result.outcome, result.real_cost), (AttemptOutcome::Delivered, Some(3)));
    let input: serde_json::Value = serde_json::from_slice(&result.response.unwrap().body).unwrap();
    assert_eq!((&input["body"], &input["tenant"]), (&"hello".into(), &"acme".into()));
    assert_eq!(input["headers"][0][0], "x-kind");
    assert_eq!(input["id"].as_str().unwrap().len(), 26);

    let outcome = run(shell("echo no such customer >&2; exit 65"), b"").await.outcome;
    let AttemptOutcome::Rejected { detail } = outcome else { panic!("{outcome:?}") };
    assert!(detail.ends_with("no such customer"), "{detail}");
    let outcome = run(shell("exit 75"), b"").await.outcome;
    assert_eq!(outcome, AttemptOutcome::Throttled { hold: None });
    for script in ["exit 1", "kill -TERM $$"] {
        let outcome = run(shell(script), b"").await.outcome;
        assert!(matches!(outcome, AttemptOutcome::Failed { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_not_there_fails() {
    let outcome = run(CommandSettings::new("/no/such/program"), b"").await.outcome;
    let AttemptOutcome::Failed { detail } = outcome else { panic!("{outcome:?}") };
    assert!(detail.starts_with("cannot start /no/such/program"), "{detail}");
}

#[tokio::test]
async fn a_body_that_is_no_text_is_encoded() {
    let mut settings = shell("cat");
    settings.kept_bytes_max = 10_000;
    let body = run(settings, b"\xff\x00").await.response.unwrap().body;
    let input: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(input["body_base64"], "/wA=");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let mut settings = shell(&script);
    // Long enough for the shell to write the file, on a slow machine too.
    settings.timeout = Duration::from_secs(2);
    let outcome = run(settings, b"").await.outcome;
    assert!(matches!(outcome, AttemptOutcome::Ambiguous { .. }), "{outcome:?}");
    let child = std::fs::read_to_string(&file).unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
    // A killed process is gone or, until its new parent collects it, a zombie.
    let ended = || state().map_or(true, |stat| stat.contains(") Z "));
    while !ended() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn only_the_listed_environment_is_passed_on() {
    let mut settings = shell("env");
    settings.kept_bytes_max = 10_000;
    let body = run(settings, b"").await.response.unwrap().body;
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains("PATH=") && !text.contains("CARGO") && !text.contains("HOME="), "{text}");
}
