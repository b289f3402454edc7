//! The vectors of the client libraries are what this crate decides.

mod generate;

use std::fs;
use std::path::Path;

use serde_json::Value;

#[test]
fn the_vectors_of_the_client_libraries_are_up_to_date() {
    for (name, vectors) in
        [("fields", generate::field_vectors()), ("pacing", generate::pacing_vectors())]
    {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../sdk/vectors/{name}.json"));
        let text = fs::read_to_string(path).expect("the vectors are there");
        let kept: Value = serde_json::from_str(&text).expect("the vectors are JSON");
        assert!(kept == vectors, "run `cargo run -p tidegate-client --example bless_vectors`");
    }
}
