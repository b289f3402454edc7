use std::time::Duration;

use smallvec::smallvec;
use tokio::sync::oneshot;

use super::super::job::Deadline;
use super::*;
use crate::error::LinkError;
use crate::script::ScriptCall;

const SCRIPT: Script<'_> = Script { text: "return 1", hash: "abc" };

type ReplyReceiver = oneshot::Receiver<Result<ScriptReply, LinkError>>;

fn script_job(tag: u16, key: &str) -> (Job, ReplyReceiver) {
    let (reply, received) = oneshot::channel();
    let call = ScriptCall { tag, keys: smallvec![key.as_bytes().into()], body: smallvec![1] };
    let payload = Payload::Script { call, reply: Some(reply) };
    (Job::new(payload, Deadline::after(Duration::from_secs(1))), received)
}

/// What would be written, without the lengths.
fn words(commands: &Pipeline) -> Vec<String> {
    let text = String::from_utf8(commands.get_packed_pipeline()).unwrap();
    let is_word = |line: &&str| !line.starts_with(['*', '$']);
    text.split("\r\n").filter(is_word).map(str::to_owned).collect()
}

fn built(
    jobs: Vec<Job>,
    sharing: CommandSharing,
    reload: bool,
) -> (Vec<String>, Vec<CommandInFlight>) {
    let (pipeline, commands) = build(jobs, SCRIPT, sharing, reload, b"");
    (words(&pipeline), commands)
}

#[test]
fn on_one_server_all_script_calls_share_one_command() {
    let (one, _a) = script_job(1, "k1");
    let (two, _b) = script_job(2, "k2");
    let (words, commands) = built(vec![one, two], CommandSharing::All, false);
    let expected = ["EVALSHA", "abc", "2", "k1", "k2", "", "\u{1}", "\u{1}", ""];
    assert_eq!(words, expected);
    assert_eq!(commands.len(), 1);
}

#[test]
fn in_a_cluster_only_script_calls_with_equal_tags_share_a_command() {
    let jobs = [script_job(2, "a"), script_job(1, "b"), script_job(2, "c")];
    let (jobs, _received): (Vec<Job>, Vec<ReplyReceiver>) = jobs.into_iter().unzip();
    let (words, commands) = built(jobs, CommandSharing::SameTag, false);
    assert_eq!(commands.iter().map(|command| command.jobs.len()).collect::<Vec<_>>(), [1, 2]);
    let keys: Vec<&String> =
        words.iter().filter(|word| ["a", "b", "c"].contains(&word.as_str())).collect();
    assert_eq!(keys, ["b", "a", "c"]);
}

#[test]
fn asking_precedes_a_call_that_is_sent_against_the_slot_map() {
    let (mut job, _received) = script_job(1, "k");
    job.asking = true;
    let (words, commands) = built(vec![job], CommandSharing::SameTag, true);
    assert_eq!(words.first().map(String::as_str), Some("SCRIPT"));
    assert_eq!(words.get(3).map(String::as_str), Some("ASKING"));
    assert_eq!(commands.first().map(|command| command.reply_index), Some(2));
}

#[test]
fn each_script_call_gets_its_part_of_the_reply() {
    let (one, mut first) = script_job(1, "a");
    let (two, mut second) = script_job(1, "b");
    let (_, mut commands) = built(vec![one, two], CommandSharing::All, false);
    let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let reply = Value::Array(vec![bulk("3"), Value::Int(7), bulk("x"), Value::Int(1)]);
    commands.remove(0).deliver(reply, &Counters::default());
    let reply = first.try_recv().unwrap().unwrap();
    assert_eq!(reply, ScriptReply { server_micros: 3_000_007, body: b"x".to_vec() });
    // The script replies with strings only.
    assert!(second.try_recv().unwrap().is_err());
}

#[test]
fn a_reply_that_is_too_short_fails_the_calls_without_one() {
    for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Int(-1); 9])] {
        let (job, mut received) = script_job(1, "a");
        let (_, mut commands) = built(vec![job], CommandSharing::All, false);
        commands.remove(0).deliver(reply, &Counters::default());
        assert!(received.try_recv().unwrap().is_err());
    }
}
