//! Snapshots from a directory and over HTTP: accepted, refused, kept, read again.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate_retriever::{JoinFile, Origin, Retriever, RetrieverSettings};
use tidegate_row_table::Rows;
use tidegate_snapshot_file::{
    CellClass, EncodedContent, RulesPart, SigningKey, SnapshotContent, Stamp, Trust,
};

/// How long an event may take that has to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that wait to be read.
const EVENTS_MAX: usize = 10_000;

struct Publisher {
    key: SigningKey,
}

impl Publisher {
    fn new() -> Self {
        Publisher { key: SigningKey::generate().expect("a key") }
    }

    fn file(&self, sequence: u64, keys: &str) -> Vec<u8> {
        let rows = Rows::build(CellClass::Small.rows_max(), 1, &[]).expect("no rows fit");
        let content = SnapshotContent {
            rules: RulesPart::default(),
            keys: keys.to_owned(),
            table: rows.table,
            ..SnapshotContent::default()
        };
        let stamp = Stamp {
            cell: "eu".to_owned(),
            ring: "all".to_owned(),
            epoch: 1,
            sequence,
            version: sequence,
            beat_ms: 100,
            ..Stamp::default()
        };
        let content = EncodedContent::new(CellClass::Small, &content).expect("it fits");
        content.sign(&stamp, &self.key).expect("the names fit")
    }

    fn put(&self, directory: &Path, sequence: u64, keys: &str) {
        put(directory, &self.file(sequence, keys));
    }

    fn join(&self, url: String) -> JoinFile {
        let keys = vec![self.key.public_key()];
        let trust = Trust { cell: "eu".into(), ring: Some("all".into()), keys, epoch_key: None };
        JoinFile { url, trust, token: Some("secret".to_owned()), authority: None }
    }
}

fn put(directory: &Path, file: &[u8]) {
    let directory = directory.join("eu/all");
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("new"), file).expect("a file");
    fs::rename(directory.join("new"), directory.join("snapshot")).expect("a new name");
}

/// A retriever, and the texts of keys that it handed on.
struct Node {
    retriever: Retriever,
    seen: Receiver<(u64, String)>,
}

impl Node {
    fn start(join: JoinFile, keep: &Path) -> Self {
        let (sender, seen): (SyncSender<(u64, String)>, _) = sync_channel(EVENTS_MAX);
        let settings = RetrieverSettings::new(join, keep, "node-1");
        let retriever = Retriever::start(settings, move |snapshot| {
            if snapshot.content.keys == "refused" {
                return Err("these are wrong".to_owned());
            }
            assert_ne!(snapshot.content.keys, "panic", "asked for");
            let _ = sender.send((snapshot.head.stamp.sequence, snapshot.content.keys.clone()));
            Ok(())
        });
        Node { retriever: retriever.expect("it starts"), seen }
    }

    /// Waits until this sequence was handed on.
    fn wait_for(&self, sequence: u64) -> String {
        loop {
            let (seen, keys) = self.seen.recv_timeout(PATIENCE).expect("it comes");
            if seen == sequence {
                return keys;
            }
        }
    }

    /// Waits until a beat ended so.
    fn wait_for_outcome(&self, outcome: &str) {
        for _ in 0..600 {
            if self.retriever.handle().status().beats.keys().any(|known| *known == outcome) {
                return;
            }
            // A beat of the node is the time to wait; `recv_timeout` is a wait that an event ends.
            let _ = self.seen.recv_timeout(Duration::from_millis(100));
        }
        panic!("no beat ended with {outcome}: {:?}", self.retriever.handle().status());
    }
}

