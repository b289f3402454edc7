//! Putting the layers together, with every value's origin.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use tidegate_document::{
    Entry, Fault, ItemFault, Location, Plurality, Problems, Scalar, ScalarStyle, closest,
};
use tidegate_rules::{Mode, Problem, Report, Source};

use super::compat;
use super::fields::Config;
use super::file;
use super::kinds::Compat;
use super::mask::Mask;
use super::validate::validate;

/// What all our environment variables begin with.
const PREFIX: &str = "TIDEGATE_";

/// Names with our prefix that set no field: where the file is, and where `rules
/// check` looks for rules.
const OTHER_VARIABLES: [&str; 1] = ["TIDEGATE_CONFIG"];

/// A second name for where the rules are: `tidegate rules` has it too.
const RULES_VARIABLE: &str = "TIDEGATE_RULES";

/// The environment variable of a path.
pub fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "_").to_ascii_uppercase())
}

/// Everything that a configuration is made of, as text.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The configuration file, if there is one.
    pub file: Option<Source>,
    /// Environment variables; those that mean nothing here are ignored.
    pub variables: Vec<(String, String)>,
    /// Flags, in the order in which they were given.
    pub flags: Vec<Flag>,
}

/// A flag that sets a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// What was typed, such as `--grpc`.
    pub name: &'static str,
    /// The field; none when the text itself names it, as `--set` does.
    pub path: Option<&'static str>,
    /// What came after it.
    pub text: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// Nobody said anything, and envoyproxy/ratelimit has another default.
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

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Where each comes from, by path.
    pub origins: BTreeMap<String, Origin>,
    /// What is odd, with its place.
    pub warnings: Vec<Problem>,
    /// What should be said at the start.
    pub notes: Vec<Note>,
}

/// Something to say at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// How much it matters.
    pub weight: Weight,
    /// A sentence.
    pub message: String,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Good to know.
    Note,
    /// Probably not what is wanted.
    Warning,
}

/// What one layer says for a field.
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

/// Where a value comes from, to say so and to point at it.
#[derive(Clone, Debug)]
pub(super) struct Provenance {
    pub(super) origin: Origin,
    /// None for defaults.
    pub(super) location: Option<Location>,
    pub(super) locations: Vec<Location>,
    /// Whether everything that was given for it could be read.
    pub(super) is_sound: bool,
}

/// By path.
pub(super) type Provenances = BTreeMap<String, Provenance>;

/// A variable that has a meaning here.
#[derive(Clone, Copy, Debug)]
pub(super) struct VariableText<'s> {
    pub(super) name: &'s str,
    pub(super) text: &'s str,
    pub(super) location: Location,
}

/// Reads all layers and checks what comes of them.
///
/// # Errors
/// With everything that is wrong.
pub fn resolve(input: &Input) -> Result<Loaded, Report> {
    let sources = sources(input);
    let mask = Mask::new(input);
    let shown: Vec<Source> = sources.iter().map(|source| mask.apply(source)).collect();
    let mut problems = Problems::new(&shown);
    let files = usize::from(input.file.is_some());
    let (in_file, rest) = sources.split_at(files);
    let (in_environment, in_flags) = rest.split_at(rest.len() - input.flags.len());
    let variables: Vec<VariableText<'_>> =
        in_environment.iter().enumerate().map(|(at, source)| text_of(files + at, source)).collect();

    let mut given: Vec<LayerValue<'_>> = Vec::new();
    if let [file] = in_file {
        file::read(file, &mut problems, &mut given);
    }
    read_variables(&variables, &mut problems, &mut given);
    let before = files + in_environment.len();
    for (at, (flag, source)) in input.flags.iter().zip(in_flags).enumerate() {
        read_flag(flag, text_of(before + at, source), &mut problems, &mut given);
    }

    let mut notes = Vec::new();
    if is_compat(&given) {
        let mut layers = compat::read(&variables, &given, &mut problems, &mut notes);
        layers.append(&mut given);
        given = layers;
    }

    warn_of_old_words(&given, &mut problems);
    let (mut config, provenances) = apply(&given, &mut problems);
    validate(&mut config, &provenances, &mut problems, &mut notes);
    if problems.has_errors() {
        return Err(problems.into_report());
    }
    let warnings = problems.into_report().problems().to_vec();
    let origins = provenances.into_iter().map(|(path, from)| (path, from.origin)).collect();
    Ok(Loaded { config, origins, warnings, notes })
}

/// Warns of words that are still read and will not be for ever.
fn warn_of_old_words(given: &[LayerValue<'_>], problems: &mut Problems<'_>) {
    for given in given.iter().filter(|given| given.path.starts_with("switches.")) {
        if given.scalars.iter().any(|word| word.text == Mode::DEPRECATED_SHADOW) {
            let message = "`dark` is the old word for `shadow`";
            problems.warn(given.location, Fault::new("old_word", message).hint("write `shadow`"));
        }
    }
}

/// The file, each variable that means something, and each flag.
fn sources(input: &Input) -> Vec<Source> {
    let known = |name: &str| name.starts_with(PREFIX) || compat::is_known(name);
    let mut variables: Vec<&(String, String)> =
        input.variables.iter().filter(|(name, _)| known(name)).collect();
    variables.sort();
    let variables = variables.into_iter().map(|(name, text)| Source::new(name, text));
    let flags = input.flags.iter().map(|flag| Source::new(flag.name, &flag.text));
    input.file.iter().cloned().chain(variables).chain(flags).collect()
}

fn text_of(file: usize, source: &Source) -> VariableText<'_> {
    let file = u32::try_from(file).unwrap_or(u32::MAX);
    let end = u32::try_from(source.text.len()).unwrap_or(u32::MAX);
    VariableText {
        name: &source.name,
        text: &source.text,
        location: Location { file, start: 0, end },
    }
}

