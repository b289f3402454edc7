//! `tidegate config reference`: the documents that are made from the declarations.
//!
//! Prints docs/configuration.md, docs/compat-variables.md, docs/gateway-reference.md and examples/tidegate.yaml; a test
//! compares them.

use std::fmt::Write as _;
use std::io::Write;

use tidegate_document::{Entry, Field};

use super::compat::{Effect, Variable};
use super::compat::{OTHER_DEFAULTS, VARIABLES};
use super::fields::Config;
use super::layers::variable_of;
use super::show::{default_in_words, indent_and_name, yaml_value};
use crate::cli::ReferencePart;
use crate::exit::{Exit, Failure};
use crate::output::Output;

const FIELDS_INTRODUCTION: &str = "\
# Configuration

<!-- Made by `tidegate config reference fields`; a test compares. -->

`tidegate serve` reads one YAML file: `--config PATH`, or `TIDEGATE_CONFIG`, or `tidegate.yaml` in the working
directory. The file is optional: every field has a default. [examples/tidegate.yaml](../examples/tidegate.yaml) has all
fields.

Later layers win over earlier ones: defaults; with `compat: envoy-ratelimit`, the defaults and
[the environment variables of envoyproxy/ratelimit](compat-variables.md); the file; environment variables `TIDEGATE_…`;
flags. Lists are replaced, never merged. In a variable and after a flag, commas separate the items of a list. An empty
variable counts as not set.

Flags: `--config`, `--rules`, `--grpc`, `--http`, `--gateway`, `--gateway-listen`, `--debug-listen`, `--log-level`,
`--log-format`, `--workers`, `--compat`, and `--set KEY=VALUE` for every other field.

`tidegate config check` reports all problems, `config show` prints the values in force and where each comes from,
`config schema` prints a JSON Schema for editors: see [the command line](cli.md#tidegate-config).

Durations are whole numbers with `ms`, `s`, `m`, `h` or `d`, such as `1h30m`. Sizes are whole numbers with `B`, `KiB`,
`MiB` or `GiB`. `off` means \"not set\".
";

const GATEWAY_INTRODUCTION: &str = "\
# The gateway's document

<!-- Made by `tidegate config reference gateway`; a test compares. -->

A YAML document with the routes and upstreams of [the gateway](gateway.md), named by `gateway.file` of
[the configuration](configuration.md) or by `--gateway FILE`. [examples/gateway](../examples/gateway/gateway.yaml) is one
to begin with.

`tidegate config check` reports all its problems with their locations; `tidegate config schema gateway` prints a JSON
Schema for editors. It is read when the service starts, and [again when it changes](gateway.md#while-it-runs).

Durations and sizes are written as in the configuration. Paths are relative to the working directory of the service. A
list of texts with one item can be written as that text. YAML anchors and merges (`<<`) work.
";

const COMPAT_INTRODUCTION: &str = "\
# The environment variables of envoyproxy/ratelimit

<!-- Made by `tidegate config reference compat`; a test compares. -->

With `compat: envoy-ratelimit` in the file, `TIDEGATE_COMPAT=envoy-ratelimit` or `--compat`, Tidegate reads the
environment of envoyproxy/ratelimit. The defaults of envoyproxy/ratelimit then apply to every field that one of its
variables sets. [Our own file, variables and flags](configuration.md) win over them. Without `compat`, these variables
are ignored.

Booleans and durations are read as Go reads them. A bad value is an error that names its variable. An empty variable
counts as not set. The log at the start lists each variable that is set and has no effect, with the reason.

Two defaults differ on purpose: while `DEBUG_HOST` is not set, only this machine can connect to the debug port; and
counters are kept in memory, so Redis is optional.
";

const EXAMPLE_INTRODUCTION: &str = "\
# Every field with its default. Remove the `# ` before a field to change it.
# Made by `tidegate config reference example`; docs/configuration.md explains the fields.
";

pub(crate) fn run(part: ReferencePart, out: &mut Output) -> Result<Exit, Failure> {
    let text = match part {
        ReferencePart::Fields => reference(),
        ReferencePart::Compat => compat_reference(),
        ReferencePart::Example => example(),
        ReferencePart::Gateway => gateway_reference(),
    };
    out.write_all(text.as_bytes())?;
    Ok(Exit::Fine)
}

/// The reference of all fields, as Markdown.
pub fn reference() -> String {
    const TITLES: &str =
        "\n| Key | Takes | Default | Variable | Meaning |\n|---|---|---|---|---|\n";
    let mut config = Config::default();
    let mut text = format!("{FIELDS_INTRODUCTION}\n## Top level\n{TITLES}");
    let entries = config.entries();
    for field in fields_in(&entries, "") {
        row(&mut text, field);
    }
    for entry in &entries {
        let Entry::Section { path, about } = entry else { continue };
        let _ = write!(text, "\n## `{path}`\n\n{about}\n{TITLES}");
        for field in fields_in(&entries, path) {
            row(&mut text, field);
        }
    }
    // A section that holds only sections has no table.
    text.replace(&format!("{TITLES}\n##"), "\n##")
}

/// The reference of the gateway's document, as Markdown.
pub fn gateway_reference() -> String {
    format!("{GATEWAY_INTRODUCTION}{}", tidegate_gateway::gateway_reference())
}

/// The fields right below a section.
fn fields_in<'e, 'c>(
    entries: &'e [Entry<'c>],
    section: &'e str,
) -> impl Iterator<Item = &'e Field<'c>> {
    entries.iter().filter_map(move |entry| match entry {
        Entry::Field(field) => {
            let parent = field.path.rsplit_once('.').map_or("", |(parent, _)| parent);
            (parent == section).then_some(field)
        }
        Entry::Section { .. } => None,
    })
}

fn row(text: &mut String, field: &Field<'_>) {
    let (_, name) = indent_and_name(&field.path);
    let takes = field.takes().replace('|', "\\|");
    let default = default_in_words(field.default());
    let about = field.key.about.replace('|', "\\|");
    let variable = variable_of(&field.path);
    let _ = writeln!(text, "| `{name}` | {takes} | {default} | `{variable}` | {about} |");
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
            Effect::None(why) => format!("no effect: {why}"),
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
        let _ = match entry {
            Entry::Section { path, about } => {
                let (indent, name) = indent_and_name(&path);
                let gap = if indent.is_empty() { "\n" } else { "" };
                writeln!(text, "{gap}{indent}## {about}\n{indent}{name}:")
            }
            Entry::Field(field) => {
                let (indent, name) = indent_and_name(&field.path);
                let gap = if indent.is_empty() { "\n" } else { "" };
                let value = yaml_value(&field.value.shown());
                writeln!(text, "{gap}{indent}## {}\n{indent}# {name}: {value}", field.key.about)
            }
        };
    }
    text
}
