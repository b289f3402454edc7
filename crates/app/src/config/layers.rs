//! Combines the layers, and records the origin of every value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use tidegate_document::{
    Fault, ItemFault, Location, Plurality, Problems, Scalar, ScalarStyle, did_you_mean,
};
use tidegate_rules::{Mode, Problem, Report, Source};

use super::compat;
use super::fields::Config;
use super::file;
use super::kinds::Compat;
use super::mask::Mask;
use super::validate::validate;

/// The prefix of our environment variables.
const PREFIX: &str = "TIDEGATE_";

/// The variable with the path of the file; it sets no field.
const CONFIG_VARIABLE: &str = "TIDEGATE_CONFIG";

/// A short name for `TIDEGATE_RULES_PATHS`, which `tidegate rules` reads too.
const RULES_VARIABLE: &str = "TIDEGATE_RULES";

/// The environment variable of a field.
pub fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "_").to_ascii_uppercase())
}

/// The texts that a configuration is made of.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The configuration file, if there is one.
    pub file: Option<Source>,
    /// Environment variables; unrelated ones are ignored.
    pub variables: Vec<(String, String)>,
    /// Flags, in the order in which they were given.
    pub flags: Vec<Flag>,
}

/// A flag that sets a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag, such as `--grpc`.
    pub name: &'static str,
    /// The field; `None` if the text names it, as that of `--set` does.
    pub path: Option<&'static str>,
    /// The argument.
    pub text: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No layer sets it.
    Default,
    /// No layer sets it, and envoyproxy/ratelimit has another default.
    CompatDefault,
    /// A line of the file.
    File {
        /// The file.
        name: String,
        /// The line, from one.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => out.write_str("default"),
            Origin::CompatDefault => out.write_str("default of envoy-ratelimit"),
            Origin::File { name, line } => write!(out, "{name}:{line}"),
            Origin::Variable(name) => out.write_str(name),
            Origin::Flag(name) => out.write_str(name),
        }
    }
}

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The origin of each value, by path.
    pub origins: BTreeMap<String, Origin>,
    /// Warnings with their location.
    pub warnings: Vec<Problem>,
    /// Remarks that the start logs.
    pub notes: Vec<Note>,
}

/// A remark that the start logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Its importance.
    pub weight: Weight,
    /// A sentence.
    pub message: String,
}

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Information.
    Note,
    /// Probably a mistake.
    Warning,
}

/// The value that one layer has for a field.
#[derive(Debug)]
pub(super) struct LayerValue<'s> {
    pub(super) path: String,
    pub(super) scalars: Vec<Scalar<'s>>,
    /// The location of each scalar.
    pub(super) locations: Vec<Location>,
    /// The location of all of them.
    pub(super) location: Location,
    pub(super) origin: Origin,
}

impl<'s> LayerValue<'s> {
    /// One value.
    pub(super) fn single(
        path: &str,
        text: impl Into<Cow<'s, str>>,
        location: Location,
        origin: Origin,
    ) -> Self {
        let scalars = vec![Scalar { text: text.into(), style: ScalarStyle::Plain }];
        LayerValue { path: path.to_owned(), scalars, locations: vec![location], location, origin }
    }

    /// The value of a variable or flag: commas separate the items of a list.
    fn of_text(path: &str, plurality: Plurality, from: NamedText<'s>, origin: Origin) -> Self {
        let mut value = Self::single(path, from.text, from.location, origin);
        if plurality != Plurality::Many {
            return value;
        }
        (value.scalars, value.locations) = (Vec::new(), Vec::new());
        let mut offset = 0;
        for part in from.text.split(',') {
            let item = part.trim();
            if !item.is_empty() && item != "[]" {
                let start = offset + part.len() - part.trim_start().len();
                value.scalars.push(Scalar { text: item.into(), style: ScalarStyle::Plain });
                value.locations.push(from.range(start, start + item.len()));
            }
            offset += part.len() + 1;
        }
        value
    }
}

/// The origin of a value, and where problems with it are shown.
#[derive(Clone, Debug)]
pub(super) struct Provenance {
    pub(super) origin: Origin,
    /// `None` for defaults.
    pub(super) location: Option<Location>,
    /// The location of each item.
    pub(super) locations: Vec<Location>,
    /// Whether every layer's value for the field was valid.
    pub(super) is_sound: bool,
}