#[test]
fn every_snapshot_is_handed_on_whether_it_changed_or_not() {
    let (directory, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let publisher = Publisher::new();
    publisher.put(directory.path(), 1, "a");
    let node = Node::start(publisher.join(directory.path().display().to_string()), keep.path());
    assert_eq!(node.wait_for(1), "a");
    assert_eq!(node.wait_for(1), "a", "the same one again, on the next beat");
    publisher.put(directory.path(), 2, "b");
    assert_eq!(node.wait_for(2), "b");
    let status = node.retriever.handle().status();
    let running = status.running.unwrap();
    assert_eq!((running.epoch, running.origin), (1, Origin::Source));
}

#[test]
fn a_wrong_snapshot_keeps_what_runs_until_a_right_one_comes() {
    let (directory, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let publisher = Publisher::new();
    publisher.put(directory.path(), 5, "good");
    let node = Node::start(publisher.join(directory.path().display().to_string()), keep.path());
    node.wait_for(5);
    let good = publisher.file(6, "better");
    let mut flipped = good.clone();
    flipped[9_000] ^= 1;
    for (file, outcome) in [
        (publisher.file(4, "old"), "older"),
        (flipped, "hash"),
        (good[..good.len() - 1].to_vec(), "size"),
        (Publisher::new().file(7, "forged"), "signature"),
        (publisher.file(8, "refused"), "rules"),
        (b"tide".to_vec(), "format"),
    ] {
        put(directory.path(), &file);
        node.wait_for_outcome(outcome);
        let running = node.retriever.handle().status().running.unwrap();
        assert_eq!(running.sequence, 5, "{outcome}");
    }
    fs::remove_file(directory.path().join("eu/all/snapshot")).unwrap();
    node.wait_for_outcome("unreachable");
    put(directory.path(), &good);
    assert_eq!(node.wait_for(6), "better");
}

#[test]
fn a_panic_of_the_receiver_does_not_end_the_reading() {
    let (directory, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let publisher = Publisher::new();
    publisher.put(directory.path(), 1, "panic");
    let node = Node::start(publisher.join(directory.path().display().to_string()), keep.path());
    node.wait_for_outcome("rules");
    publisher.put(directory.path(), 2, "fine");
    assert_eq!(node.wait_for(2), "fine");
}

#[test]
fn a_node_starts_from_the_kept_copy_without_its_source() {
    let (directory, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let publisher = Publisher::new();
    publisher.put(directory.path(), 3, "kept");
    let join = publisher.join(directory.path().display().to_string());
    let node = Node::start(join.clone(), keep.path());
    node.wait_for(3);
    drop(node);
    fs::remove_dir_all(directory.path()).unwrap();

    let node = Node::start(join.clone(), keep.path());
    assert_eq!(node.seen.recv_timeout(PATIENCE).unwrap(), (3, "kept".to_owned()));
    let status = node.retriever.handle().status();
    assert_eq!(status.running.as_ref().unwrap().origin, Origin::KeptCopy);
    assert!(status.is_stale(), "nothing newer has come");
    node.wait_for_outcome("unreachable");
    // What is older than the kept copy is refused after a restart too.
    publisher.put(directory.path(), 2, "older");
    node.wait_for_outcome("older");
    drop(node);

    // A copy that the disk damaged is not used; the source heals it.
    let path = keep.path().join("snapshot");
    let mut copy = fs::read(&path).unwrap();
    copy[5_000] ^= 1;
    fs::write(&path, copy).unwrap();
    publisher.put(directory.path(), 4, "healed");
    let node = Node::start(join.clone(), keep.path());
    assert_eq!(node.wait_for(4), "healed");
    drop(node);
    fs::remove_dir_all(directory.path()).unwrap();
    let node = Node::start(join, keep.path());
    assert_eq!(node.wait_for(4), "healed");
}

/// Answers every request with these bytes, and passes on its head.
fn serve(file: Vec<u8>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, heads) = sync_channel(EVENTS_MAX);
    let file = Arc::new(file);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let length = file.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(&file);
            if sender.send(String::from_utf8_lossy(&head).into_owned()).is_err() {
                return;
            }
        }
    });
    (url, heads)
}

#[test]
fn snapshots_are_read_over_http_with_the_token_and_reported() {
    let keep = tempfile::tempdir().unwrap();
    let publisher = Publisher::new();
    let (url, heads) = serve(publisher.file(9, "over http"));
    let node = Node::start(publisher.join(url), keep.path());
    assert_eq!(node.wait_for(9), "over http");
    let head = heads.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("GET /v1/snapshot/all HTTP/1.1"), "{head}");
    assert!(head.contains("authorization: Bearer secret"), "{head}");
    let report = heads.iter().find(|head| head.starts_with("POST"));
    assert!(report.unwrap().starts_with("POST /v1/nodes/node-1/report HTTP/1.1"));
}

#[test]
fn a_source_that_is_no_url_is_refused_at_the_start() {
    let keep = tempfile::tempdir().unwrap();
    let join = Publisher::new().join("http://".to_owned());
    let started = Retriever::start(RetrieverSettings::new(join, keep.path(), "n"), |_| Ok(()));
    assert!(started.is_err());
}
