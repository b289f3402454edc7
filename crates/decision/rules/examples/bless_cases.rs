//! Rewrites the expected diagnostics of every case, for review.

#[path = "../tests/support/cases.rs"]
mod cases;

use std::fs;

fn main() -> std::io::Result<()> {
    for kind in ["valid", "invalid", "semantic"] {
        for case in cases::cases(kind) {
            let said = cases::say(&case);
            if said.accepted != (kind == "valid") {
                println!("{kind}/{}: accepted: {}", case.name, said.accepted);
            }
            if said.text.is_empty() {
                let _ = fs::remove_file(&case.expected);
            } else {
                fs::write(&case.expected, said.text)?;
            }
        }
    }
    Ok(())
}
