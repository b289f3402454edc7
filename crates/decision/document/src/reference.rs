//! Declarations as tables, for people.

use std::fmt::Write as _;

use crate::mapping::{Key, MappingType, Presence};

/// The tables of a mapping and of all below it, as Markdown.
pub fn reference(root: &'static MappingType) -> String {
    let mut text = String::new();
    for mapping in root.reachable() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## `{}`: {}\n\n", mapping.name, mapping.title);
        text += "| Key | Takes | Default | Meaning |\n|---|---|---|---|\n";
        for Key { name, about, presence, .. } in mapping.keys {
            let takes = mapping.key(name).map(|key| key.shape().words()).unwrap_or_default();
            let default = match presence {
                Presence::Required => "required".to_owned(),
                Presence::Optional => "none".to_owned(),
                Presence::Default(default) => format!("`{default}`"),
            };
            let _ = writeln!(text, "| `{name}` | {takes} | {default} | {about} |");
        }
    }
    text
}
