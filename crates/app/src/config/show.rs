//! `tidegate config show` and `config env`: the values in force with their origins, and the variables.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use tidegate_document::{Entry, Field, OFF, PlainValue, Secrecy};

use super::check::write_notes;
use super::fields::Config;
use super::layers::{LoadedConfig, Origin, variable_of};
use super::load::load;
use crate::cli::{ConfigShowArgs, ShowFormat};
use crate::exit::{Exit, Failure};
use crate::output::{Cell, Output, Table, style, write_json};

pub(crate) fn run(args: &ConfigShowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let loaded = load(&args.layers)?;
    match args.format {
        ShowFormat::Text => write_table(&loaded, out)?,
        ShowFormat::Json => write_json(out, &rows(&loaded))?,
        ShowFormat::Yaml => out.write_all(yaml(&loaded).as_bytes())?,
    }
    Ok(Exit::Fine)
}

/// Lists the environment variables and their fields.
pub(crate) fn run_env(out: &mut Output) -> Result<Exit, Failure> {
    let mut table = Table::titled(&["variable", "field", "takes"]);
    let mut config = Config::default();
    for field in config.fields() {
        let cells = [variable_of(&field.path), field.path.clone(), field.words()];
        table.row(cells.into_iter().map(Cell::new));
    }
    table.write(out, "")?;
    Ok(Exit::Fine)
}

/// One field in force.
#[derive(Debug, Serialize)]
struct Row {
    key: String,
    value: Value,
    origin: String,
}

fn rows(loaded: &LoadedConfig) -> Vec<Row> {
    let mut config = loaded.config.clone();
    let row = |field: Field<'_>| {
        let origin = loaded.origins.get(&field.path).unwrap_or(&Origin::Default).to_string();
        Row { key: field.path, value: field.value.shown(), origin }
    };
    config.fields().map(row).collect()
}

fn write_table(loaded: &LoadedConfig, out: &mut Output) -> io::Result<()> {
    let mut table = Table::titled(&["key", "value", "from"]);
    for Row { key, value, origin } in rows(loaded) {
        let faint = if origin == "default" { style::FAINT } else { style::PLAIN };
        table.row([Cell::new(key), Cell::new(plain(&value)), Cell::new(origin).styled(faint)]);
    }
    table.write(out, "")?;
    if !loaded.notes.is_empty() {
        writeln!(out)?;
    }
    write_notes(out, &loaded.notes)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => OFF.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A file with the same effect, with the origins as comments and without secrets.
pub(crate) fn yaml(loaded: &LoadedConfig) -> String {
    let mut config = loaded.config.clone();
    let mut text = String::new();
    for entry in config.entries() {
        let (path, mark, value) = match entry {
            Entry::Section { path, .. } => (path, "", ":".to_owned()),
            Entry::Field(field) => {
                let origin = loaded.origins.get(&field.path).unwrap_or(&Origin::Default);
                let origin = origin.to_string().replace(char::is_control, " ");
                let value = field.value.shown();
                if field.value.secrecy() == Secrecy::Secret && !value.is_null() {
                    (field.path, "# ", format!(" is set  # {origin}"))
                } else {
                    (field.path, "", format!(": {}  # {origin}", yaml_value(&value)))
                }
            }
        };
        let (indent, name) = indent_and_name(&path);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{mark}{name}{value}");
    }
    text
}

/// The indentation of a path, and its last key.
pub(super) fn indent_and_name(path: &str) -> (String, &str) {
    let name = path.rsplit('.').next().unwrap_or(path);
    ("  ".repeat(path.matches('.').count()), name)
}

/// A value as it is written in a file.
pub(super) fn yaml_value(value: &Value) -> String {
    match value {
        Value::Null => OFF.to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(yaml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => {
            let tame = |char: char| char.is_ascii_alphanumeric() || "/._-%".contains(char);
            let starts_well =
                text.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '/');
            let bare =
                starts_well && text.chars().all(tame) && PlainValue::of(text) == PlainValue::Text;
            if bare { text.clone() } else { value.to_string() }
        }
        other => other.to_string(),
    }
}

/// A default as reference pages show it.
pub(super) fn default_in_words(default: &str) -> String {
    if default.is_empty() { "none".to_owned() } else { format!("`{default}`") }
}
