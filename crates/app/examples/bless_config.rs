//! Writes the diagnostics of the broken configurations and the documents that
//! are generated from the declaration, for review.

#[path = "../tests/support/config_cases.rs"]
mod config_cases;

use std::fs;

use config_cases::{cases, documents, root, say};

fn main() -> std::io::Result<()> {
    for case in cases() {
        match say(&case) {
            Some(text) => fs::write(&case.expected, text)?,
            None => println!("{} is accepted", case.name),
        }
    }
    for (path, text) in documents() {
        fs::write(root().join(path), text)?;
    }
    Ok(())
}
