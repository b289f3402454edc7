//! Reloads every second, some with invalid rules.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::http1::Client;
use crate::process::Doors;
use crate::tally::{Tally, add};

const EVERY: Duration = Duration::from_secs(1);

/// Every so many reloads are bad.
const BAD_EVERY: u64 = 4;

/// Every so many reloads the rules in place are looked at.
const LOOK_EVERY: u64 = 8;

/// Valid rules that change each time.
pub(crate) fn good(turn: u64) -> String {
    let mut text = format!(
        "domain: soak\nmetadata: {{turn: '{turn}'}}\ndescriptors:\n  - key: user\n    \
         rate_limit: {{name: calls, unit: hour, requests_per_unit: {}}}\n",
        100 + turn % 7
    );
    text += "  - key: hot\n    rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 50, burst: 100}\n";
    text += "  - key: log\n    detailed_metric: true\n    rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 20}\n";
    text += "  - key: job\n    rate_limit: {algorithm: concurrency, requests_per_unit: 3, time_to_live: 2s}\n";
    for rule in 0..turn % 50 {
        text += &format!(
            "  - key: path\n    value: /turn/{turn}/{rule}\n    rate_limit: {{unit: hour, requests_per_unit: 5}}\n"
        );
    }
    text
}

/// Invalid rules.
fn bad(turn: u64) -> String {
    match turn % 4 {
        0 => "domain: soak\ndescriptors: [".repeat(200),
        1 => "[".repeat(100_000),
        2 => format!("domain: soak\ndescriptors:\n{}", "  - {wrong: 1}\n".repeat(2_000)),
        _ => String::new(),
    }
}

/// Replaces the rules by a rename, so that no part of them is read.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("aside");
    fs::write(&aside, text)?;
    fs::rename(&aside, path)
}

pub(crate) fn start(doors: &Doors, path: PathBuf, tally: &Rc<Tally>) -> JoinHandle<()> {
    let (http, tally) = (doors.http.clone(), Rc::clone(tally));
    spawn_local(async move {
        let mut seen = String::new();
        for turn in 1.. {
            sleep(EVERY).await;
            let is_bad = turn % BAD_EVERY == 0;
            let text = if is_bad { bad(turn / BAD_EVERY) } else { good(turn) };
            if let Err(error) = write(&path, &text) {
                tally.fault(format_args!("rules cannot be written: {error}"));
                return;
            }
            add(if is_bad { &tally.bad_reloads } else { &tally.reloads }, 1);
            if turn % LOOK_EVERY == LOOK_EVERY - 1 {
                // Two looks are eight good and bad changes apart.
                match version(&http).await {
                    Ok(version) if version != seen => seen = version,
                    Ok(_) => tally.fault("changed rules do not arrive"),
                    Err(error) => tally.fault(format_args!("/v1/rules: {error}")),
                }
            }
        }
    })
}

/// The version of the loaded rules.
async fn version(address: &str) -> io::Result<String> {
    let answer = Client::connect(address).await?.get("/v1/rules").await?;
    let value: Value = serde_json::from_slice(&answer.body).map_err(io::Error::other)?;
    Ok(value["version"].to_string())
}
