//! The document in tables, for people.

use std::fmt::Write as _;

use super::place::Place;
use super::vocabulary::{Key, Without, keys_of};

/// The tables of all keys, as Markdown; docs/gateway-reference.md has them.
pub fn gateway_reference() -> String {
    let mut text = String::new();
    for place in Place::ALL {
        let name = place.name();
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## `{name}`: {}\n\n", place.title());
        text += "| Key | Takes | Default | Meaning |\n|---|---|---|---|\n";
        for key in keys_of(place) {
            row(&mut text, key);
        }
    }
    text
}

fn row(text: &mut String, key: &Key) {
    let off = if key.off { ", or `off`" } else { "" };
    let takes = format!("{}{off}", key.shape.words());
    let without = match key.without {
        Without::Wrong => "needed".to_owned(),
        Without::Nothing => "none".to_owned(),
        Without::Default(default) => format!("`{default}`"),
    };
    let _ = writeln!(text, "| `{}` | {takes} | {without} | {} |", key.name, key.about);
}
