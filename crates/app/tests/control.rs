//! The control plane, as its commands: a real service, real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_test_servers::eventually;

const RULES: &str = "domain: api\ndescriptors:\n- key: client\n  rate_limit: {unit: second, requests_per_unit: 100}\n";

/// A control plane in a directory of its own.
struct Control {
    files: TempDir,
    service: Option<Child>,
    url: String,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Control {
    fn start() -> Self {
        let mut control =
            Control { files: tempfile::tempdir().unwrap(), service: None, url: String::new() };
        let made =
            control.run(&["init", "--beat", "200", "--token-file", "token", "--join", "join.json"]);
        assert!(made.contains("cell:   main (small, a snapshot every 200 ms)"), "{made}");
        control.serve();
        control
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn serve(&mut self) {
        let mut command =
            self.command(&["serve", "--listen", "127.0.0.1:0", "--publish", "snapshots"]);
        let mut service = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(service.stderr.take().unwrap()).lines();
        let (found, address) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                if line["message"] == "the rules service is listening" {
                    let _ = found.send(line["address"].as_str().unwrap_or_default().to_owned());
                }
            }
        });
        self.service = Some(service);
        self.url = format!("http://{}", address.recv().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill().unwrap();
            service.wait().unwrap();
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("control").args(args).current_dir(self.files.path());
        command.env("TIDEGATE_CONTROL", &self.url).env("TIDEGATE_CONTROL_TOKEN_FILE", "token");
        command
    }

