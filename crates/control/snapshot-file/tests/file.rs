//! What was written is read; what was not signed like that is refused.

use std::io::{self, Read};
use std::sync::LazyLock;

use proptest::prelude::*;
use tidegate_row_table::{Minute, NewRow, Rows, TableName};
use tidegate_snapshot_file::{
    CellClass, DocumentText, EncodeError, EncodedContent, Freshness, HEAD_BYTES, Position,
    RulesPart, SigningKey, SnapshotContent, SnapshotError, Stamp, SwitchSetting, SwitchTarget,
    Trust, inspect, read,
};

const CLASS: CellClass = CellClass::Small;

fn clients() -> TableName {
    TableName { domain: "api".to_owned(), table: "clients".to_owned() }
}

fn content() -> SnapshotContent {
    let clients = clients();
    let row = |value, terms, until| NewRow { table: &clients, value, terms, until };
    let rows = [row("acme", "rate=500", None), row("globex", "blocked", Some(Minute(29_000_000)))];
    let rows = Rows::build(CLASS.rows_max(), 7, &rows).expect("they fit");
    let text = "domain: api\ndescriptors: []\n".to_owned();
    let documents = vec![DocumentText { name: "api.yaml".to_owned(), text }];
    let limit = SwitchTarget::Limit { domain: "api".into(), path: "client".into(), limit: None };
    let switch = SwitchSetting {
        target: limit,
        mode: "shadow".into(),
        until: Some(1_800_000_000),
        set_by: "ana".into(),
        why: "incident 7".into(),
    };
    SnapshotContent {
        rules: RulesPart { documents, terms: rows.terms },
        keys: "00 acme gold\n".to_owned(),
        switches: vec![switch],
        table: rows.table,
    }
}

fn key(number: u8) -> SigningKey {
    let seed = [b'A' + number; 42].map(char::from).iter().collect::<String>();
    format!("ed25519-secret:{seed}A").parse().expect("a key")
}

fn stamp(epoch: u64, sequence: u64) -> Stamp {
    Stamp {
        cell: "eu".to_owned(),
        ring: "canary".to_owned(),
        epoch,
        sequence,
        version: 3,
        fence: 4,
        published_at: 1_790_000_000_123,
        content_at: 1_790_000_000_000,
        beat_ms: 5_000,
        audit_head: [9; 32],
        certificate: None,
    }
}

fn file(epoch: u64, sequence: u64) -> Vec<u8> {
    signed(&stamp(epoch, sequence), &key(0))
}

fn signed(stamp: &Stamp, key: &SigningKey) -> Vec<u8> {
    // Encoded once: hashing takes long in a debug build.
    static CONTENT: LazyLock<EncodedContent> =
        LazyLock::new(|| EncodedContent::new(CLASS, &content()).expect("it fits"));
    CONTENT.sign(stamp, key).expect("the names fit")
}

fn trust() -> Trust {
    Trust {
        cell: "eu".to_owned(),
        ring: Some("canary".to_owned()),
        keys: vec![key(0).public_key()],
        epoch_key: None,
    }
}

fn reason(file: &[u8], trust: &Trust, last: Option<&Position>) -> &'static str {
    match read(&mut &*file, trust, last, None) {
        Ok(_) => "accepted",
        Err(error) => error.reason(),
    }
}

#[test]
fn what_was_written_is_read() {
    let file = file(1, 2);
    assert_eq!(file.len(), CLASS.file_bytes());
    let snapshot = read(&mut file.as_slice(), &trust(), None, None).unwrap();
    assert_eq!(snapshot.head.stamp, stamp(1, 2));
    assert_eq!((snapshot.head.class, snapshot.head.rows), (CLASS, 2));
    let (read, written) = (&snapshot.content, content());
    assert_eq!((&read.rules, &read.keys), (&written.rules, &written.keys));
    assert_eq!(read.switches, written.switches);
    let found = read.table.find(clients().tag(), "acme", Minute(0)).unwrap();
    assert_eq!(read.rules.terms[found.index()].text, "rate=500");
    assert_eq!(inspect(&mut file.as_slice()).unwrap().head, snapshot.head);
}

