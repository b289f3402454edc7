//! Reading a tree by its declaration; all problems are collected.

use std::collections::BTreeMap;

use crate::bounds::Bounds;
use crate::mapping::{Key, MappingType, Presence};
use crate::problems::{Fault, Location, Problems};
use crate::shape::Shape;
use crate::suggest::{did_you_mean, one_of};
use crate::value::Item;
use crate::yaml::{NodeId, NodeKind, PlainValue, Yaml};

/// The maximum of items in a list, unless the dialect says otherwise: a document with more is a mistake.
const ITEMS_MAX: usize = 10_000;

/// The locations of values by their path, such as `routes[2].path`.
pub type Locations = BTreeMap<String, Location>;

/// How one kind of document reports what the reader finds.
pub trait Dialect: std::fmt::Debug {
    /// The maximum of items in a list.
    fn items_max(&self) -> usize {
        ITEMS_MAX
    }

    /// Whether messages name a key by its path from the top.
    fn names_paths(&self) -> bool {
        false
    }

    /// Reports a key that its mapping does not have.
    fn unknown_key(
        &self,
        reader: &mut Reader<'_, '_>,
        mapping: &'static MappingType,
        name: &str,
        key: NodeId,
        _value: NodeId,
    ) {
        let hint = did_you_mean(name, mapping.names()).unwrap_or_else(|| {
            let names: Vec<&str> = mapping.names().collect();
            format!("the keys are {}", names.join(", "))
        });
        let message = format!("unknown key `{name}` in {}", mapping.title);
        reader.error_at(reader.yaml().location(key), Fault::new("unknown_key", message).hint(hint));
    }

    /// Reports a required key that is not there.
    fn missing_key(
        &self,
        reader: &mut Reader<'_, '_>,
        mapping: &MappingType,
        key: &Key,
        at: Location,
    ) {
        let message = format!("{} needs `{}`", mapping.title, key.name);
        reader.error_at(at, Fault::new("missing_key", message).hint(key.about));
    }

    /// What a compatible program says in this case.
    fn compat_message(&self, _misread: &ReadProblem<'_>) -> Option<String> {
        None
    }
}

/// The plain dialect: no exceptions.
#[derive(Clone, Copy, Debug)]
pub struct PlainDialect;

impl Dialect for PlainDialect {}

/// What the reader could not read.
#[derive(Clone, Copy, Debug)]
pub enum ReadProblem<'f> {
    /// A key that is not text.
    KeyNotText {
        /// Its text.
        text: &'f str,
    },
    /// An item of a list of mappings that is not a mapping.
    ItemNotMapping {
        /// Its text.
        text: &'f str,
    },
    /// A value of another type than its key takes.
    WrongType {
        /// The key.
        key: &'f Key,
        /// What the key takes.
        expected: &'f str,
        /// What is there.
        found: &'f str,
    },
    /// A value that its kind refuses.
    Value {
        /// The key.
        key: &'f Key,
        /// Why.
        fault: &'f Fault,
    },
}

/// A key that is there, or one item of its list.
#[derive(Clone, Copy, Debug)]
pub struct GivenKey {
    /// Its declaration.
    pub key: &'static Key,
    /// The location of the key.
    pub key_location: Location,
    /// The value.
    pub node: NodeId,
    /// The location of the value.
    pub location: Location,
    /// Whether this is an item of a list.
    is_item: bool,
}

impl GivenKey {
    /// An item of the value.
    pub const fn item(&self, node: NodeId, location: Location) -> GivenKey {
        GivenKey { node, location, is_item: true, ..*self }
    }
}

/// The keys of a mapping that are there.
#[derive(Debug)]
pub struct GivenKeys {
    /// The location of the mapping.
    pub location: Location,
    mapping: &'static MappingType,
    given: Vec<GivenKey>,
}

impl GivenKeys {
    /// A key, if it is there and not null.
    pub fn get(&self, name: &str) -> Option<&GivenKey> {
        debug_assert!(self.mapping.key(name).is_some(), "`{name}` in {}", self.mapping.title);
        self.given.iter().find(|given| given.key.name == name)
    }

    /// Whether a key is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All that are there and not null.
    pub fn iter(&self) -> impl Iterator<Item = &GivenKey> {
        self.given.iter()
    }

