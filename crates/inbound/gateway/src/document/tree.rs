//! From YAML to a tree of values of the right kinds, with the place of each.
//!
//! Everything that the vocabulary can say is checked here: unknown keys, missing ones, wrong
//! kinds, ranges. What values mean together is for those who use them.

use std::collections::BTreeMap;
use std::time;

use http::header;
use tidegate_rules::reading::{
    Fault, Kind, NodeId, Plain, Problems, Scalar, Spot, Style, Yaml, closest, one_of,
    parse_duration,
};

use super::place::Place;
use super::vocabulary::{Key, Shape, Without, keys_of};

/// The most items of a list: a document with more is a mistake.
const ITEMS_MAX: usize = 10_000;

const SIZE_UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A mapping that was read: what is right of it.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Where it is.
    pub(super) spot: Spot,
    found: BTreeMap<&'static str, Found>,
}

#[derive(Debug)]
struct Found {
    spot: Spot,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Off,
    Text(String),
    Texts(Vec<(String, Spot)>),
    Flag(bool),
    Count(u64),
    Duration(time::Duration),
    Header(header::HeaderName),
    Choice(&'static str),
    Choices(Vec<&'static str>),
    One(Section),
    Many(Vec<Section>),
}

macro_rules! getters {
    ($($about:literal $name:ident: $variant:ident -> $kind:ty = |$value:ident| $given:expr;)+) => {
        $(
            #[doc = $about]
            pub(super) fn $name(&self, key: &str) -> Option<$kind> {
                match self.found.get(key).map(|found| &found.value) {
                    Some(Value::$variant($value)) => Some($given),
                    _ => None,
                }
            }
        )+
    };
}

impl Section {
    getters! {
        "A text." text: Text -> &str = |value| value.as_str();
        "A flag." flag: Flag -> bool = |value| *value;
        "A number, also of bytes." count: Count -> u64 = |value| *value;
        "A length of time." duration: Duration -> time::Duration = |value| *value;
        "A field's name." header: Header -> &header::HeaderName = |value| value;
        "A word." choice: Choice -> &'static str = |value| *value;
        "Words." choices: Choices -> &[&'static str] = |value| value.as_slice();
        "A mapping." one: One -> &Section = |value| value;
    }

    /// Texts with their places.
    pub(super) fn texts(&self, key: &str) -> &[(String, Spot)] {
        match self.found.get(key).map(|found| &found.value) {
            Some(Value::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// Texts alone.
    pub(super) fn strings(&self, key: &str) -> Vec<String> {
        self.texts(key).iter().map(|(text, _)| text.clone()).collect()
    }

    /// Mappings.
    pub(super) fn many(&self, key: &str) -> &[Section] {
        match self.found.get(key).map(|found| &found.value) {
            Some(Value::Many(sections)) => sections,
            _ => &[],
        }
    }

    /// Whether the key was given and could be read.
    pub(super) fn has(&self, key: &str) -> bool {
        self.found.contains_key(key)
    }

    /// Whether the key was given as `off`.
    pub(super) fn is_off(&self, key: &str) -> bool {
        matches!(self.found.get(key), Some(Found { value: Value::Off, .. }))
    }

    /// Where a key's value is; without it, where the mapping is.
    pub(super) fn spot(&self, key: &str) -> Spot {
        self.found.get(key).map_or(self.spot, |found| found.spot)
    }
}

/// Where things are, by the names that settings have: `routes[2].path`.
pub(super) type Places = BTreeMap<String, Spot>;

/// Reads a tree.
pub(super) struct Reader<'y, 's, 'p> {
    yaml: &'y Yaml<'s>,
    problems: &'y mut Problems<'p>,
    pub(super) places: Places,
}

impl<'y, 's, 'p> Reader<'y, 's, 'p> {
    pub(super) fn new(yaml: &'y Yaml<'s>, problems: &'y mut Problems<'p>) -> Self {
        Reader { yaml, problems, places: Places::new() }
    }

    /// One mapping and all below it.
    // Recursion ends with the places, of which none contains itself.
    pub(super) fn section(&mut self, id: NodeId, place: Place, path: &str) -> Section {
        let yaml = self.yaml;
        let mut section = Section { spot: yaml.spot(id), found: BTreeMap::new() };
        self.places.insert(path.to_owned(), section.spot);
        if !matches!(yaml.node(id).kind, Kind::Mapping(_)) {
            let message = format!("{} is a mapping, not {}", place.title(), yaml.describe(id));
            let keys: Vec<&str> = keys_of(place).map(|key| key.name).take(3).collect();
            let hint = format!("it holds keys such as {}", one_of(&keys));
            self.problems.error(yaml.spot(id), Fault::new("wrong_type", message).hint(hint));
            return section;
        }
        let merged = yaml.merged_pairs(id);
        for stray in merged.strays {
            let message = format!("`<<` takes a mapping, not {}", yaml.describe(stray));
            self.problems.error(yaml.spot(stray), Fault::new("wrong_type", message));
        }
        let mut named = Vec::new();
        for (name, value) in merged.pairs {
            let Some(key) = self.key(name, place) else { continue };
            named.push(key.name);
            if yaml.is_null(value) {
                continue;
            }
            let path = join(path, key.name);
            self.places.insert(path.clone(), yaml.spot(value));
            if let Some(read) = self.value(value, key, &path) {
                section.found.insert(key.name, Found { spot: yaml.spot(value), value: read });
            }
        }
        for key in keys_of(place) {
            let given = named.contains(&key.name);
            if key.without == Without::Wrong && !given {
                let message = format!("{} needs `{}`", place.title(), key.name);
                let fault = Fault::new("missing_key", message).hint(key.about);
                self.problems.error(section.spot, fault);
            }
        }
        section
    }

    fn key(&mut self, name: NodeId, place: Place) -> Option<&'static Key> {
        let yaml = self.yaml;
        let Some(text) = yaml.scalar(name).filter(|name| name.plain() == Plain::Text) else {
            let message = format!("a key must be text, not {}", yaml.describe(name));
            self.problems.error(yaml.spot(name), Fault::new("key_not_text", message));
            return None;
        };
        let known = keys_of(place).find(|key| key.name == text.text);
        if known.is_none() {
            let names: Vec<&str> = keys_of(place).map(|key| key.name).collect();
            let hint = match closest(&text.text, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("{} knows {}", place.title(), names.join(", ")),
            };
            let message = format!("{} has no key `{}`", place.title(), text.text);
            self.problems.error(yaml.spot(name), Fault::new("unknown_key", message).hint(hint));
        }
        known
    }

    /// A value of its kind; `None` when it is not, which was told.
    fn value(&mut self, id: NodeId, key: &Key, path: &str) -> Option<Value> {
        let yaml = self.yaml;
        let scalar = yaml.scalar(id);
        let off = |scalar: &Scalar<'_>| scalar.style == Style::Plain && scalar.text == "off";
        if key.off && scalar.is_some_and(off) {
            return Some(Value::Off);
        }
        match key.shape {
            Shape::One(place) => Some(Value::One(self.section(id, place, path))),
            Shape::CountOr(place) if scalar.is_none() => {
                Some(Value::One(self.section(id, place, path)))
            }
            Shape::Many(place) => {
                let items = self.items(id, key, path)?;
                let items = items.iter().enumerate();
                let read = |(at, item): (usize, &NodeId)| {
                    self.section(*item, place, &format!("{path}[{at}]"))
                };
                Some(Value::Many(items.map(read).collect()))
            }
            Shape::Texts | Shape::Choices(_) => self.list(id, key, path),
            shape => match scalar {
                Some(scalar) => self.single(id, scalar, shape, key),
                None => self.wrong(id, key),
            },
        }
    }

    /// The items of a list; one value alone is a list of one where texts are wanted.
    fn items(&mut self, id: NodeId, key: &Key, path: &str) -> Option<Vec<NodeId>> {
        let yaml = self.yaml;
        let alone = !matches!(key.shape, Shape::Many(_));
        let items = match &yaml.node(id).kind {
            Kind::Sequence(items) => yaml.items(*items).to_vec(),
            Kind::Scalar(_) if alone => vec![id],
            Kind::Scalar(_) | Kind::Mapping(_) => return self.wrong(id, key),
        };
        if items.len() > ITEMS_MAX {
            let message = format!("`{path}` has {} items; the most is {ITEMS_MAX}", items.len());
            self.problems.error(yaml.spot(id), Fault::new("out_of_range", message));
            return None;
        }
        Some(items)
    }

    fn list(&mut self, id: NodeId, key: &Key, path: &str) -> Option<Value> {
        let items = self.items(id, key, path)?;
        let (mut texts, mut words) = (Vec::new(), Vec::new());
        for (at, item) in items.into_iter().enumerate() {
            let spot = self.yaml.spot(item);
            self.places.insert(format!("{path}[{at}]"), spot);
            let Some(scalar) = self.yaml.scalar(item) else {
                self.wrong::<()>(item, key);
                continue;
            };
            let shape = match key.shape {
                Shape::Choices(known) => Shape::Choice(known),
                _ => Shape::Text,
            };
            match self.single(item, scalar, shape, key) {
                Some(Value::Text(text)) => texts.push((text, spot)),
                Some(Value::Choice(word)) => words.push(word),
                _ => {}
            }
        }
        let choices = matches!(key.shape, Shape::Choices(_));
        Some(if choices { Value::Choices(words) } else { Value::Texts(texts) })
    }

    fn single(
        &mut self,
        id: NodeId,
        scalar: &Scalar<'_>,
        shape: Shape,
        key: &Key,
    ) -> Option<Value> {
        let text = &*scalar.text;
        let plain = scalar.plain();
        let read = match shape {
            Shape::Text if text.is_empty() || plain == Plain::Null => {
                Err(Fault::new("empty", format!("`{}` is empty", key.name)).hint(key.about))
            }
            Shape::Text => Ok(Value::Text(text.to_owned())),
            Shape::Flag => match plain {
                Plain::Bool(flag) => Ok(Value::Flag(flag)),
                _ => return self.wrong(id, key),
            },
            Shape::Count { least, most } => match plain {
                Plain::Integer(number) => within(number, least, most).map(Value::Count),
                _ => return self.wrong(id, key),
            },
            Shape::CountOr(_) => match plain {
                Plain::Integer(number) => within(number, 0, u64::MAX).map(Value::Count),
                _ => return self.wrong(id, key),
            },
            Shape::Duration => parse_duration(text).map(Value::Duration).map_err(|message| {
                Fault::new("invalid_duration", message).hint("write it as `250ms`, `30s` or `5m`")
            }),
            Shape::Size => size(text).map(Value::Count),
            Shape::HeaderName => header_name(text).map(Value::Header),
            Shape::Choice(words) => chosen(text, words).map(Value::Choice),
            Shape::Texts | Shape::Choices(_) | Shape::One(_) | Shape::Many(_) => {
                return self.wrong(id, key);
            }
        };
        read.map_err(|fault| self.problems.error(self.yaml.spot(id), fault)).ok()
    }

    /// Says that a value is not of its kind.
    fn wrong<T>(&mut self, id: NodeId, key: &Key) -> Option<T> {
        let (yaml, wanted) = (self.yaml, key.shape.words());
        let message = format!("`{}` takes {wanted}, not {}", key.name, yaml.describe(id));
        self.problems.error(yaml.spot(id), Fault::new("wrong_type", message));
        None
    }
}

impl Shape {
    /// The kind in words.
    pub(super) fn words(self) -> String {
        match self {
            Shape::Text => "text".to_owned(),
            Shape::Texts => "a list of texts".to_owned(),
            Shape::Flag => "`true` or `false`".to_owned(),
            Shape::Count { .. } => "a whole number".to_owned(),
            Shape::Duration => "a length of time such as `5s`".to_owned(),
            Shape::Size => "a size such as `64KiB`".to_owned(),
            Shape::HeaderName => "the name of a header field".to_owned(),
            Shape::Choice(words) => one_of(words),
            Shape::Choices(words) => format!("a list of {}", one_of(words)),
            Shape::One(place) => format!("a mapping: {}", place.title()),
            Shape::Many(place) => format!("a list of mappings: each {}", place.title()),
            Shape::CountOr(place) => format!("a whole number, or a mapping: {}", place.title()),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn within(number: i128, least: u64, most: u64) -> Result<u64, Fault> {
    let fits = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
    fits.ok_or_else(|| {
        Fault::new("out_of_range", format!("{number} is not between {least} and {most}"))
    })
}

fn size(text: &str) -> Result<u64, Fault> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
    match (number.parse::<u64>(), unit) {
        (Ok(number), Some((_, bytes))) => Ok(number.saturating_mul(*bytes)),
        _ => Err(Fault::new("invalid_size", format!("`{text}` is no size"))
            .hint("write a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `64KiB`")),
    }
}

fn header_name(text: &str) -> Result<header::HeaderName, Fault> {
    header::HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("`{text}` is no name of a header field");
        Fault::new("invalid_header", message).hint("letters, digits and `-`, such as `X-User`")
    })
}

fn chosen(text: &str, words: &'static [&'static str]) -> Result<&'static str, Fault> {
    words.iter().copied().find(|word| *word == text).ok_or_else(|| {
        let hint = match closest(text, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? It can be {}", one_of(words)),
            None => format!("it can be {}", one_of(words)),
        };
        Fault::new("unknown_choice", format!("`{text}` is not possible here")).hint(hint)
    })
}