#[test]
fn the_same_content_has_the_same_hash_and_the_same_parts() {
    let (one, other) = (file(1, 2), file(7, 9));
    let hash = |file: &Vec<u8>| inspect(&mut file.as_slice()).unwrap().head.content_hash;
    assert_eq!(hash(&one), hash(&other));
    let parts = HEAD_BYTES..CLASS.file_bytes() - 64;
    assert!(one[parts.clone()] == other[parts]);
}

#[test]
fn memory_of_an_earlier_table_is_used_again() {
    let first = read(&mut file(1, 1).as_slice(), &trust(), None, None).unwrap();
    let last = first.position();
    let spare = first.content.table.into_buffer().unwrap();
    let address = spare.bytes().as_ptr();
    let next = read(&mut file(1, 2).as_slice(), &trust(), Some(&last), Some(spare)).unwrap();
    assert_eq!(next.content.table.bytes().as_ptr(), address);
}

#[test]
fn an_older_file_is_refused_and_the_same_one_is_no_news() {
    let last = read(&mut file(2, 5).as_slice(), &trust(), None, None).unwrap().position();
    for (epoch, sequence, expected) in
        [(2, 4, "older"), (1, 9, "older"), (2, 6, "accepted"), (3, 1, "accepted")]
    {
        let said = reason(&file(epoch, sequence), &trust(), Some(&last));
        assert_eq!(said, expected, "{epoch} {sequence}");
    }
    let same = read(&mut file(2, 5).as_slice(), &trust(), Some(&last), None).unwrap();
    assert_eq!(same.freshness, Freshness::Same);
    // Another file with the same sequence: two publishers.
    let other = signed(&Stamp { fence: 5, ..stamp(2, 5) }, &key(0));
    assert_eq!(reason(&other, &trust(), Some(&last)), "older");
}

#[test]
fn a_foreign_or_forged_file_is_refused() {
    let file = file(1, 1);
    let other_key = Trust { keys: vec![key(1).public_key()], ..trust() };
    assert_eq!(reason(&file, &other_key, None), "signature");
    assert_eq!(reason(&file, &Trust { keys: Vec::new(), ..trust() }, None), "signature");
    assert_eq!(reason(&file, &Trust { cell: "us".to_owned(), ..trust() }, None), "cell");
    assert_eq!(reason(&file, &Trust { ring: Some("all".to_owned()), ..trust() }, None), "cell");
    assert_eq!(reason(&file, &Trust { ring: None, ..trust() }, None), "accepted");
    let two_keys = Trust { keys: vec![key(1).public_key(), key(0).public_key()], ..trust() };
    assert_eq!(reason(&file, &two_keys, None), "accepted", "while keys are rotated");
}

#[test]
fn an_epoch_by_the_offline_key_recovers_from_a_stolen_key() {
    let (stolen, fresh, offline) = (key(0), key(1), key(2));
    let trust = Trust { epoch_key: Some(offline.public_key()), ..trust() };
    let pushed = signed(&stamp(1, u64::MAX), &stolen);
    let last = read(&mut pushed.as_slice(), &trust, None, None).unwrap().position();
    // The stolen key cannot begin an epoch.
    assert_eq!(reason(&signed(&stamp(2, 1), &stolen), &trust, Some(&last)), "signature");
    // Nor can it use the certificate of another key.
    let certificate = Some(offline.certify_epoch("eu", 2, &fresh.public_key()));
    let certified = Stamp { certificate, ..stamp(2, 1) };
    assert_eq!(reason(&signed(&certified, &stolen), &trust, Some(&last)), "signature");
    let recovered = signed(&certified, &fresh);
    let last = read(&mut recovered.as_slice(), &trust, Some(&last), None).unwrap().position();
    // From then on only the new key signs, although nodes still have the old one in their files.
    let again = Stamp { sequence: 2, ..certified.clone() };
    assert_eq!(reason(&signed(&again, &fresh), &trust, Some(&last)), "accepted");
    assert_eq!(reason(&signed(&stamp(2, 3), &stolen), &trust, Some(&last)), "signature");
    assert_eq!(
        reason(&signed(&Stamp { epoch: 3, ..again }, &fresh), &trust, Some(&last)),
        "signature"
    );
}

#[test]
fn a_later_format_is_refused_with_its_number() {
    let mut file = file(1, 1);
    file[8] = 2;
    let error = read(&mut file.as_slice(), &trust(), None, None).unwrap_err();
    assert!(matches!(error, SnapshotError::Format { found: 2 }), "{error}");
}

