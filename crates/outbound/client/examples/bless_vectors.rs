//! Writes the vectors that the client libraries in other languages are tested with.
//!
//!     cargo run -p tidegate-client --example bless_vectors

#[path = "../tests/vectors/generate.rs"]
mod generate;

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../sdk/vectors");
    fs::create_dir_all(&folder)?;
    for (name, vectors) in
        [("fields", generate::field_vectors()), ("pacing", generate::pacing_vectors())]
    {
        fs::write(folder.join(format!("{name}.json")), format!("{vectors}\n"))?;
    }
    Ok(())
}
