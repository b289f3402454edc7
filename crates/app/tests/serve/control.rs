//! A server whose rules come from signed snapshots.

use std::fs;

use tidegate_row_table::{NewRow, Rows, TableName};
use tidegate_snapshot_file::{
    CellClass, DocumentText, EncodedContent, RulesPart, SigningKey, SnapshotContent, Stamp,
    SwitchSetting, SwitchTarget,
};

use crate::process::{Folder, Serving, Start};

const RULES: &str = "
domain: shop
tables: {users: {key: user}}
descriptors:
  - key: user
    overrides: users
    rate_limit: {name: calls, requests_per_unit: 2, unit: hour}
";

struct Publisher {
    key: SigningKey,
    folder: Folder,
}

impl Publisher {
    fn new() -> Self {
        let publisher = Publisher {
            key: SigningKey::generate().expect("a key"),
            folder: Folder::with_rules(""),
        };
        let join = serde_json::json!({
            "url": publisher.folder.path("snapshots"),
            "cell": "main",
            "keys": [publisher.key.public_key().to_string()],
        });
        publisher.folder.write("join.json", &join.to_string());
        publisher
    }

    /// Puts a snapshot with rules, rows of users, and switches.
    fn put(&self, sequence: u64, rules: &str, rows: &[(&str, &str)], mode: Option<&str>) {
        let users = TableName { domain: "shop".to_owned(), table: "users".to_owned() };
        let rows: Vec<NewRow<'_>> = rows
            .iter()
            .map(|(value, terms)| NewRow { table: &users, value, terms, until: None })
            .collect();
        let rows = Rows::build(CellClass::Small.rows_max(), 1, &rows).expect("they fit");
        let documents = vec![DocumentText { name: "shop.yaml".into(), text: rules.to_owned() }];
        let switches = mode.map(|mode| SwitchSetting {
            target: SwitchTarget::Limiter { limiter: "rate".to_owned() },
            mode: mode.to_owned(),
            until: None,
            set_by: "ana".to_owned(),
            why: "a test".to_owned(),
        });
        let content = SnapshotContent {
            rules: RulesPart { documents, terms: rows.terms },
            keys: format!("# version {sequence}\n"),
            switches: switches.into_iter().collect(),
            table: rows.table,
        };
        let stamp = Stamp {
            cell: "main".to_owned(),
            ring: "all".to_owned(),
            epoch: 1,
            sequence,
            version: sequence,
            beat_ms: 200,
            ..Stamp::default()
        };
        let content = EncodedContent::new(CellClass::Small, &content).expect("it fits");
        let file = content.sign(&stamp, &self.key).expect("the names fit");
        let directory = self.folder.path("snapshots").join("main/all");
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("new"), file).expect("written");
        fs::rename(directory.join("new"), directory.join("snapshot")).expect("renamed");
    }

    fn start(&self) -> Start<'_> {
        let join = self.folder.path("join.json");
        let data = format!("data_dir={}", self.folder.path("data").display());
        Start::bare(&self.folder)
            .args(["--control".as_ref(), join.as_os_str()])
            .args(["--set", &data])
    }
}

fn wait_for_version(serving: &mut Serving, version: u64) {
    let line = format!("tidegate_snapshot_version {version}");
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        metrics.lines().any(|found| found == line).then_some(())
    });
}

#[test]
fn a_row_lets_one_user_pass_and_takes_nothing_from_the_counters() {
    let publisher = Publisher::new();
    publisher.put(1, RULES, &[], None);
    let mut serving = publisher.start().serving();
    for status in [200, 200, 429] {
        assert_eq!(serving.check("ada").status, status);
    }
    publisher.put(2, RULES, &[("ada", "unlimited"), ("bob", "blocked")], None);
    wait_for_version(&mut serving, 2);
    for _ in 0..5 {
        assert_eq!(serving.check("ada").status, 200);
    }
    assert_eq!(serving.check("bob").status, 429);
    publisher.put(3, RULES, &[], None);
    wait_for_version(&mut serving, 3);
    assert_eq!(serving.check("ada").status, 429, "what was used before the row is still used");
    assert_eq!(serving.check("bob").status, 200);
}

#[test]
fn wrong_rules_of_a_snapshot_change_nothing_and_are_told() {
    let publisher = Publisher::new();
    publisher.put(1, RULES, &[], None);
    let mut serving = publisher.start().serving();
    publisher.put(2, &RULES.replace("rate_limit", "rate_limt"), &[], None);
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        metrics.contains("tidegate_snapshot_beats_total{outcome=\"rules\"}").then_some(())
    });
    for status in [200, 200, 429] {
        assert_eq!(serving.check("ada").status, status);
    }
    publisher.put(3, &RULES.replace("_per_unit: 2", "_per_unit: 3"), &[], None);
    wait_for_version(&mut serving, 3);
    assert_eq!(serving.check("ada").status, 200);
}

#[test]
fn a_server_starts_from_the_kept_copy_when_everything_else_is_gone() {
    let publisher = Publisher::new();
    publisher.put(7, RULES, &[("eve", "blocked")], None);
    let mut serving = publisher.start().serving();
    assert_eq!(serving.check("eve").status, 429);
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopped");
    drop(serving);
    fs::remove_dir_all(publisher.folder.path("snapshots")).expect("removed");
    let mut serving = publisher.start().serving();
    assert_eq!(serving.check("eve").status, 429);
    assert_eq!(serving.check("ada").status, 200);
    wait_for_version(&mut serving, 7);
    let keys = publisher.folder.path("data").join("control/api-keys");
    assert_eq!(fs::read_to_string(keys).expect("kept"), "# version 7\n");
}

#[test]
fn switches_of_a_snapshot_are_applied_and_taken_back() {
    let publisher = Publisher::new();
    publisher.put(1, RULES, &[], Some("off"));
    let mut serving = publisher.start().serving();
    for _ in 0..4 {
        assert_eq!(serving.check("ada").status, 200);
    }
    publisher.put(2, RULES, &[], None);
    wait_for_version(&mut serving, 2);
    serving.until(|serving| (serving.check("ada").status == 429).then_some(()));
}

#[test]
fn a_control_plane_needs_a_data_directory_and_a_snapshot_to_start_with() {
    let publisher = Publisher::new();
    let join = publisher.folder.path("join.json");
    let start = Start::bare(&publisher.folder).args(["--control".as_ref(), join.as_os_str()]);
    let (status, text) = start.failing();
    assert!(!status.success() && text.contains("data_dir"), "{text}");
    let (status, text) = publisher.start().failing();
    assert!(!status.success() && text.contains("no snapshot"), "{text}");
}
