//! Reading keys and values of a positioned tree, with faults collected.

use super::Placed;
use super::duration::parse_duration;
use crate::diagnostics::{Fault, Problems, Spot, closest, one_of};
use crate::vocabulary::{self, Key, Place, Shape};
use crate::yaml::{Kind, NodeId, Plain, Scalar, Yaml};

/// A file's tree, and where its faults go.
#[derive(Debug)]
pub(crate) struct Reader<'y, 'p> {
    pub(crate) yaml: &'y Yaml<'y>,
    problems: &'y mut Problems<'p>,
}

/// The pairs of one mapping that have a meaning there.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) spot: Spot,
    fields: Vec<Field>,
}

/// One pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) key: &'static Key,
    pub(crate) key_id: NodeId,
    pub(crate) value: NodeId,
}

impl Fields {
    /// The pair of this name, if it is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|field| field.key.name == name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().copied()
    }
}

impl<'y, 'p> Reader<'y, 'p> {
    pub(crate) const fn new(yaml: &'y Yaml<'y>, problems: &'y mut Problems<'p>) -> Self {
        Reader { yaml, problems }
    }

    pub(crate) fn error(&mut self, id: NodeId, fault: Fault) {
        self.error_at(self.yaml.spot(id), fault);
    }

    pub(crate) fn error_at(&mut self, spot: Spot, fault: Fault) {
        self.problems.error(spot, fault);
    }

    pub(crate) fn warn(&mut self, id: NodeId, fault: Fault) {
        self.warn_at(self.yaml.spot(id), fault);
    }

    pub(crate) fn warn_at(&mut self, spot: Spot, fault: Fault) {
        self.problems.warn(spot, fault);
    }

    /// Says that a value is not what its key takes.
    pub(crate) fn wrong_kind(&mut self, id: NodeId, name: &str, expected: &str) {
        let found = self.yaml.describe(id);
        let message = format!("`{name}` takes {expected}, not {found}");
        let mut fault = Fault::new("wrong_type", message);
        if vocabulary::places_of(name).any(|key| key.upstream) {
            fault = fault
                .compat(format!("error loading config file: {found} where {expected} is expected"));
        }
        let unquoted = self.yaml.scalar(id).map(|scalar| Plain::of(&scalar.text));
        if found == "text" && matches!(unquoted, Some(Plain::Integer(_) | Plain::Bool(_))) {
            fault = fault.hint("remove the quotes");
        }
        self.error(id, fault);
    }

    /// A mapping's pairs, those of its merge keys included.
    pub(crate) fn pairs(&mut self, id: NodeId) -> Vec<(NodeId, NodeId)> {
        let merged = self.yaml.merged_pairs(id);
        for stray in merged.strays {
            self.wrong_kind(stray, "<<", "a mapping or a list of mappings");
        }
        merged.pairs
    }

    /// The pairs of a mapping that belong in this place; faults for the others.
    pub(crate) fn fields(&mut self, id: NodeId, place: Place) -> Fields {
        let mut fields = Vec::new();
        for (key_id, value) in self.pairs(id) {
            let Some(name) = self.key_name(key_id) else {
                continue;
            };
            if let Some(key) = vocabulary::find(place, name) {
                if !self.yaml.is_null(value) {
                    fields.push(Field { key, key_id, value });
                }
            } else {
                self.stray_key(place, name, key_id, value);
            }
        }
        Fields { spot: self.yaml.spot(id), fields }
    }