    /// The location of a key's value; of the mapping when the key is not there.
    pub fn value_location(&self, name: &str) -> Location {
        self.get(name).map_or(self.location, |given| given.location)
    }

    /// Reports the second of these keys when more than one is there.
    pub fn exclude_each_other(&self, names: &[&str], problems: &mut Problems<'_>) {
        let given: Vec<&GivenKey> = names.iter().filter_map(|name| self.get(name)).collect();
        if let [first, second, ..] = given.as_slice() {
            let message =
                format!("`{}` and `{}` exclude each other", first.key.name, second.key.name);
            problems.error(
                second.location,
                Fault::new("exclusive", message).hint("remove one of them"),
            );
        }
    }
}

/// A document's tree, and the problems found in it.
#[derive(Debug)]
pub struct Reader<'y, 'p> {
    yaml: &'y Yaml<'y>,
    problems: &'y mut Problems<'p>,
    pub(crate) dialect: &'y dyn Dialect,
    path: String,
    /// Recorded only when asked for: a path for each of 100,000 rules takes time.
    locations: Option<Locations>,
}

impl<'y, 'p> Reader<'y, 'p> {
    /// A reader of a tree.
    pub fn new(
        yaml: &'y Yaml<'y>,
        problems: &'y mut Problems<'p>,
        dialect: &'y dyn Dialect,
    ) -> Self {
        Reader { yaml, problems, dialect, path: String::new(), locations: None }
    }

    /// Records the locations of all values, for [`Reader::into_locations`].
    #[must_use]
    pub fn recording_locations(self) -> Self {
        Reader { locations: Some(Locations::new()), ..self }
    }

    /// The locations of all values that were read.
    pub fn into_locations(self) -> Locations {
        self.locations.unwrap_or_default()
    }

    /// The path of what is being read, such as `routes[2].path`; empty unless locations are recorded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the root. `None` when it is not of its type; the problem is reported.
    pub fn root<T: Item>(&mut self) -> Option<T> {
        let given = self.root_given()?;
        T::read(self, &given)
    }

    /// The root, as if it were the value of a key without a name.
    pub fn root_given(&mut self) -> Option<GivenKey> {
        static ROOT: Key = Key {
            name: "",
            about: "",
            presence: Presence::Required,
            bounds: Bounds::NONE,
            marks: &[],
            shape: |_| Shape::Other("a document", serde_json::Value::Null),
        };
        let node = self.yaml.root()?;
        let location = self.yaml.location(node);
        self.record(location);
        Some(GivenKey { key: &ROOT, key_location: location, node, location, is_item: false })
    }

    /// The tree.
    pub const fn yaml(&self) -> &'y Yaml<'y> {
        self.yaml
    }

    /// Reports an error at a location.
    pub fn error_at(&mut self, location: Location, fault: Fault) {
        self.problems.error(location, fault);
    }

    /// Reports a warning at a location.
    pub fn warn_at(&mut self, location: Location, fault: Fault) {
        self.problems.warn(location, fault);
    }

    /// Whether further errors are only counted.
    pub const fn is_full(&self) -> bool {
        self.problems.is_full()
    }

    /// Reports that the value of a key is refused.
    pub fn fault(&mut self, given: &GivenKey, fault: Fault) {
        let fault = self.name_key(given.key, fault);
        let compat =
            self.dialect.compat_message(&ReadProblem::Value { key: given.key, fault: &fault });
        self.error_at(given.location, fault.maybe_compat(compat));
    }

    /// Reports that the value of a key is not of its type.
    pub fn wrong_type(&mut self, given: &GivenKey, expected: &str) {
        self.report_type(given, expected, None);
    }

    fn report_type(&mut self, given: &GivenKey, expected: &str, hint: Option<String>) {
        let (key, found) = (given.key, self.yaml.describe(given.node));
        let fault = Fault::new("wrong_type", format!("expected {expected}, found {found}"));
        let problem = ReadProblem::WrongType { key, expected, found };
        let compat = self.dialect.compat_message(&problem);
        let fault = self.name_key(key, fault).maybe_hint(hint).maybe_compat(compat);
        self.error_at(given.location, fault);
    }