#[test]
fn a_file_that_two_writers_tore_apart_is_refused() {
    let (one, other) = (file(1, 1), file(1, 2));
    for cut in (4096..one.len()).step_by(256 * 1024) {
        let torn = [&one[..cut], &other[cut..]].concat();
        assert_eq!(reason(&torn, &trust(), None), "hash", "{cut}");
    }
    assert_eq!(reason(&one, &trust(), None), "accepted");
}

#[test]
fn a_cut_file_is_refused_at_every_length() {
    let file = file(1, 1);
    for length in (0..file.len()).step_by(64 * 1024).chain([1, 4095, file.len() - 1]) {
        let said = reason(&file[..length], &trust(), None);
        assert!(["size", "format"].contains(&said), "{length}: {said}");
    }
}

/// Counts what is read of an endless file.
struct Endless<'f> {
    file: &'f [u8],
    read: usize,
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.file.get(self.read..).unwrap_or_default();
        let bytes = buffer.len().min(if rest.is_empty() { buffer.len() } else { rest.len() });
        if let Some(known) = rest.get(..bytes) {
            buffer[..bytes].copy_from_slice(known);
        }
        self.read += bytes;
        Ok(bytes)
    }
}

#[test]
fn of_a_file_that_grew_one_byte_too_many_is_read() {
    let file = file(1, 1);
    let mut endless = Endless { file: &file, read: 0 };
    let error = read(&mut endless, &trust(), None, None).unwrap_err();
    assert_eq!(error.reason(), "size");
    assert_eq!(endless.read, file.len() + 1);
    // Of a file that is not for this node, only the head.
    let mut endless = Endless { file: &file, read: 0 };
    read(&mut endless, &Trust::default(), None, None).unwrap_err();
    assert_eq!(endless.read, HEAD_BYTES);
}

#[test]
fn every_flipped_bit_of_the_head_is_noticed() {
    let mut file = file(1, 1);
    for at in 0..HEAD_BYTES {
        file[at] ^= 1 << (at % 8);
        let head = Endless { file: &file[..HEAD_BYTES], read: 0 };
        let mut head = head.take(HEAD_BYTES as u64);
        let error = read(&mut head, &trust(), None, None).unwrap_err();
        assert!(["signature", "format"].contains(&error.reason()), "{at}: {error}");
        file[at] ^= 1 << (at % 8);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn a_flipped_bit_anywhere_is_noticed(at in 0..CellClass::Small.file_bytes(), bit in 0..8_u32) {
        let mut file = file(1, 1);
        file[at] ^= 1 << bit;
        let said = reason(&file, &trust(), None);
        prop_assert!(["signature", "format", "hash"].contains(&said), "{}", said);
        prop_assert!(inspect(&mut file.as_slice()).is_err() || at < HEAD_BYTES);
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(head in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(read(&mut head.as_slice(), &trust(), None, None).is_err());
        let known = [file(1, 1)[..16].to_vec(), head].concat();
        prop_assert!(inspect(&mut known.as_slice()).is_err());
    }
}

#[test]
fn what_does_not_fit_a_class_is_refused_when_it_is_written() {
    let mut large = content();
    large.keys = "x".repeat(CLASS.keys_bytes_max() + 1);
    let error = EncodedContent::new(CLASS, &large).unwrap_err();
    assert!(matches!(error, EncodeError::PartTooLarge { part: "keys", .. }), "{error}");
    let error = EncodedContent::new(CellClass::Medium, &content()).unwrap_err();
    assert!(
        matches!(error, EncodeError::TableSize { lines: 2_500, expected: 25_000, .. }),
        "{error}"
    );
    let mut termless = content();
    termless.rules.terms.truncate(1);
    assert!(matches!(EncodedContent::new(CLASS, &termless), Err(EncodeError::Row(_))));
    let nameless = Stamp { ring: String::new(), ..stamp(1, 1) };
    let error =
        EncodedContent::new(CLASS, &content()).unwrap().sign(&nameless, &key(0)).unwrap_err();
    assert!(error.to_string().contains("ring"), "{error}");
}

/// Deployed nodes read these bytes, and deployed publishers write them.
#[test]
fn the_bytes_of_a_file_never_change() {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &file(1, 2));
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "e1c4d998d7e29ceaf2afcf95870cda72fdc184f8a0e14d2111031c2c4a669d93");
}
