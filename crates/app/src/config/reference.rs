//! `tidegate config reference`: the documents that are made from the declaration.
//!
//! docs/configuration.md, docs/compat-variables.md, docs/gateway-reference.md and
//! examples/tidegate.yaml are what this prints, and a test compares them.

use std::fmt::Write as _;
use std::io::Write;

use super::compat::{Effect, Variable};
use super::compat::{OTHER_DEFAULTS, VARIABLES};
use super::fields::Config;
use super::section::{Entry, Field};
use super::show::{default_in_words, place, yaml_value};
use crate::cli::ReferencePart;
use crate::exit::{Exit, Failure};
use crate::output::Output;

const FIELDS_INTRODUCTION: &str = "\
# Configuration

<!-- Made by `tidegate config reference fields`; a test compares. -->

`tidegate serve` reads one YAML file: `--config PATH`, or `TIDEGATE_CONFIG`, or `tidegate.yaml` where it is started. It needs none: every
field has a default. [examples/tidegate.yaml](../examples/tidegate.yaml) has them all.

What wins over what, from the weakest: defaults; with `compat: envoy-ratelimit`, the defaults and
[the environment variables of envoyproxy/ratelimit](compat-variables.md); the file; variables `TIDEGATE_…`; flags. A list replaces a list;
nothing is added up. In a variable and after a flag, commas stand between the items of a list. A variable that is set to nothing counts as
not set.

Flags: `--config`, `--rules`, `--grpc`, `--http`, `--gateway`, `--gateway-listen`, `--debug-listen`, `--log-level`, `--log-format`, `--workers`, `--compat`, and
`--set KEY=VALUE` for every other field.

`tidegate config check` says everything that is wrong with the whole, `config show` what is in force and where it comes from, `config schema`
prints a JSON Schema for editors: see [the command line](cli.md#tidegate-config).

Lengths of time are whole numbers with `ms`, `s`, `m`, `h` or `d`, such as `1h30m`. Sizes are whole numbers with `B`, `KiB`, `MiB` or
`GiB`. Where `off` is possible it means \"none\".
";

const GATEWAY_INTRODUCTION: &str = "\
# The gateway's document

<!-- Made by `tidegate config reference gateway`; a test compares. -->

`gateway.file` of [the configuration](configuration.md), or `--gateway FILE`, names a YAML document with the routes and upstreams of [the gateway](gateway.md).
`tidegate config check` says everything that is wrong with it, with its place; `tidegate config schema gateway` prints a JSON Schema for editors. It is read when the service
starts, and [again when it changes](gateway.md#while-it-runs). [examples/gateway](../examples/gateway/gateway.yaml) is one to begin with.

Lengths of time and sizes are written as in the configuration. Paths of files are those where the service is started. Where a list of texts is taken, one text alone is a
list of one. YAML anchors and merges (`<<`) work.
";

const COMPAT_INTRODUCTION: &str = "\
# The environment variables of envoyproxy/ratelimit

<!-- Made by `tidegate config reference compat`; a test compares. -->

With `compat: envoy-ratelimit` in the file, `TIDEGATE_COMPAT=envoy-ratelimit` or `--compat`, Tidegate reads the environment of
envoyproxy/ratelimit. Upstream's defaults then apply where a variable has a field of ours. What
[our own file, variables and flags](configuration.md) say wins over them. Without the switch none of these variables is looked at.

Booleans and lengths of time are read as Go reads them. A bad value is an error that names its variable. A variable that is set to nothing
counts as not set. Each variable that is set and has no effect is said at the start, with the reason.

Two defaults differ from upstream's on purpose: while `DEBUG_HOST` is not set, only this machine can reach the debug port; and counters are
kept in memory, so no address of a Redis is needed.
";

const EXAMPLE_INTRODUCTION: &str = "\
# Every field with its default. Remove the `# ` before a field to change it.
# Made by `tidegate config reference example`; what the fields mean: docs/configuration.md.
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
    let (_, name) = place(&field.path);
    let takes = field.takes().replace('|', "\\|");
    let default = default_in_words(field.default);
    let about = field.about.replace('|', "\\|");
    let variable = field.variable();
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
                let (indent, name) = place(&path);
                let gap = if indent.is_empty() { "\n" } else { "" };
                writeln!(text, "{gap}{indent}## {about}\n{indent}{name}:")
            }
            Entry::Field(field) => {
                let (indent, name) = place(&field.path);
                let gap = if indent.is_empty() { "\n" } else { "" };
                let value = yaml_value(&field.value.shown());
                writeln!(text, "{gap}{indent}## {}\n{indent}# {name}: {value}", field.about)
            }
        };
    }
    text
}
