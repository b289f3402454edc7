//! Switches, drafts, audit, keys, tokens, guards, epochs.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use axum::http::{Method, StatusCode};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tidegate_gateway::NewApiKey;
use tidegate_plane::{KeyFiles, SigningKey};

use super::WhyArgs;
use super::client::{ControlClient, ControlServerArgs, encode, entry_path, refusal};
use super::init::failed;
use super::view::{effect, write_difference};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Table, write_json};

/// What can be done with switches.
#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Set a switch.
    #[command(
        after_help = "Examples:\n  tidegate control switch set all shadow --why 'incident 42'"
    )]
    Set {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Why; the history and the audit show it.
        #[arg(long)]
        why: String,
        /// `all`, `limiter:NAME`, `limit:DOMAIN:PATH` or `limit:DOMAIN:PATH#LIMIT`.
        scope: String,
        /// off, shadow, enforce, or `enforce 5%`.
        mode: String,
        /// When it ends by itself.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// Take a switch away: the rules decide again.
    #[command(after_help = "Examples:\n  tidegate control switch rm all --why over")]
    Rm {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Why; the history and the audit show it.
        #[arg(long)]
        why: String,
        /// The scope of the switch.
        scope: String,
    },
    /// List switches.
    #[command(after_help = "Examples:\n  tidegate control switch list")]
    List(ControlServerArgs),
}

/// What can be done with drafts.
#[derive(Debug, Subcommand)]
pub(crate) enum DraftCommand {
    /// List drafts.
    #[command(after_help = "Examples:\n  tidegate control draft list")]
    List(ControlServerArgs),
    /// Show a draft.
    #[command(after_help = "Examples:\n  tidegate control draft show contract")]
    Show {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Its name.
        name: String,
    },
    /// Say what you think of a draft, and approve it.
    #[command(
        after_help = "Examples:\n  tidegate control draft review contract 'as agreed' --approve"
    )]
    Review {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Its name.
        name: String,
        /// The note.
        note: String,
        /// Approves it.
        #[arg(long)]
        approve: bool,
    },
    /// Make the changes of a draft a version.
    #[command(after_help = "Examples:\n  tidegate control draft publish contract")]
    Publish {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Its name.
        name: String,
    },
}

/// What can be done with the audit.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List rows of the audit.
    #[command(after_help = "Examples:\n  tidegate control audit list --after 100")]
    List {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Only rows after this number.
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// As many at most.
        #[arg(long, default_value_t = 100)]
        limit: u64,
    },
    /// Check the chain of the audit, and the entries of each version. Ends with 1 at the first row that was edited.
    #[command(after_help = "Examples:\n  tidegate control audit verify")]
    Verify(ControlServerArgs),
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum ControlKeysCommand {
    /// Make an API key for a client of the gateway. The key is printed once; only its hash is sent.
    #[command(after_help = "Examples:\n  tidegate control keys new acme gold --why 'new contract'")]
    New {
        #[command(flatten)]
        server: ControlServerArgs,
        #[command(flatten)]
        why: WhyArgs,
        /// The name of the owner, one word.
        owner: String,
        /// The owner's plan, one word.
        plan: String,
    },
    /// List API keys: their hashes, owners and plans.
    #[command(after_help = "Examples:\n  tidegate control keys list")]
    List(ControlServerArgs),
    /// Revoke the API keys whose hash begins so.
    #[command(after_help = "Examples:\n  tidegate control keys revoke 87cbebfe --why leaked")]
    Revoke {
        #[command(flatten)]
        server: ControlServerArgs,
        #[command(flatten)]
        why: WhyArgs,
        /// The hash, or the first 8 digits of it or more.
        hash: String,
    },
    /// Make the next key that signs snapshots, or take it into use with `--finish`.
    ///
    /// First without `--finish`: add the public key that is printed to the join files, and restart the servers. Then
    /// with `--finish`, and restart `tidegate control serve`.
    #[command(
        after_help = "Examples:\n  tidegate control keys rotate --data-dir control\n  tidegate control keys rotate --data-dir control --finish"
    )]
    Rotate {
        /// The data directory of the control plane.
        #[arg(
            long,
            value_name = "DIR",
            env = "TIDEGATE_CONTROL_DATA",
            default_value = "control-data"
        )]
        data_dir: PathBuf,
        /// Takes the next key into use.
        #[arg(long)]
        finish: bool,
    },
    /// Permit the signing key to sign in a new epoch, with the epoch key.
    #[command(
        after_help = "Examples:\n  tidegate control keys certify --data-dir control --epoch 3"
    )]
    Certify {
        /// The data directory of the control plane.
        #[arg(
            long,
            value_name = "DIR",
            env = "TIDEGATE_CONTROL_DATA",
            default_value = "control-data"
        )]
        data_dir: PathBuf,
        /// The file with the epoch key; `keys/epoch.key` of the data directory unless given.
        #[arg(long, value_name = "FILE")]
        epoch_key: Option<PathBuf>,
        /// The name of the cell.
        #[arg(long, default_value = "main")]
        cell: String,
        /// The epoch.
        #[arg(long)]
        epoch: u64,
    },
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token. Its text is printed once.
    #[command(
        after_help = "Examples:\n  tidegate control token add ci read+change --owner billing --expires 2027-12-31"
    )]
    Add {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Its name, one word.
        name: String,
        /// Its roles, joined by `+`: read, change, approve, operate, admin, node.
        roles: String,
        /// The team whose entries it may change; all unless given.
        #[arg(long, default_value = "", hide_default_value = true)]
        owner: String,
        /// The day on which it expires: 2027-01-31.
        #[arg(long, value_name = "DAY", default_value = "", hide_default_value = true)]
        expires: String,
    },
    /// List tokens.
    #[command(after_help = "Examples:\n  tidegate control token list")]
    List(ControlServerArgs),
    /// Revoke a token.
    #[command(after_help = "Examples:\n  tidegate control token revoke ci")]
    Revoke {
        #[command(flatten)]
        server: ControlServerArgs,
        /// Its name.
        name: String,
    },
}

