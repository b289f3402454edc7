//! The environment of envoyproxy/ratelimit: what each variable does here.
//!
//! Read only when `compat: envoy-ratelimit` is on. A variable sets a field, does
//! something of its own, or has no effect, which is then said. Values are read
//! as Go reads them, and a bad one is an error that names its variable. What
//! upstream does by default and we do not becomes a layer of defaults.

mod go;
mod special;
mod variables;

use std::borrow::Cow;

use tidegate_document::{Fault, Location, Problems, Scalar, ScalarStyle};

use super::layers::{LayerValue, Note, Origin, VariableText, Weight};

pub(super) use go::GoKind;
pub use variables::{Effect, VARIABLES, Variable};

/// What upstream does and has no variable for, by field.
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
];

/// Whether upstream has a variable of this name.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// Whether the variable holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    find(name).is_some_and(|variable| variable.kind == GoKind::Secret)
}

fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// What is set of upstream's environment, and where to say what.
struct Environment<'e, 's, 'p> {
    variables: &'e [VariableText<'s>],
    problems: &'e mut Problems<'p>,
    notes: &'e mut Vec<Note>,
    given: Vec<LayerValue<'s>>,
    /// The fields that our own layers set.
    ours: Vec<&'e str>,
}

/// The layers of upstream: its defaults first, then what is set.
///
/// `ours` is what our own file, environment and flags say.
pub(super) fn read<'s>(
    variables: &[VariableText<'s>],
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
    /// A variable that is set to something; one that is empty counts as not set.
    fn get(&self, name: &str) -> Option<VariableText<'s>> {
        let found = self.variables.iter().find(|variable| variable.name == name).copied();
        found.filter(|variable| !variable.text.is_empty())
    }

    /// A boolean that is set and right.
    fn flag(&self, name: &str) -> Option<bool> {
        go::boolean(self.get(name)?.text).ok()
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
        self.given.push(LayerValue {
            path: path.to_owned(),
            scalars: vec![plain(text)],
            locations: Vec::new(),
            location: Location::default(),
            origin: Origin::CompatDefault,
        });
    }

    fn read_one(&mut self, variable: &Variable, own_paths: bool) {
        let Some(text) = self.get(variable.name) else { return };
        let translated = match variable.kind.translate(text.text) {
            Ok(translated) => translated,
            Err(fault) => return self.refuse(&text, fault),
        };
        match variable.effect {
            Effect::Sets("rules.runtime.root") if own_paths => {
                self.note(format!("{} has no effect: `rules.paths` is set", variable.name));
            }
            Effect::Sets(path) => self.set(path, translated, &text),
            Effect::Special(_) => {}
            Effect::None(why) => self.note(format!("{} has no effect: {why}", variable.name)),
        }
    }

    /// Sets a field.
    fn set(&mut self, path: &str, text: String, from: &VariableText<'s>) {
        self.given.push(LayerValue {
            path: path.to_owned(),
            scalars: vec![plain(text)],
            locations: vec![from.location],
            location: from.location,
            origin: Origin::Variable(from.name.to_owned()),
        });
    }

    fn refuse(&mut self, from: &VariableText<'s>, fault: Fault) {
        self.problems.error(from.location, fault.of(from.name));
    }

    fn note(&mut self, message: String) {
        self.notes.push(Note { weight: Weight::Note, message });
    }

    fn warn(&mut self, message: String) {
        self.notes.push(Note { weight: Weight::Warning, message });
    }
}

fn plain<'s>(text: String) -> Scalar<'s> {
    Scalar { text: Cow::Owned(text), style: ScalarStyle::Plain }
}