    /// Begins the message with the key, or with its path.
    fn name_key(&self, key: &Key, fault: Fault) -> Fault {
        match (key.name, self.dialect.names_paths()) {
            ("", _) => fault,
            (_, true) => fault.of(&self.path),
            (name, false) => fault.of(name),
        }
    }

    /// The pairs of a mapping, including those of its merge keys; `None` when it is not a mapping.
    pub fn pairs(&mut self, node: NodeId) -> Option<Vec<(NodeId, NodeId)>> {
        if !matches!(self.yaml.node(node).kind, NodeKind::Mapping(_)) {
            return None;
        }
        let merged = self.yaml.merged_pairs(node);
        for stray in merged.strays {
            let found = self.yaml.describe(stray);
            let message = format!("`<<`: expected a mapping or a list of mappings, found {found}");
            self.error_at(self.yaml.location(stray), Fault::new("wrong_type", message));
        }
        Some(merged.pairs)
    }

    /// The name of a key. `None` when it is not text; the problem is reported.
    pub fn key_name(&mut self, key: NodeId) -> Option<&'y str> {
        let yaml = self.yaml;
        match yaml.scalar(key) {
            Some(scalar) if scalar.plain() == PlainValue::Text => Some(&scalar.text),
            other => {
                let text = other.map_or("", |scalar| &*scalar.text);
                let compat = self.dialect.compat_message(&ReadProblem::KeyNotText { text });
                let message = format!("a key must be text, not {}", yaml.describe(key));
                let fault = Fault::new("key_not_text", message).hint("put quotes around it");
                self.error_at(yaml.location(key), fault.maybe_compat(compat));
                None
            }
        }
    }

    /// The keys of a mapping that are there; reports unknown and missing ones. `None` when it is not a mapping.
    pub fn keys(&mut self, given: &GivenKey, mapping: &'static MappingType) -> Option<GivenKeys> {
        let yaml = self.yaml;
        let Some(pairs) = self.pairs(given.node) else {
            self.not_a_mapping(given, mapping);
            return None;
        };
        let mut keys =
            GivenKeys { location: given.location, mapping, given: Vec::with_capacity(pairs.len()) };
        let mut names = Vec::with_capacity(pairs.len());
        for (key_node, node) in pairs {
            let Some(name) = self.key_name(key_node) else { continue };
            let Some(key) = mapping.key(name) else {
                self.dialect.unknown_key(self, mapping, name, key_node, node);
                continue;
            };
            names.push(key.name);
            if !yaml.is_null(node) {
                let (key_location, location) = (yaml.location(key_node), yaml.location(node));
                keys.given.push(GivenKey { key, key_location, node, location, is_item: false });
            }
        }
        for key in mapping.keys {
            if key.presence == Presence::Required && !names.contains(&key.name) {
                self.dialect.missing_key(self, mapping, key, keys.location);
            }
        }
        Some(keys)
    }

    fn not_a_mapping(&mut self, given: &GivenKey, mapping: &MappingType) {
        if given.is_item {
            let text = self.yaml.scalar(given.node).map_or("", |scalar| &*scalar.text);
            let compat = self.dialect.compat_message(&ReadProblem::ItemNotMapping { text });
            let found = self.yaml.describe(given.node);
            let fault =
                Fault::new("item_not_mapping", format!("expected a mapping, found {found}"));
            self.error_at(given.location, fault.of(given.key.name).maybe_compat(compat));
            return;
        }
        let names: Vec<&str> = mapping.names().take(3).collect();
        let hint = format!("it has keys such as {}", one_of(&names));
        self.report_type(given, "a mapping", Some(hint));
    }

    /// Reads the value of a key, or the item of its list with this index, under its path.
    pub fn within<T>(
        &mut self,
        given: &GivenKey,
        item: Option<usize>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if self.locations.is_none() {
            return read(self);
        }
        let length = self.path.len();
        self.path += &match item {
            Some(index) => format!("[{index}]"),
            None if self.path.is_empty() => given.key.name.to_owned(),
            None => format!(".{}", given.key.name),
        };
        self.record(given.location);
        let value = read(self);
        self.path.truncate(length);
        value
    }

    fn record(&mut self, location: Location) {
        if let Some(locations) = &mut self.locations {
            locations.insert(self.path.clone(), location);
        }
    }
}