/// Which guards to overrule.
#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// empty, shrunk or doubled.
    #[arg(required = true)]
    guards: Vec<String>,
    /// Why; the audit shows it.
    #[arg(long)]
    why: String,
}

/// Which epoch to start.
#[derive(Debug, Args)]
pub(crate) struct EpochArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// At least this number: greater than what servers have seen.
    #[arg(long, default_value_t = 0)]
    at_least: u64,
    /// Why; the audit shows it.
    #[arg(long)]
    why: String,
}

/// The body of a switch with this scope.
fn switch_body(scope: &str, mode: &str) -> Result<Value, Failure> {
    let unknown = || {
        let help = "write all, limiter:NAME, limit:DOMAIN:PATH or limit:DOMAIN:PATH#LIMIT";
        Failure::from(Complaint::new(format!("`{scope}` is no scope of a switch"), help))
    };
    match scope.split_once(':') {
        None if scope == "all" => Ok(json!({ "target": "all", "mode": mode })),
        Some(("limiter", name)) => {
            Ok(json!({ "target": "limiter", "limiter": name, "mode": mode }))
        }
        Some(("limit", rest)) => {
            let (domain, path) = rest.split_once(':').ok_or_else(unknown)?;
            let mut body =
                json!({ "target": "limit", "domain": domain, "path": path, "mode": mode });
            if let Some((path, limit)) = path.rsplit_once('#') {
                body["path"] = json!(path);
                body["limit"] = json!(limit);
            }
            Ok(body)
        }
        _ => Err(unknown()),
    }
}

pub(super) fn switch(command: SwitchCommand, out: &mut Output) -> Result<Exit, Failure> {
    let (server, change, why) = match command {
        SwitchCommand::List(server) => {
            let client = ControlClient::new(&server)?;
            return list_entries(&client, "switch", ["scope", "mode"], out);
        }
        SwitchCommand::Set { server, why, scope, mode, until } => {
            let body = switch_body(&scope, &mode)?;
            let mut change = json!({ "kind": "switch", "name": scope, "body": body });
            if let Some(until) = until {
                change["until"] = json!(until);
            }
            (server, change, why)
        }
        SwitchCommand::Rm { server, why, scope } => {
            (server, json!({ "kind": "switch", "name": scope, "remove": true }), why)
        }
    };
    let client = ControlClient::new(&server)?;
    let done = client.post("/v1/changes", &json!({ "changes": [change], "why": why }))?;
    writeln!(out, "version {}", done["version"])?;
    Ok(Exit::Fine)
}

fn list_entries(
    client: &ControlClient,
    kind: &str,
    titles: [&str; 2],
    out: &mut Output,
) -> Result<Exit, Failure> {
    let [name, what] = titles;
    let mut table = Table::titled(&[name, what, "who", "when", "why"]);
    for entry in client.entries(kind, "")? {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        table.row([
            Cell::new(text("name")),
            Cell::new(effect(&entry)),
            Cell::new(text("set_by")),
            Cell::new(text("set_at")),
            Cell::new(text("why")),
        ]);
    }
    table.write(out, "")?;
    Ok(Exit::Fine)
}

pub(super) fn status(server: &ControlServerArgs, out: &mut Output) -> Result<Exit, Failure> {
    write_json(out, &ControlClient::new(server)?.get("/v1/status")?)?;
    Ok(Exit::Fine)
}