fn read_variables<'s>(
    variables: &[VariableText<'s>],
    problems: &mut Problems<'_>,
    given: &mut Vec<LayerValue<'s>>,
) {
    let mut config = Config::default();
    let mut fields: BTreeMap<String, (String, Plurality)> = BTreeMap::new();
    for entry in config.entries() {
        if let Entry::Field(field) = entry {
            fields.insert(variable_of(&field.path), (field.path.clone(), field.value.plurality()));
        }
    }
    for variable in variables.iter().filter(|variable| variable.name.starts_with(PREFIX)) {
        let name =
            if variable.name == RULES_VARIABLE { "TIDEGATE_RULES_PATHS" } else { variable.name };
        // A variable that is set to nothing is one that is not set.
        if variable.text.is_empty() || OTHER_VARIABLES.contains(&name) || is_a_service(name) {
            continue;
        }
        let origin = Origin::Variable(variable.name.to_owned());
        if let Some((path, plurality)) = fields.get(name) {
            given.push(layer_value(path, *plurality, variable.text, variable.location, origin));
            continue;
        }
        let fault = Fault::new("unknown_variable", format!("`{name}` sets no field"));
        let near = closest(name, fields.keys().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`tidegate config env` lists those that do".to_owned(),
        };
        problems.warn(variable.location, fault.hint(hint));
    }
}

/// Whether Kubernetes sets the variable for a service whose name begins with ours.
fn is_a_service(name: &str) -> bool {
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
    text: VariableText<'s>,
    problems: &mut Problems<'_>,
    given: &mut Vec<LayerValue<'s>>,
) {
    let mut config = Config::default();
    let fields: BTreeMap<String, Plurality> = config
        .entries()
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Field(field) => Some((field.path, field.value.plurality())),
            Entry::Section { .. } => None,
        })
        .collect();
    let origin = Origin::Flag(flag.name);
    if let Some(path) = flag.path {
        let plurality = fields.get(path).copied().unwrap_or(Plurality::One);
        given.push(layer_value(path, plurality, text.text, text.location, origin));
        return;
    }
    let Some((path, value)) = text.text.split_once('=') else {
        let fault = Fault::new("malformed_flag", "there is no `=`")
            .hint(format!("write `{} KEY=VALUE`, such as `shutdown.grace=30s`", flag.name));
        problems.error(text.location, fault);
        return;
    };
    let split = u32::try_from(path.len()).unwrap_or(u32::MAX);
    if let Some(plurality) = fields.get(path) {
        let location = Location { start: split.saturating_add(1), ..text.location };
        given.push(layer_value(path, *plurality, value, location, origin));
        return;
    }
    let fault = Fault::new("unknown_key", format!("there is no field `{path}`"));
    let hint = match closest(path, fields.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`tidegate config show` lists the fields".to_owned(),
    };
    problems.error(Location { end: split, ..text.location }, fault.hint(hint));
}

/// A text for a field: items of a list have commas between them.
pub(super) fn layer_value<'s>(
    path: &str,
    plurality: Plurality,
    text: &'s str,
    location: Location,
    origin: Origin,
) -> LayerValue<'s> {
    let plain = |text| Scalar { text: Cow::Borrowed(text), style: ScalarStyle::Plain };
    if plurality != Plurality::Many {
        let scalars = vec![plain(text)];
        return LayerValue {
            path: path.to_owned(),
            scalars,
            locations: vec![location],
            location,
            origin,
        };
    }
    let (mut scalars, mut locations) = (Vec::new(), Vec::new());
    let mut start = location.start;
    for part in text.split(',') {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let item = part.trim();
        let blanks = length(part).saturating_sub(length(part.trim_start()));
        if !item.is_empty() && item != "[]" {
            let start = start.saturating_add(blanks);
            scalars.push(plain(item));
            locations.push(Location { start, end: start.saturating_add(length(item)), ..location });
        }
        start = start.saturating_add(length(part)).saturating_add(1);
    }
    LayerValue { path: path.to_owned(), scalars, locations, location, origin }
}

/// Whether the layers that may say so turn compatibility on.
fn is_compat(given: &[LayerValue<'_>]) -> bool {
    let last = given.iter().rfind(|given| given.path == "compat");
    let word = last.and_then(|given| given.scalars.first());
    word.is_some_and(|word| word.text == Compat::EnvoyRatelimit.as_str())
}

/// Sets the fields, from the weakest layer to the strongest.
fn apply(given: &[LayerValue<'_>], problems: &mut Problems<'_>) -> (Config, Provenances) {
    let mut config = Config::default();
    let mut provenances = Provenances::new();
    for entry in config.entries() {
        let Entry::Field(field) = entry else { continue };
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
            let compat = given.origin == Origin::CompatDefault;
            if compat && field.value.shown() == before {
                continue;
            }
            let location = (!compat).then_some(given.location);
            let is_sound = from.is_sound;
            let (origin, locations) = (given.origin.clone(), given.locations.clone());
            from = Provenance { origin, location, locations, is_sound };
        }
        provenances.insert(field.path.clone(), from);
    }
    (config, provenances)
}
