//! Memory per key: how much a fresh process grows.
//!
//! The figure is the resident memory, not the allocated bytes, so that it includes
//! unused room in tables, allocator overhead and the key strings.

use std::process;

use anyhow::{Context, ensure};

use crate::child;
use crate::contestant::{ContestantName, ensure_holds};
use crate::goal::Goal;
use crate::keys::KeyBuffer;
use crate::processor::resident_bytes;
use crate::scale::Scale;
use crate::table::{Table, count};

const KEY_LENGTHS: [usize; 2] = [16, 64];
const PER_KEY: Goal = Goal::at_most_of(48.0, " B");
const AGAINST_PEERS: Goal = Goal::at_most(0.5);

pub(crate) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "keys",
        "key length",
        "tidegate B",
        "governor B",
        "throttlecrab B",
        "tidegate / better peer",
        "goals",
    ];
    let mut table = Table::new("2. Memory per key (`memory`)", &columns);
    for (place, keys) in scale.memory_keys.iter().copied().enumerate() {
        for key_bytes in KEY_LENGTHS {
            eprintln!("memory: {} keys of {key_bytes} bytes", count(keys));
            let ours = bytes_per_key(ContestantName::Tidegate, keys, key_bytes)?;
            let governor = bytes_per_key(ContestantName::Governor, keys, key_bytes)?;
            // Slow, and always larger: the smallest table is enough.
            let throttlecrab = match place {
                0 => Some(bytes_per_key(ContestantName::Throttlecrab, keys, key_bytes)?),
                _ => None,
            };
            let ratio = ours / throttlecrab.unwrap_or(f64::INFINITY).min(governor);
            table.row([
                count(keys),
                key_bytes.to_string(),
                format!("{ours:.1}"),
                format!("{governor:.1}"),
                throttlecrab.map_or_else(|| "–".to_owned(), |bytes| format!("{bytes:.1}")),
                format!("{ratio:.2}"),
                format!("{}; {}", AGAINST_PEERS.judge(ratio), PER_KEY.judge(ours)),
            ]);
        }
    }
    table.note("Growth of the resident memory of a fresh process, divided by the number of keys.");
    Ok(table)
}

fn bytes_per_key(name: ContestantName, keys: u64, key_bytes: usize) -> anyhow::Result<f64> {
    let arguments =
        ["memory".to_owned(), name.to_string(), keys.to_string(), key_bytes.to_string()];
    let output = String::from_utf8(child::output_of(&arguments)?)?;
    let grown: u64 = output.trim().parse().context("the measuring process printed no number")?;
    Ok(grown as f64 / keys as f64)
}

/// Prints by how many bytes this process grows with so many keys.
pub(crate) fn measure(name: ContestantName, keys: u64, key_bytes: usize) -> anyhow::Result<()> {
    let mut key = KeyBuffer::default();
    // Excludes memory that is allocated on first use, whatever the number of keys.
    key.number(0, key_bytes);
    let before = resident_bytes(process::id())?;
    let contestant = name.spacious()?;
    for number in 0..keys {
        key.number(number, key_bytes);
        ensure!(contestant.admits(&key), "{name} refused key {number}");
    }
    let after = resident_bytes(process::id())?;
    ensure_holds(&*contestant, keys)?;
    println!("{}", after.saturating_sub(before));
    Ok(())
}
