//! `tidegate config reference`: the documents that are made from the declarations.
//!
//! The introductions are Markdown files. Prints docs/configuration.md, docs/compat-variables.md, docs/gateway-reference.md,
//! docs/forward-reference.md and examples/tidegate.yaml; a test compares them.

use std::fmt::Write as _;

use tidegate_document::Entry;

use super::compat::{Effect, OTHER_DEFAULTS, VARIABLES, Variable};
use super::fields::Config;
use super::layers::variable_of;
use super::show::{default_in_words, indent_and_name, yaml_value};
use crate::cli::ReferencePart;

const FIELDS_INTRODUCTION: &str = include_str!("reference/configuration.md");

const GATEWAY_INTRODUCTION: &str = include_str!("reference/gateway-reference.md");

const FORWARD_INTRODUCTION: &str = include_str!("reference/forward-reference.md");

const COMPAT_INTRODUCTION: &str = include_str!("reference/compat-variables.md");

const EXAMPLE_INTRODUCTION: &str = "\
# Every field with its default. Remove the `# ` before a field to change it.
# Made by `tidegate config reference example`; docs/configuration.md explains the fields.
";

/// A document.
pub(crate) fn text(part: ReferencePart) -> String {
    match part {
        ReferencePart::Fields => reference(),
        ReferencePart::Compat => compat_reference(),
        ReferencePart::Example => example(),
        ReferencePart::Gateway => gateway_reference(),
        ReferencePart::Forward => forward_reference(),
    }
}

/// The reference of all fields, as Markdown.
pub fn reference() -> String {
    const TITLES: &str =
        "\n| Key | Takes | Default | Variable | Meaning |\n|---|---|---|---|---|\n";
    let mut config = Config::default();
    let mut text = format!("{FIELDS_INTRODUCTION}\n## Top level\n{TITLES}");
    let entries = config.entries();
    write_rows(&mut text, &entries, "");
    for entry in &entries {
        let Entry::Section { path, about } = entry else { continue };
        let _ = write!(text, "\n## `{path}`\n\n{about}\n{TITLES}");
        write_rows(&mut text, &entries, path);
    }
    // A section that holds only sections has no table.
    text.replace(&format!("{TITLES}\n##"), "\n##")
}

/// The reference of the gateway's document, as Markdown.
pub fn gateway_reference() -> String {
    format!("{GATEWAY_INTRODUCTION}{}", tidegate_gateway::gateway_reference())
}

/// The reference of the forwarder's document, as Markdown.
pub fn forward_reference() -> String {
    format!("{FORWARD_INTRODUCTION}{}", tidegate_forwarder::forward_reference())
}

/// Writes the fields directly in a section.
fn write_rows(text: &mut String, entries: &[Entry<'_>], section: &str) {
    for entry in entries {
        let Entry::Field(field) = entry else { continue };
        let (parent, name) = field.path.rsplit_once('.').unwrap_or(("", &field.path));
        if parent == section {
            let takes = field.takes().replace('|', "\\|");
            let default = default_in_words(field.default());
            let about = field.key.about.replace('|', "\\|");
            let variable = variable_of(&field.path);
            let _ = writeln!(text, "| `{name}` | {takes} | {default} | `{variable}` | {about} |");
        }
    }
}

/// The reference of upstream's variables, as Markdown.
pub fn compat_reference() -> String {
    let mut text = COMPAT_INTRODUCTION.to_owned();
    let mut group = "";
    for Variable { group: of, name, default, kind, effect } in VARIABLES {
        if *of != group {
            group = of;
            let _ =
                write!(text, "\n## {group}\n\n| Variable | Kind | Upstream's default | Here |\n");
            text += "|---|---|---|---|\n";
        }
        let here = match effect {
            Effect::Sets(path) => format!("sets `{path}`"),
            Effect::Special(about) => (*about).to_owned(),
            Effect::Nothing(why) => format!("no effect: {why}"),
        };
        let kind = kind.words();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {here} |", default_in_words(default));
    }
    text += "\n## Defaults without a variable\n\n| Field | Under compat | Why |\n|---|---|---|\n";
    for (path, value, why) in OTHER_DEFAULTS {
        let _ = writeln!(text, "| `{path}` | `{value}` | {why} |");
    }
    text
}

/// A file with every field as a comment.
pub fn example() -> String {
    let mut config = Config::default();
    let mut text = EXAMPLE_INTRODUCTION.to_owned();
    for entry in config.entries() {
        let (path, about, mark, value) = match entry {
            Entry::Section { path, about } => (path, about, "", String::new()),
            Entry::Field(field) => {
                let value = format!(" {}", yaml_value(&field.value.shown()));
                (field.path, field.key.about, "# ", value)
            }
        };
        let (indent, name) = indent_and_name(&path);
        let gap = if indent.is_empty() { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{indent}## {about}\n{indent}{mark}{name}:{value}");
    }
    text
}