/// By path.
pub(super) type Provenances = BTreeMap<String, Provenance>;

/// The text of an environment variable or a flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedText<'s> {
    pub(super) name: &'s str,
    pub(super) text: &'s str,
    pub(super) location: Location,
}

impl<'s> NamedText<'s> {
    fn of(index: usize, source: &'s Source) -> Self {
        let file = u32::try_from(index).unwrap_or(u32::MAX);
        let location = Location { file, start: 0, end: offset_of(source.text.len()) };
        NamedText { name: &source.name, text: &source.text, location }
    }

    /// The location of a part of the text.
    fn range(&self, start: usize, end: usize) -> Location {
        let at = |offset| self.location.start.saturating_add(offset_of(offset));
        Location { start: at(start), end: at(end), ..self.location }
    }
}

fn offset_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads all layers and validates the result.
///
/// # Errors
/// With all problems.
pub fn resolve(input: &Input) -> Result<LoadedConfig, Report> {
    let sources = sources(input);
    let mask = Mask::new(input);
    let shown: Vec<Source> = sources.iter().map(|source| mask.apply(source)).collect();
    let mut problems = Problems::new(&shown);
    let texts: Vec<NamedText<'_>> =
        sources.iter().enumerate().map(|(index, source)| NamedText::of(index, source)).collect();
    let (_, texts) = texts.split_at(usize::from(input.file.is_some()));
    let (variables, flags) = texts.split_at(texts.len() - input.flags.len());

    let mut given: Vec<LayerValue<'_>> = Vec::new();
    if let (Some(_), Some(file)) = (&input.file, sources.first()) {
        file::read(file, &mut problems, &mut given);
    }
    let mut config = Config::default();
    let fields: BTreeMap<String, Plurality> =
        config.fields().map(|field| (field.path, field.value.plurality())).collect();
    read_variables(variables, &fields, &mut problems, &mut given);
    for (flag, text) in input.flags.iter().zip(flags) {
        read_flag(flag, *text, &fields, &mut problems, &mut given);
    }

    let mut notes = Vec::new();
    if is_compat(&given) {
        let mut layers = compat::read(variables, &given, &mut problems, &mut notes);
        layers.append(&mut given);
        given = layers;
    }

    warn_of_old_words(&given, &mut problems);
    let (mut config, provenances) = apply(&given, &mut problems);
    validate(&mut config, &provenances, &mut problems, &mut notes);
    if problems.has_errors() {
        return Err(problems.into_report());
    }
    let warnings = problems.into_report().into_problems();
    let origins = provenances.into_iter().map(|(path, from)| (path, from.origin)).collect();
    Ok(LoadedConfig { config, origins, warnings, notes })
}

