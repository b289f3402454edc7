use std::time::Duration;

use smallvec::smallvec;
use tokio::sync::oneshot;

use super::super::job::Note;
use super::super::now;
use super::*;
use crate::counter_store::StoreError;
use crate::redis::parcel::Parcel;

const SCRIPT: Script<'_> = Script { text: "return 1", hash: "abc" };

type Answered = oneshot::Receiver<Result<Receipt, StoreError>>;

fn parcel(tag: u16, key: &str) -> (Job, Answered) {
    let (answer, answered) = oneshot::channel();
    let parcel = Parcel { tag, keys: smallvec![key.as_bytes().into()], body: smallvec![1] };
    let within = Duration::from_secs(1);
    let note = Note::Parcel { parcel, until: now() + within, within, answer };
    let mut job = None;
    note.open(|opened| job = Some(opened));
    (job.unwrap(), answered)
}

/// What would be written, without the lengths.
fn words(commands: &Pipeline) -> Vec<String> {
    let text = String::from_utf8(commands.get_packed_pipeline()).unwrap();
    let is_word = |line: &&str| !line.starts_with(['*', '$']);
    text.split("\r\n").filter(is_word).map(str::to_owned).collect()
}

fn packed(jobs: Vec<Job>, sharing: Sharing, reload: bool) -> (Vec<String>, Vec<Call>) {
    let (commands, calls) = pack(jobs, SCRIPT, sharing, reload, b"");
    (words(&commands), calls)
}

#[test]
fn on_one_server_all_parcels_share_a_call() {
    let (one, _a) = parcel(1, "k1");
    let (two, _b) = parcel(2, "k2");
    let (words, calls) = packed(vec![one, two], Sharing::All, false);
    let expected = ["EVALSHA", "abc", "2", "k1", "k2", "", "\u{1}", "\u{1}", ""];
    assert_eq!(words, expected);
    assert_eq!(calls.len(), 1);
}

#[test]
fn in_a_cluster_only_parcels_with_equal_tags_share_a_call() {
    let jobs = [parcel(2, "a"), parcel(1, "b"), parcel(2, "c")];
    let (jobs, _answered): (Vec<Job>, Vec<Answered>) = jobs.into_iter().unzip();
    let (words, calls) = packed(jobs, Sharing::SameTag, false);
    assert_eq!(calls.iter().map(|call| call.jobs.len()).collect::<Vec<_>>(), [1, 2]);
    let keys: Vec<&String> =
        words.iter().filter(|word| ["a", "b", "c"].contains(&word.as_str())).collect();
    assert_eq!(keys, ["b", "a", "c"]);
}

#[test]
fn what_is_sent_against_the_map_says_so_first() {
    let (mut job, _answered) = parcel(1, "k");
    job.asking = true;
    let (words, calls) = packed(vec![job], Sharing::SameTag, true);
    assert_eq!(words.first().map(String::as_str), Some("SCRIPT"));
    assert_eq!(words.get(3).map(String::as_str), Some("ASKING"));
    assert_eq!(calls.first().map(|call| call.at), Some(2));
}

#[test]
fn each_parcel_gets_its_part_of_the_answer() {
    let (one, mut first) = parcel(1, "a");
    let (two, mut second) = parcel(1, "b");
    let (_, mut calls) = packed(vec![one, two], Sharing::All, false);
    let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let answer = Value::Array(vec![bulk("3"), Value::Int(7), bulk("x"), Value::Int(1)]);
    calls.remove(0).settle(answer, &Meter::default());
    let receipt = first.try_recv().unwrap().unwrap();
    assert_eq!(receipt, Receipt { now: Timestamp::from_nanos(3_000_007_000), body: b"x".to_vec() });
    // An answer that is no text is not one of the script's.
    assert!(second.try_recv().unwrap().is_err());
}

#[test]
fn an_answer_that_is_too_short_fails_those_without_one() {
    for answer in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Int(-1); 9])] {
        let (job, mut answered) = parcel(1, "a");
        let (_, mut calls) = packed(vec![job], Sharing::All, false);
        calls.remove(0).settle(answer, &Meter::default());
        assert!(answered.try_recv().unwrap().is_err());
    }
}