    fn output(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// What a command prints, which has to succeed.
    fn run(&self, args: &[&str]) -> String {
        let (code, out, err) = self.output(args);
        assert_eq!(code, 0, "{args:?}: {out}{err}");
        out
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status"])).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn texts(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(texts(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn rule_files_move_into_the_database_and_an_export_applied_changes_nothing() {
    let control = Control::start();
    control.write("rules/api.yaml", RULES);
    let applied = control.run(&["apply", "rules", "--why", "the rule files"]);
    assert_eq!(applied, "+ document api.yaml: 4 lines\nversion 1: 1 entries changed\n");
    control.write("clients.csv", "value,terms,until\nacme,rate=500,\n\"a, b\",gold,2027-01-31\n");
    let imported = control.run(&["import", "api/clients", "clients.csv", "--why", "billing"]);
    assert_eq!(imported, "2 rows read, 2 changed, version 2\n");
    control.run(&["export", "limits"]);
    let first = texts(&control.path("limits"));
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(control.run(&["diff", "limits", "--prune", "--exit-code"]), "nothing differs\n");
    assert_eq!(control.run(&["apply", "limits", "--prune"]), "nothing differs from version 2\n");
    control.run(&["export", "limits"]);
    assert_eq!(texts(&control.path("limits")), first, "byte for byte");
    control.write("limits/rows/api%2Fclients.csv", "value,terms\nacme,rate=900\n");
    let (code, out, _) = control.output(&["diff", "limits", "--prune", "--exit-code"]);
    assert_eq!(code, 1);
    let changed = "~ row api/clients acme: rate=500 → rate=900\n";
    assert!(out.contains(changed) && out.contains("- row api/clients a, b: gold until"), "{out}");
    let applied = control.run(&["apply", "limits", "--why", "git"]);
    assert_eq!(applied, format!("{changed}version 3: 1 entries changed\n"));
    control.write("limits/rules/api.yaml", &RULES.replace("second", "eon"));
    let (code, out, _) = control.output(&["apply", "limits"]);
    assert!(code == 1 && out.contains("api.yaml:4:"), "{code} {out}");
    assert_eq!(control.status()["version"], 3, "nothing was applied");
}

#[test]
fn an_override_is_published_shown_and_rolled_back() {
    let control = Control::start();
    let set =
        ["override", "set", "api/clients", "acme", "rate=500", "burst=10", "--why", "contract"];
    assert_eq!(control.run(&set), "+ row api/clients acme: rate=500 burst=10\nversion 1\n");
    let published = || (control.status()["publisher"]["version"] == 1).then_some(());
    eventually("that version 1 is published", published);
    let snapshot = control.path("snapshots/main/all/snapshot");
    assert_eq!(fs::metadata(snapshot).unwrap().len(), 1_343_808);
    let sequence = control.status()["publisher"]["sequence"].as_u64();
    eventually("a later sequence without a change", || {
        (control.status()["publisher"]["sequence"].as_u64() > sequence).then_some(())
    });
    let list = control.run(&["override", "list", "api/clients", "--prefix", "ac"]);
    assert!(list.contains("rate=500 burst=10") && list.contains("contract"), "{list}");
    control.run(&["override", "rm", "api/clients", "acme", "--why", "over"]);
    let shown = control.run(&["show", "2"]);
    assert!(shown.contains("by admin at") && shown.contains("- row api/clients acme"), "{shown}");
    let back = control.run(&["rollback", "--why", "not over"]);
    assert_eq!(back, "version 3 has the content of version 1: 1 entries changed\n");
    let history = control.run(&["history"]);
    assert!(history.contains("as 1: not over") && history.contains("contract"), "{history}");
    let (code, _, err) = control.output(&["override", "rm", "api/clients", "globex"]);
    assert!(code == 2 && err.contains("there is no row `api/clients/globex`"), "{err}");
    let (code, _, err) = control.output(&["override", "set", "clients", "acme", "gold"]);
    assert!(code == 2 && err.contains("expected a table as DOMAIN/TABLE"), "{err}");
}

#[test]
fn switches_keys_tokens_and_drafts_are_commands() {
    let control = Control::start();
    control.run(&["switch", "set", "limit:api:client", "shadow", "--why", "incident"]);
    assert!(control.run(&["switch", "list"]).contains("limit:api:client"));
    control.run(&["switch", "rm", "limit:api:client", "--why", "over"]);
    let made = control.run(&["keys", "new", "acme", "gold"]);
    let hash = made.lines().find_map(|line| line.strip_prefix("hash: ")).unwrap();
    assert!(control.run(&["keys", "list"]).contains(hash));
    assert!(control.run(&["keys", "revoke", &hash[..12]]).starts_with("- key "));
    assert!(!control.run(&["keys", "list"]).contains(hash));
    let token = control.run(&["token", "add", "ci", "read+change", "--owner", "team-a"]);
    control.write("ci.token", token.strip_prefix("token: ").unwrap());
    let as_ci = |args: &[&str]| {
        let output = control.command(args).env("TIDEGATE_CONTROL_TOKEN_FILE", "ci.token").output();
        output.unwrap().status.code()
    };
    assert_eq!(as_ci(&["override", "set", "api/clients", "acme", "gold"]), Some(0));
    assert_eq!(as_ci(&["switch", "set", "all", "off", "--why", "w"]), Some(2));
    control.run(&["token", "revoke", "ci"]);
    assert_eq!(as_ci(&["status"]), Some(2));
    control.write("limits/rows/api%2Fclients.csv", "value,terms\nglobex,gold\n");
    control.run(&["apply", "limits", "--draft", "more", "--why", "growth"]);
    assert!(control.run(&["draft", "list"]).contains("open"));
    control.run(&["draft", "review", "more", "looks right"]);
    assert!(control.run(&["draft", "publish", "more"]).ends_with("1 entries changed\n"));
    let audit = control.run(&["audit", "verify"]);
    assert!(audit.contains("rows are as they were written"), "{audit}");
    assert!(control.run(&["audit", "list"]).contains("revoke token"));
    let (code, out, _) = control.output(&["wait", "--timeout", "0"]);
    assert_eq!((code, out.starts_with("only 0 of 0 nodes")), (1, true), "{out}");
}

#[test]
fn files_are_private_and_a_backup_is_restored_with_a_new_epoch() {
    let mut control = Control::start();
    for secret in
        ["token", "join.json", "control-data/keys/signing.key", "control-data/keys/epoch.key"]
    {
        assert_eq!(mode(&control.path(secret)), 0o600, "{secret}");
    }
    let join: Value =
        serde_json::from_str(&fs::read_to_string(control.path("join.json")).unwrap()).unwrap();
    assert!(join["keys"][0].as_str().unwrap().starts_with("ed25519:"), "{join}");
    control.run(&["override", "set", "api/clients", "acme", "gold"]);
    control.run(&["backup", "copy"]);
    control.kill();
    let restored = control.run(&["restore", "copy", "--data-dir", "again", "--why", "a test"]);
    assert!(restored.starts_with("version 1 in again, epoch 2"), "{restored}");
    control.run(&["keys", "certify", "--data-dir", "again", "--epoch", "2"]);
    fs::rename(control.path("control-data"), control.path("lost")).unwrap();
    fs::rename(control.path("again"), control.path("control-data")).unwrap();
    control.serve();
    eventually("that epoch 2 is published", || {
        (control.status()["publisher"]["epoch"] == 2).then_some(())
    });
    control.kill();
    // The key is rotated: first both are trusted, then the next one signs.
    let next = control.run(&["keys", "rotate"]);
    assert!(next.starts_with("next key: ed25519:"), "{next}");
    assert_eq!(control.run(&["keys", "rotate"]), next, "the same key until it is in use");
    assert!(control.run(&["keys", "rotate", "--finish"]).contains("signs after a restart"));
    fs::set_permissions(
        control.path("control-data/keys/signing.key"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let (code, _, err) = control.output(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(code == 2 && err.contains("can be read by others"), "{err}");
}

#[test]
fn a_service_that_is_killed_loses_no_acknowledged_change() {
    let mut control = Control::start();
    for round in 0..5 {
        for number in 0..5 {
            let name = format!("c{round}-{number}");
            control.run(&["override", "set", "api/clients", &name, "gold"]);
        }
        control.kill();
        control.serve();
        assert_eq!(control.status()["version"], (round + 1) * 5);
    }
    control.run(&["audit", "verify"]);
}