pub(super) fn draft(command: DraftCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        DraftCommand::List(server) => {
            let found = ControlClient::new(&server)?.get("/v1/drafts")?;
            let mut table = Table::titled(&["draft", "state", "author", "when", "changes", "why"]);
            for draft in found["drafts"].as_array().into_iter().flatten() {
                let text = |field: &str| draft[field].as_str().unwrap_or_default();
                let changes = draft["changes"].as_array().map_or(0, Vec::len);
                table.row([
                    Cell::new(text("name")),
                    Cell::new(text("state")),
                    Cell::new(text("author")),
                    Cell::new(text("at")),
                    Cell::new(changes).right(),
                    Cell::new(text("why")),
                ]);
            }
            table.write(out, "")?;
        }
        DraftCommand::Show { server, name } => {
            let client = ControlClient::new(&server)?;
            write_json(out, &client.get(&format!("/v1/drafts/{}", encode(&name)))?)?;
        }
        DraftCommand::Review { server, name, note, approve } => {
            let client = ControlClient::new(&server)?;
            let body = json!({ "text": note, "approve": approve });
            let draft = client.post(&format!("/v1/drafts/{}/review", encode(&name)), &body)?;
            writeln!(out, "draft `{name}` is {}", draft["state"].as_str().unwrap_or_default())?;
        }
        DraftCommand::Publish { server, name } => {
            let client = ControlClient::new(&server)?;
            let path = format!("/v1/drafts/{}/publish", encode(&name));
            let done = client.ask(Method::POST, &path, None, &[])?;
            writeln!(out, "version {}: {} entries changed", done["version"], done["changed"])?;
        }
    }
    Ok(Exit::Fine)
}

pub(super) fn audit(command: AuditCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        AuditCommand::List { server, after, limit } => {
            let client = ControlClient::new(&server)?;
            let found = client.get(&format!("/v1/audit?after={after}&limit={limit}"))?;
            let mut table = Table::titled(&["row", "when", "who", "action", "object", "outcome"]);
            for row in found["audit"].as_array().into_iter().flatten() {
                let text = |field: &str| row[field].as_str().unwrap_or_default();
                table.row([
                    Cell::new(&row["sequence"]).right(),
                    Cell::new(text("at")),
                    Cell::new(text("actor")),
                    Cell::new(text("action")),
                    Cell::new(text("object")),
                    Cell::new(text("outcome")),
                ]);
            }
            table.write(out, "")?;
            Ok(Exit::Fine)
        }
        AuditCommand::Verify(server) => {
            let check = ControlClient::new(&server)?.get("/v1/audit/verify")?;
            match check["broken"].as_array().map(Vec::as_slice) {
                Some([row, problem]) => {
                    writeln!(out, "row {row}: {}", problem.as_str().unwrap_or_default())?;
                    Ok(Exit::Problems)
                }
                _ => {
                    let head = check["head"].as_str().unwrap_or_default();
                    writeln!(
                        out,
                        "{} rows are as they were written; the newest is {head}",
                        check["rows"]
                    )?;
                    Ok(Exit::Fine)
                }
            }
        }
    }
}

fn new_api_key(
    server: &ControlServerArgs,
    why: &str,
    owner: &str,
    plan: &str,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let client = ControlClient::new(server)?;
    let key = NewApiKey::generate().map_err(|message| Complaint::new(message, "try again"))?;
    let body = json!({ "body": { "owner": owner, "plan": plan }, "why": why });
    let path = entry_path("key", "", &key.hash);
    client.ask(Method::PUT, &path, Some(&body), &[("if-none-match", "*")])?;
    writeln!(out, "key:  {}", key.key)?;
    writeln!(out, "hash: {}", key.hash)?;
    Ok(Exit::Fine)
}

fn revoke_api_keys(
    server: &ControlServerArgs,
    why: &str,
    hash: &str,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if hash.len() < 8 {
        let help = "give at least 8 digits; `tidegate control keys list` shows them";
        return Err(Complaint::new(format!("`{hash}` is too short for a hash"), help).into());
    }
    let client = ControlClient::new(server)?;
    let found = client.entries("key", &format!("&prefix={}", encode(hash)))?;
    if found.is_empty() {
        let help = "`tidegate control keys list` shows the keys";
        return Err(Complaint::new(format!("no key has the hash `{hash}`"), help).into());
    }
    let removal = |key: &Value| json!({ "kind": "key", "name": key["name"], "remove": true });
    let changes: Vec<Value> = found.iter().map(removal).collect();
    let done = client.post("/v1/changes", &json!({ "changes": changes, "why": why }))?;
    for key in &found {
        write_difference(out, key, &Value::Null)?;
    }
    writeln!(out, "version {}", done["version"])?;
    Ok(Exit::Fine)
}

