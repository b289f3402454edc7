//! Damages snapshots in every way, and counts those that are accepted. `damaged [FILES]`

use std::collections::BTreeMap;
use std::error::Error;

use tidegate_row_table::{NewRow, Rows, TableName};
use tidegate_snapshot_file::{
    CellClass, EncodedContent, RulesPart, SigningKey, SnapshotContent, Stamp, Trust, read,
};

const CLASS: CellClass = CellClass::Small;

fn content(key: u64) -> Result<EncodedContent, Box<dyn Error>> {
    let clients = TableName { domain: "api".to_owned(), table: "clients".to_owned() };
    let values: Vec<String> = (0..CLASS.rows_max()).map(|number| format!("c{number}")).collect();
    let new = |value| NewRow { table: &clients, value, terms: "gold", until: None };
    let new: Vec<NewRow<'_>> = values.iter().map(|value| new(value)).collect();
    let rows = Rows::build(CLASS.rows_max(), key, &new)?;
    let rules = RulesPart { documents: Vec::new(), terms: rows.terms };
    let content = SnapshotContent { rules, table: rows.table, ..SnapshotContent::default() };
    Ok(EncodedContent::new(CLASS, &content)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let files: u64 = std::env::args().nth(1).map_or(Ok(10_000), |number| number.parse())?;
    let (ours, theirs) = (SigningKey::generate()?, SigningKey::generate()?);
    let contents = [content(1)?, content(2)?];
    let sign = |content: usize, cell: &str, ring: &str, sequence, key: &SigningKey| {
        let (cell, ring) = (cell.to_owned(), ring.to_owned());
        let stamp = Stamp { cell, ring, epoch: 1, sequence, ..Stamp::default() };
        contents[content].sign(&stamp, key)
    };
    let good = sign(0, "eu", "all", 10, &ours)?;
    let newer = sign(1, "eu", "all", 11, &ours)?;
    let wrong = [
        ("old", sign(0, "eu", "all", 9, &ours)?),
        ("forged", sign(1, "eu", "all", 12, &theirs)?),
        ("foreign cell", sign(1, "us", "all", 12, &ours)?),
        ("foreign ring", sign(1, "eu", "canary", 12, &ours)?),
    ];
    let (cell, ring) = ("eu".to_owned(), Some("all".to_owned()));
    let trust = Trust { cell, ring, keys: vec![ours.public_key()], epoch_key: None };
    let last = read(&mut good.as_slice(), &trust, None, None)?.position();
    read(&mut newer.as_slice(), &trust, Some(&last), None)?;

    let mut random = 1_u64;
    let mut below = |max: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(random >> 33).unwrap_or(0) % max
    };
    let mut said: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut accepted = 0;
    for number in 0..files {
        let (kind, file) = match number % 8 {
            0..4 => {
                let mut file = newer.clone();
                // Half of them in the head, where a byte means most.
                let at = below(if number % 2 == 0 { 4096 } else { file.len() });
                file[at] ^= 1 << below(8);
                ("one bit flipped", file)
            }
            4 => ("cut", newer[..below(newer.len())].to_vec()),
            5 => {
                let at = 1 + below(newer.len() - 1);
                ("two files mixed", [&good[..at], &newer[at..]].concat())
            }
            6 => {
                let (kind, file) = &wrong[below(wrong.len())];
                (*kind, file.clone())
            }
            _ => ("grown", [newer.as_slice(), &vec![0; 1 + below(1_000)]].concat()),
        };
        let outcome = match read(&mut file.as_slice(), &trust, Some(&last), None) {
            // The mixture can be one of the two files.
            Ok(_) if file == newer || file == good => "a whole file",
            Ok(_) => {
                accepted += 1;
                "ACCEPTED"
            }
            Err(error) => error.reason(),
        };
        *said.entry((kind, outcome)).or_default() += 1;
    }
    for ((kind, outcome), count) in said {
        println!("{kind:16} {outcome:12} {count}");
    }
    println!("accepted of {files}: {accepted}");
    Ok(())
}
