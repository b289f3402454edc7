//! The environment of envoyproxy/ratelimit ("upstream"): what each variable does here.
//!
//! Read only with `compat: envoy-ratelimit`. A variable sets a field, has a special effect, or has no effect, which is
//! logged. Values are parsed as Go parses them, and an invalid one is an error that names its variable. Defaults of
//! upstream that differ from ours form the weakest layer.

mod go;
mod special;
mod variables;

use tidegate_document::{Fault, Location, Problems, Scalar, ScalarStyle};

use super::layers::{LayerValue, NamedText, Note, Origin, Weight};

pub(super) use go::GoKind;
pub use variables::{Effect, VARIABLES, Variable};

/// Behaviour of upstream that has no variable: field, default, reason.
pub(super) const OTHER_DEFAULTS: &[(&str, &str, &str)] = &[
    (
        "rules.required",
        "false",
        "upstream starts with rules that it cannot read, and answers with errors",
    ),
    (
        "store.redis.layout",
        "envoy-ratelimit",
        "both can count together in one Redis while a team moves from one to the other",
    ),
    ("limiter.error_codes", "unknown", "upstream's errors are all `Unknown`"),
    (
        "store.redis.on_error",
        "upstream",
        "upstream answers with an error while Redis fails, and Envoy's `failure_mode_deny` decides",
    ),
    ("limiter.descriptors_max", "100000", "upstream has no maximum"),
    ("grpc.message_bytes_max", "4MiB", "the default of Go's gRPC"),
    ("http.body_bytes_max", "4MiB", "upstream has no maximum"),
];

/// Whether upstream has a variable of this name.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some() || special::is_mogrifier(name)
}

/// Whether the variable holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    find(name).is_some_and(|variable| variable.kind == GoKind::Secret)
}

fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// The variables of upstream that are set, and the layers and messages that follow from them.
struct Environment<'e, 's, 'p> {
    variables: &'e [NamedText<'s>],
    problems: &'e mut Problems<'p>,
    notes: &'e mut Vec<Note>,
    given: Vec<LayerValue<'s>>,
    /// The fields that our own file, variables and flags set.
    ours: Vec<&'e str>,
}

/// The layers of upstream: its defaults, then its variables.
///
/// `ours` are the values of our own file, variables and flags.
pub(super) fn read<'s>(
    variables: &[NamedText<'s>],
    ours: &[LayerValue<'_>],
    problems: &mut Problems<'_>,
    notes: &mut Vec<Note>,
) -> Vec<LayerValue<'s>> {
    let own_paths = ours.iter().any(|ours| ours.path == "rules.paths" && !ours.scalars.is_empty());
    let ours: Vec<&str> = ours.iter().map(|given| given.path.as_str()).collect();
    let mut environment = Environment { variables, problems, notes, given: Vec::new(), ours };
    environment.set_defaults(own_paths);
    for variable in VARIABLES {
        environment.read_one(variable, own_paths);
    }
    special::read(&mut environment);
    environment.given
}

impl<'s> Environment<'_, 's, '_> {
    /// A variable that is set; an empty one counts as not set.
    fn get(&self, name: &str) -> Option<NamedText<'s>> {
        let found = self.variables.iter().find(|variable| variable.name == name).copied();
        found.filter(|variable| !variable.text.is_empty())
    }

    /// A boolean that is set to true.
    fn enabled(&self, name: &str) -> Option<NamedText<'s>> {
        self.get(name).filter(|variable| go::boolean(variable.text) == Ok(true))
    }

    fn set_defaults(&mut self, own_paths: bool) {
        for variable in VARIABLES {
            let Effect::Sets(path) = variable.effect else { continue };
            let replaced = own_paths && path == "rules.runtime.root";
            if variable.default.is_empty() || replaced {
                continue;
            }
            if let Ok(text) = variable.kind.translate(variable.default) {
                self.default(path, text);
            }
        }
        for (path, text, _) in OTHER_DEFAULTS {
            self.default(path, (*text).to_owned());
        }
    }

    fn default(&mut self, path: &str, text: String) {
        let origin = Origin::CompatDefault;
        self.given.push(LayerValue::single(path, text, Location::default(), origin));
    }

    fn read_one(&mut self, variable: &Variable, own_paths: bool) {
        let Some(text) = self.get(variable.name) else { return };
        let translated = match variable.kind.translate(text.text) {
            Ok(translated) => translated,
            Err(fault) => return self.refuse(&text, fault),
        };
        match variable.effect {
            Effect::Sets("rules.runtime.root") if own_paths => {
                self.warn(format!("{} has no effect: `rules.paths` is set", variable.name));
            }
            Effect::Sets(path) => self.set(path, translated, &text),
            Effect::Special(_) => {}
            Effect::Nothing(why) => self.warn(format!("{} has no effect: {why}", variable.name)),
        }
    }

    /// Sets a field.
    fn set(&mut self, path: &str, text: String, from: &NamedText<'s>) {
        let origin = Origin::Variable(from.name.to_owned());
        self.given.push(LayerValue::single(path, text, from.location, origin));
    }

    fn refuse(&mut self, from: &NamedText<'s>, fault: Fault) {
        self.problems.error(from.location, fault.of(from.name));
    }

    /// Notes variables that have no effect because another is not true.
    fn note_no_effect(&mut self, variables: &[NamedText<'s>], switch: &str) {
        for NamedText { name, .. } in variables {
            self.warn(format!("{name} has no effect: {switch} is not true"));
        }
    }

    /// Sets a list.
    fn set_list(&mut self, path: &str, items: Vec<String>, from: &NamedText<'s>) {
        let style = ScalarStyle::Plain;
        self.given.push(LayerValue {
            path: path.to_owned(),
            locations: vec![from.location; items.len()],
            scalars: items.into_iter().map(|text| Scalar { text: text.into(), style }).collect(),
            location: from.location,
            origin: Origin::Variable(from.name.to_owned()),
        });
    }

    /// Notes that a variable has no effect. A warning, because a setting that upstream has is gone.
    fn warn(&mut self, message: String) {
        self.notes.push(Note { weight: Weight::Warning, message });
    }

    fn note(&mut self, message: String) {
        self.notes.push(Note { weight: Weight::Note, message });
    }
}