pub(super) fn keys(command: ControlKeysCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        ControlKeysCommand::New { server, why, owner, plan } => {
            new_api_key(&server, &why.why, &owner, &plan, out)
        }
        ControlKeysCommand::List(server) => {
            list_entries(&ControlClient::new(&server)?, "key", ["hash", "owner"], out)
        }
        ControlKeysCommand::Revoke { server, why, hash } => {
            revoke_api_keys(&server, &why.why, &hash, out)
        }
        ControlKeysCommand::Rotate { data_dir, finish } => {
            let keys = KeyFiles::of(&data_dir);
            if finish {
                let public = keys.finish_rotation().map_err(|error| failed(&error))?;
                writeln!(out, "{public} signs after a restart of `tidegate control serve`")?;
                writeln!(
                    out,
                    "once every server runs a snapshot of it, remove the old key from the join files"
                )?;
            } else {
                let public = keys.next().map_err(|error| failed(&error))?;
                writeln!(out, "next key: {public}")?;
                writeln!(
                    out,
                    "add it to `keys` of every join file, restart the servers, then run it with --finish"
                )?;
            }
            Ok(Exit::Fine)
        }
        ControlKeysCommand::Certify { data_dir, epoch_key, cell, epoch } => {
            let keys = KeyFiles::of(&data_dir);
            let path = epoch_key.unwrap_or_else(|| keys.path().join("epoch.key"));
            let text = fs::read_to_string(&path).map_err(|error| {
                let message = format!("`{}` cannot be read: {error}", path.display());
                Complaint::new(message, "give the file with the epoch key: `--epoch-key`")
            })?;
            let key: SigningKey = text.trim().parse().map_err(|error| {
                Complaint::new(
                    format!("`{}`: {error}", path.display()),
                    "give the file with the epoch key",
                )
            })?;
            keys.certify(&key, &cell, epoch).map_err(|error| failed(&error))?;
            writeln!(
                out,
                "the signing key may sign in epoch {epoch} of `{cell}`, and no other key"
            )?;
            Ok(Exit::Fine)
        }
    }
}

pub(super) fn token(command: TokenCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Add { server, name, roles, owner, expires } => {
            let client = ControlClient::new(&server)?;
            let body = json!({ "name": name, "roles": roles, "owner": owner, "expires": expires });
            let made = client.post("/v1/tokens", &body)?;
            writeln!(out, "token: {}", made["secret"].as_str().unwrap_or_default())?;
        }
        TokenCommand::List(server) => {
            let found = ControlClient::new(&server)?.get("/v1/tokens")?;
            let mut table = Table::titled(&["token", "roles", "owner", "expires", "made by"]);
            for token in found["tokens"].as_array().into_iter().flatten() {
                let text = |field: &str| Cell::new(token[field].as_str().unwrap_or_default());
                table.row(["name", "roles", "owner", "expires", "made_by"].map(text));
            }
            table.write(out, "")?;
        }
        TokenCommand::Revoke { server, name } => {
            let client = ControlClient::new(&server)?;
            let answer = client.exchange(
                Method::DELETE,
                &format!("/v1/tokens/{}", encode(&name)),
                None,
                &[],
            )?;
            if answer.status != StatusCode::OK {
                return Err(refusal(&answer).into());
            }
            writeln!(out, "`{name}` is revoked")?;
        }
    }
    Ok(Exit::Fine)
}

pub(super) fn allow(args: &AllowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let body = json!({ "guards": args.guards, "why": args.why });
    let done = client.post("/v1/publisher/allow", &body)?;
    writeln!(
        out,
        "{} overruled from version {} on, until a version is published",
        args.guards.join(", "),
        done["version"]
    )?;
    Ok(Exit::Fine)
}

pub(super) fn epoch(args: &EpochArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let body = json!({ "at_least": args.at_least, "why": args.why });
    let done = client.post("/v1/publisher/epoch", &body)?;
    writeln!(out, "epoch {}", done["epoch"])?;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_names_its_target() {
        let body = |scope: &str| switch_body(scope, "off").unwrap();
        assert_eq!(body("all"), json!({"target": "all", "mode": "off"}));
        assert_eq!(body("limiter:rate")["limiter"], "rate");
        let limit = body("limit:api:user.path#daily");
        assert_eq!(
            (&limit["domain"], &limit["path"], &limit["limit"]),
            (&json!("api"), &json!("user.path"), &json!("daily"))
        );
        for wrong in ["", "everything", "limit:api", "cell:1"] {
            assert!(switch_body(wrong, "off").is_err(), "{wrong}");
        }
    }
}