/// Warns of deprecated words.
fn warn_of_old_words(given: &[LayerValue<'_>], problems: &mut Problems<'_>) {
    for given in given.iter().filter(|given| given.path.starts_with("switches.")) {
        if given.scalars.iter().any(|word| word.text == Mode::DEPRECATED_SHADOW) {
            let message = "`dark` is the old word for `shadow`";
            problems.warn(given.location, Fault::new("old_word", message).hint("write `shadow`"));
        }
    }
}

/// The file, the variables that are ours or of envoyproxy/ratelimit, and the flags.
fn sources(input: &Input) -> Vec<Source> {
    let known = |name: &str| name.starts_with(PREFIX) || compat::is_known(name);
    let mut variables: Vec<&(String, String)> =
        input.variables.iter().filter(|(name, _)| known(name)).collect();
    variables.sort();
    let variables = variables.into_iter().map(|(name, text)| Source::new(name, text));
    let flags = input.flags.iter().map(|flag| Source::new(flag.name, &flag.text));
    input.file.iter().cloned().chain(variables).chain(flags).collect()
}

fn read_variables<'s>(
    variables: &[NamedText<'s>],
    fields: &BTreeMap<String, Plurality>,
    problems: &mut Problems<'_>,
    given: &mut Vec<LayerValue<'s>>,
) {
    let fields: BTreeMap<String, (&str, Plurality)> =
        fields.iter().map(|(path, plurality)| (variable_of(path), (&**path, *plurality))).collect();
    for variable in variables.iter().filter(|variable| variable.name.starts_with(PREFIX)) {
        let name =
            if variable.name == RULES_VARIABLE { "TIDEGATE_RULES_PATHS" } else { variable.name };
        // An empty variable counts as not set.
        if variable.text.is_empty() || name == CONFIG_VARIABLE || is_of_kubernetes(name) {
            continue;
        }
        if let Some((path, plurality)) = fields.get(name) {
            let origin = Origin::Variable(variable.name.to_owned());
            given.push(LayerValue::of_text(path, *plurality, *variable, origin));
            continue;
        }
        let hint = did_you_mean(name, fields.keys().map(String::as_str))
            .unwrap_or_else(|| "`tidegate config env` lists the variables".to_owned());
        let fault = Fault::new("unknown_variable", format!("`{name}` sets no field")).hint(hint);
        problems.warn(variable.location, fault);
    }
}

/// Whether Kubernetes sets the variable, for a service whose name begins with ours.
fn is_of_kubernetes(name: &str) -> bool {
    let mut parts =
        name.split('_').skip(1).skip_while(|part| *part != "SERVICE" && *part != "PORT");
    match (parts.next(), parts.next()) {
        (Some("SERVICE"), Some("HOST" | "PORT")) | (Some("PORT"), None) => true,
        (Some("PORT"), Some(number)) => number.bytes().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

fn read_flag<'s>(
    flag: &Flag,
    text: NamedText<'s>,
    fields: &BTreeMap<String, Plurality>,
    problems: &mut Problems<'_>,
    given: &mut Vec<LayerValue<'s>>,
) {
    let (path, value) = match (flag.path, text.text.split_once('=')) {
        (Some(path), _) => (path, text),
        (None, Some((path, value))) => {
            let location = text.range(path.len() + 1, text.text.len());
            (path, NamedText { text: value, location, ..text })
        }
        (None, None) => {
            let fault = Fault::new("malformed_flag", "there is no `=`")
                .hint(format!("write `{} KEY=VALUE`, such as `shutdown.grace=30s`", flag.name));
            return problems.error(text.location, fault);
        }
    };
    if let Some(plurality) = fields.get(path) {
        given.push(LayerValue::of_text(path, *plurality, value, Origin::Flag(flag.name)));
        return;
    }
    let hint = did_you_mean(path, fields.keys().map(String::as_str))
        .unwrap_or_else(|| "`tidegate config show` lists the fields".to_owned());
    let fault = Fault::new("unknown_key", format!("there is no field `{path}`")).hint(hint);
    problems.error(text.range(0, path.len()), fault);
}

/// Whether the file, a variable or a flag turns compatibility on.
fn is_compat(given: &[LayerValue<'_>]) -> bool {
    let last = given.iter().rfind(|given| given.path == "compat");
    let word = last.and_then(|given| given.scalars.first());
    word.is_some_and(|word| word.text == Compat::EnvoyRatelimit.as_str())
}

/// Sets the fields; later layers win.
fn apply(given: &[LayerValue<'_>], problems: &mut Problems<'_>) -> (Config, Provenances) {
    let mut config = Config::default();
    let mut provenances = Provenances::new();
    for field in config.fields() {
        let mut from = Provenance {
            origin: Origin::Default,
            location: None,
            locations: Vec::new(),
            is_sound: true,
        };
        for given in given.iter().filter(|given| given.path == field.path) {
            let before = field.value.shown();
            if let Err(faults) = field.value.set(&given.scalars, &field.key.bounds) {
                for ItemFault { item, fault } in faults {
                    let item = item.and_then(|item| given.locations.get(item).copied());
                    problems.error(item.unwrap_or(given.location), fault.of(&field.path));
                }
                from.is_sound = false;
                continue;
            }
            from = match &given.origin {
                // A default of envoyproxy/ratelimit that is ours too is no difference.
                Origin::CompatDefault if field.value.shown() == before => continue,
                Origin::CompatDefault => Provenance { origin: Origin::CompatDefault, ..from },
                origin => Provenance {
                    origin: origin.clone(),
                    location: Some(given.location),
                    locations: given.locations.clone(),
                    ..from
                },
            };
        }
        provenances.insert(field.path.clone(), from);
    }
    (config, provenances)
}