    /// The text of a key; a fault when it is not text.
    fn key_name(&mut self, id: NodeId) -> Option<&'y str> {
        let yaml = self.yaml;
        match yaml.scalar(id) {
            Some(scalar) if scalar.plain() == Plain::Text => Some(&scalar.text),
            other => {
                let written = other.map_or("", |scalar| &*scalar.text);
                let message = format!("a key must be text, not {}", yaml.describe(id));
                let fault = Fault::new("key_not_text", message)
                    .hint("quote it if it should be text")
                    .compat(format!("config error, key is not of type string: {written}"));
                self.error(id, fault);
                None
            }
        }
    }

    /// A key that has no meaning in this place.
    fn stray_key(&mut self, place: Place, name: &str, key_id: NodeId, value: NodeId) {
        let home = vocabulary::places_of(name).next();
        match home {
            // Upstream does not look where its keys stand; it ignores them there.
            Some(key) if key.upstream && place.is_upstream() => {
                let message = format!("`{name}` has no effect {}", place.title());
                let fault = Fault::new("misplaced_key", message)
                    .hint(format!("it belongs {}", key.place.title()));
                self.warn(key_id, fault);
                if name != "metadata" {
                    self.check_ignored(value);
                }
            }
            Some(key) => {
                let message = format!("`{name}` does not belong {}", place.title());
                let fault = Fault::new("misplaced_key", message)
                    .hint(format!("it belongs {}", key.place.title()))
                    .compat(format!("config error, unknown key '{name}'"));
                self.error(key_id, fault);
            }
            None => self.unknown_key(place, name, key_id),
        }
    }

    fn unknown_key(&mut self, place: Place, name: &str, key_id: NodeId) {
        let hint = (!self.problems.is_full()).then(|| vocabulary::suggestion(place, name));
        let fault = Fault::new("unknown_key", format!("unknown key `{name}`"))
            .maybe_hint(hint)
            .compat(format!("config error, unknown key '{name}'"));
        self.error(key_id, fault);
    }

    /// Checks a part that has no effect as far as upstream does: it would
    /// refuse a file for what is wrong there, so we do too.
    fn check_ignored(&mut self, id: NodeId) {
        let yaml = self.yaml;
        match &yaml.node(id).kind {
            Kind::Scalar(scalar) => {
                if matches!(scalar.plain(), Plain::Float(_)) {
                    self.refuse_fraction(id);
                }
            }
            Kind::Sequence(items) => {
                for item in yaml.items(*items) {
                    if self.is_mapping(*item) {
                        self.check_ignored(*item);
                    }
                }
            }
            Kind::Mapping(_) => {
                for (key, value) in self.pairs(id) {
                    let Some(name) = self.key_name(key) else {
                        continue;
                    };
                    if vocabulary::places_of(name).next().is_none() {
                        self.unknown_key(Place::Descriptor, name, key);
                    } else if name != "metadata" {
                        self.check_ignored(value);
                    }
                }
            }
        }
    }

    /// Whether a list's item is a mapping; a fault when not.
    pub(crate) fn is_mapping(&mut self, id: NodeId) -> bool {
        let yaml = self.yaml;
        if matches!(yaml.node(id).kind, Kind::Mapping(_)) {
            return true;
        }
        let written = yaml.scalar(id).map_or("", |scalar| &*scalar.text);
        let message = format!("a list of mappings cannot hold {}", yaml.describe(id));
        let fault = Fault::new("item_not_mapping", message).compat(format!(
            "config error, yaml file contains list of type other than map: {written}"
        ));
        self.error(id, fault);
        false
    }

    /// The items of a list of mappings.
    pub(crate) fn items(&mut self, field: Field) -> Vec<NodeId> {
        let yaml = self.yaml;
        let Kind::Sequence(items) = &yaml.node(field.value).kind else {
            self.wrong_kind(field.value, field.key.name, "a list of mappings");
            return Vec::new();
        };
        yaml.items(*items).iter().copied().filter(|item| self.is_mapping(*item)).collect()
    }

    /// A mapping below this one.
    pub(crate) fn mapping(&mut self, field: Field, place: Place) -> Option<Fields> {
        if !matches!(self.yaml.node(field.value).kind, Kind::Mapping(_)) {
            self.wrong_kind(field.value, field.key.name, "a mapping");
            return None;
        }
        Some(self.fields(field.value, place))
    }

    /// Text; numbers and booleans as they are written.
    pub(crate) fn text(&mut self, field: Field) -> Option<Placed<String>> {
        self.text_of(field.value, field.key.name)
    }

    pub(crate) fn text_of(&mut self, id: NodeId, name: &str) -> Option<Placed<String>> {
        let yaml = self.yaml;
        let Some(scalar) = yaml.scalar(id) else {
            self.wrong_kind(id, name, "text");
            return None;
        };
        if matches!(scalar.plain(), Plain::Float(_)) {
            self.refuse_fraction(id);
            return None;
        }
        Some(Placed { what: scalar.text.clone().into_owned(), spot: yaml.spot(id) })
    }

    /// Upstream takes no number with a fraction, and none of more than 64 bits.
    fn refuse_fraction(&mut self, id: NodeId) {
        let text = self.yaml.scalar(id).map_or("", |scalar| &*scalar.text);
        let whole = text.bytes().all(|byte| byte.is_ascii_digit());
        let message = if whole {
            "a number this large has no meaning here"
        } else {
            "a number with a fraction has no meaning here"
        };
        let fault = Fault::new("not_whole", message)
            .hint("quote it if it should be text")
            .compat("error checking config");
        self.error(id, fault);
    }

    /// `true` or `false`; false when absent.
    pub(crate) fn flag(&mut self, fields: &Fields, name: &str) -> bool {
        fields.get(name).and_then(|field| self.flag_of(field)).unwrap_or(false)
    }

    fn flag_of(&mut self, field: Field) -> Option<bool> {
        let yaml = self.yaml;
        match yaml.scalar(field.value).map(Scalar::plain) {
            Some(Plain::Bool(flag)) => Some(flag),
            _ => {
                self.wrong_kind(field.value, field.key.name, "`true` or `false`");
                None
            }
        }
    }

    /// A whole number within the bounds that the vocabulary gives.
    pub(crate) fn count(&mut self, fields: &Fields, name: &str) -> Option<u64> {
        let field = fields.get(name)?;
        let (least, most) = match field.key.shape {
            Shape::Count { least, most } => (least, most),
            _ => (0, u64::MAX),
        };
        let plain = self.yaml.scalar(field.value).map(Scalar::plain);
        let number = match plain {
            Some(Plain::Integer(number)) => u64::try_from(number).ok(),
            // A whole number of more than 64 bits reads like one with a fraction.
            Some(Plain::Float(_)) => None,
            _ => {
                self.wrong_kind(field.value, name, "a whole number");
                return None;
            }
        };
        let within = number.filter(|number| (least..=most).contains(number));
        if within.is_none() {
            let message = format!("`{name}` must be a whole number between {least} and {most}");
            let mut fault = Fault::new("out_of_range", message);
            if field.key.upstream {
                fault = fault.compat("error checking config");
            }
            self.error(field.value, fault);
        }
        within
    }

    /// One word of a closed set.
    pub(crate) fn choice<T>(
        &mut self,
        fields: &Fields,
        name: &str,
        words: &[&str],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Placed<T>> {
        let field = fields.get(name)?;
        // `mode: off` is a boolean to YAML and a word to everyone else.
        let written = self.text(field)?;
        if let Some(what) = parse(&written.what) {
            return Some(Placed { what, spot: written.spot });
        }
        let hint = match closest(&written.what, words.iter().copied()) {
            Some(word) => format!("did you mean `{word}`? It can be {}", one_of(words)),
            None => format!("it can be {}", one_of(words)),
        };
        let message = format!("`{}` is no {name}", written.what);
        self.error(field.value, Fault::new("unknown_choice", message).hint(hint));
        None
    }

    /// A length of time.
    pub(crate) fn duration(
        &mut self,
        fields: &Fields,
        name: &str,
    ) -> Option<Placed<tidegate_algorithms::Period>> {
        let field = fields.get(name)?;
        let written = self.text(field)?;
        let length = match parse_duration(&written.what) {
            Ok(length) => length,
            Err(message) => {
                let fault = Fault::new("invalid_duration", message)
                    .hint("write a whole number and `ms`, `s`, `m`, `h`, `d` or `w`, such as `5m`");
                self.error(field.value, fault);
                return None;
            }
        };
        let Ok(what) = tidegate_algorithms::Period::new(length) else {
            let message = format!("`{name}` must be between 1ms and 366d");
            self.error(field.value, Fault::new("out_of_range", message));
            return None;
        };
        Some(Placed { what, spot: written.spot })
    }
}
