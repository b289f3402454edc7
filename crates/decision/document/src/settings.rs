//! Settings: fields that a file, environment variables and flags can set, one over the other.
//!
//! [`section!`](crate::section) declares a section once. The list of its fields, with the values behind them, is what
//! readers, schema, reference page and `show` work from.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::bounds::Bounds;
use crate::choice::Choice;
use crate::kind::{HeaderName, Kind, Network, Size, show_duration};
use crate::mapping::{Key, Presence};
use crate::problems::Fault;
use crate::shape::Shape;
use crate::yaml::{Scalar, ScalarStyle};

/// The maximum of items in a list: a configuration with more is a mistake.
const ITEMS_MAX: usize = 1_000;

/// The word for "not set".
pub const OFF: &str = "off";

/// How much of a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// All of it.
    Open,
    /// A part: it may contain a password. The text that was given for it is not shown in reports.
    Redacted,
    /// Nothing. The text that was given for it is not shown in reports.
    Secret,
}

/// A kind of scalar that settings can have.
pub trait SettingKind: Kind + fmt::Debug + PartialEq + 'static {
    /// How much of it may be shown.
    const SECRECY: Secrecy = Secrecy::Open;

    /// The value for people and programs.
    fn show(&self) -> Value;
}

macro_rules! show_as {
    ($($kind:ty => |$value:ident| $shown:expr;)+) => {$(
        impl SettingKind for $kind {
            fn show(&self) -> Value {
                let $value = self;
                Value::from($shown)
            }
        }
    )+};
}

show_as! {
    bool => |value| *value;
    u32 => |value| *value;
    String => |value| value.as_str();
    PathBuf => |value| value.to_string_lossy().into_owned();
    Duration => |value| show_duration(*value);
    Size => |value| value.to_string();
    HeaderName => |value| value.as_str();
    Network => |value| value.to_string();
}

impl<T: Choice + fmt::Debug + PartialEq> SettingKind for T {
    fn show(&self) -> Value {
        Value::from(self.word())
    }
}

/// How many values a setting has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plurality {
    /// Exactly one.
    One,
    /// One, or `off`.
    Optional,
    /// A list, which may be empty.
    Many,
}

/// What is wrong with a value, or with one item of a list.
#[derive(Clone, Debug)]
pub struct ItemFault {
    /// The index of the item.
    pub item: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
}

impl From<Fault> for ItemFault {
    fn from(fault: Fault) -> Self {
        ItemFault { item: None, fault }
    }
}

/// One value, an optional one, or a list.
pub trait SettingValue: fmt::Debug + PartialEq + Sized + 'static {
    /// One value.
    type Element: SettingKind;

    /// How many there are.
    const PLURALITY: Plurality;

    /// Reads what is given.
    ///
    /// # Errors
    /// When it is not of the kind; for a list, with every item that is not.
    fn read(given: &[Scalar<'_>], bounds: &Bounds) -> Result<Self, Vec<ItemFault>>;

    /// The value for people and programs.
    fn show_all(&self) -> Value;
}

/// The only scalar that is given.
fn only<'g, 's, K: Kind>(given: &'g [Scalar<'s>]) -> Result<&'g Scalar<'s>, Vec<ItemFault>> {
    let [scalar] = given else {
        let found = if given.is_empty() { "an empty list" } else { "a list" };
        let message = format!("expected {}, found {found}", K::words());
        return Err(vec![Fault::new("wrong_type", message).into()]);
    };
    Ok(scalar)
}

impl<T: SettingKind> SettingValue for T {
    type Element = T;

    const PLURALITY: Plurality = Plurality::One;

    fn read(given: &[Scalar<'_>], bounds: &Bounds) -> Result<Self, Vec<ItemFault>> {
        T::parse(only::<T>(given)?, bounds).map_err(|fault| vec![fault.into()])
    }

    fn show_all(&self) -> Value {
        self.show()
    }
}

impl<T: SettingKind> SettingValue for Option<T> {
    type Element = T;

    const PLURALITY: Plurality = Plurality::Optional;

    fn read(given: &[Scalar<'_>], bounds: &Bounds) -> Result<Self, Vec<ItemFault>> {
        let scalar = only::<T>(given)?;
        // The text counts, not the type: `off` is a boolean to YAML.
        if scalar.style == ScalarStyle::Plain && scalar.text == OFF {
            return Ok(None);
        }
        T::parse(scalar, bounds).map(Some).map_err(|fault| vec![fault.into()])
    }

    fn show_all(&self) -> Value {
        self.as_ref().map_or(Value::Null, SettingKind::show)
    }
}

impl<T: SettingKind> SettingValue for Vec<T> {
    type Element = T;

    const PLURALITY: Plurality = Plurality::Many;

    fn read(given: &[Scalar<'_>], bounds: &Bounds) -> Result<Self, Vec<ItemFault>> {
        if given.len() > ITEMS_MAX {
            let message = format!("{} items; the maximum is {ITEMS_MAX}", given.len());
            return Err(vec![Fault::new("out_of_range", message).into()]);
        }
        let (mut items, mut faults) = (Vec::new(), Vec::new());
        for (index, scalar) in given.iter().enumerate() {
            match T::parse(scalar, bounds) {
                Ok(item) => items.push(item),
                Err(fault) => faults.push(ItemFault { item: Some(index), fault }),
            }
        }
        if faults.is_empty() { Ok(items) } else { Err(faults) }
    }

    fn show_all(&self) -> Value {
        Value::Array(self.iter().map(SettingKind::show).collect())
    }
}

/// The value of a field, whatever its kind.
pub trait Setting: fmt::Debug + Any {
    /// How many values there are.
    fn plurality(&self) -> Plurality;

    /// What one value takes.
    fn shape(&self, bounds: &Bounds) -> Shape;

    /// A bound as it would be written.
    fn show_bound(&self, bound: u64) -> String;

    /// Sets what is given.
    ///
    /// # Errors
    /// When it is not of the kind; for a list, with every item that is not.
    fn set(&mut self, given: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<ItemFault>>;

    /// The value for people and programs. A secret shows only that it is set.
    fn shown(&self) -> Value;

    /// How much of the value may be shown.
    fn secrecy(&self) -> Secrecy;

    /// Whether another value is the same, even when neither may be shown.
    fn is_same(&self, other: &dyn Setting) -> bool;

    /// Sets a text; commas separate the items of a list.
    ///
    /// # Errors
    /// When it is not of the kind.
    fn set_text(&mut self, text: &str, bounds: &Bounds) -> Result<(), Vec<ItemFault>> {
        let scalar =
            |text: &str| Scalar { text: text.to_owned().into(), style: ScalarStyle::Plain };
        if self.plurality() == Plurality::Many {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let items: Vec<Scalar<'_>> = items.map(scalar).collect();
            return self.set(&items, bounds);
        }
        self.set(&[scalar(text)], bounds)
    }
}

impl<T: SettingValue> Setting for T {
    fn plurality(&self) -> Plurality {
        T::PLURALITY
    }

    fn shape(&self, bounds: &Bounds) -> Shape {
        Shape::Scalar(T::Element::words(), T::Element::schema(bounds))
    }

    fn show_bound(&self, bound: u64) -> String {
        <T::Element as Kind>::show_bound(bound)
    }

    fn set(&mut self, given: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<ItemFault>> {
        *self = T::read(given, bounds)?;
        Ok(())
    }

    fn shown(&self) -> Value {
        self.show_all()
    }

    fn secrecy(&self) -> Secrecy {
        T::Element::SECRECY
    }

    fn is_same(&self, other: &dyn Setting) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}

/// One line of a declaration, with the value behind it.
#[derive(Debug)]
pub enum Entry<'c> {
    /// A section with fields of its own.
    Section {
        /// Its keys from the top, joined by dots.
        path: String,
        /// What it is for.
        about: &'static str,
    },
    /// A field.
    Field(Field<'c>),
}

/// One field.
#[derive(Debug)]
pub struct Field<'c> {
    /// Its keys from the top, joined by dots.
    pub path: String,
    /// Its declaration.
    pub key: &'static Key,
    /// The value.
    pub value: &'c mut dyn Setting,
}

impl Field<'_> {
    /// Its default, as it would be written.
    pub const fn default(&self) -> &'static str {
        match self.key.presence {
            Presence::Default(text) => text,
            Presence::Required | Presence::Optional => "",
        }
    }

    /// What one value takes, in words.
    pub fn words(&self) -> String {
        self.value.shape(&self.key.bounds).words()
    }

    /// What it takes, with bounds, in words.
    pub fn takes(&self) -> String {
        let one = match self.key.bounds.get() {
            Some((min, max)) => {
                let show = |bound| self.value.show_bound(bound);
                format!("{}, {} to {}", self.words(), show(min), show(max))
            }
            None => self.words(),
        };
        match self.value.plurality() {
            Plurality::One => one,
            Plurality::Optional => format!("{one}, or `off`"),
            Plurality::Many => format!("a list of: {one}"),
        }
    }

    /// Its JSON Schema.
    pub fn schema(&self) -> Value {
        let one = self.value.shape(&self.key.bounds).schema();
        let mut any: Vec<Value> = vec![one.clone(), json!({"type": "null"})];
        match self.value.plurality() {
            Plurality::One => {}
            // To YAML 1.1 an unquoted `off` is a boolean.
            Plurality::Optional => any.push(json!({"enum": [OFF, false]})),
            Plurality::Many => {
                any.push(json!({"type": "array", "items": one, "maxItems": ITEMS_MAX}));
            }
        }
        let mut schema = json!({"description": self.key.about, "anyOf": any});
        let default = self.value.shown();
        if !default.is_null() {
            schema["default"] = default;
        }
        schema
    }
}

/// The JSON Schema of sections and fields.
pub fn settings_schema(about: &str, entries: &[Entry<'_>]) -> Value {
    let section = |about: &str| {
        json!({
            "type": ["object", "null"],
            "description": about,
            "properties": Map::new(),
            "additionalProperties": false,
        })
    };
    let mut root = section(about);
    for entry in entries {
        let (path, schema) = match entry {
            Entry::Section { path, about } => (path, section(about)),
            Entry::Field(field) => (&field.path, field.schema()),
        };
        // A section comes before its fields.
        let mut parent = &mut root;
        let (sections, name) = path.rsplit_once('.').unwrap_or(("", path));
        for section in sections.split('.').filter(|section| !section.is_empty()) {
            parent = &mut parent["properties"][section];
        }
        parent["properties"][name] = schema;
    }
    root
}

/// A field or a section, as [`section!`](crate::section) sees it.
pub trait SectionPart {
    /// What its key takes.
    fn shape(bounds: &Bounds) -> Shape
    where
        Self: Sized;

    /// A value to set the defaults in.
    fn blank() -> Self;

    /// Adds itself and what is below it.
    fn list<'c>(&'c mut self, path: String, key: &'static Key, entries: &mut Vec<Entry<'c>>);
}

impl<T: SettingValue + Default> SectionPart for T {
    fn shape(bounds: &Bounds) -> Shape {
        let one = Box::new(Shape::Scalar(T::Element::words(), T::Element::schema(bounds)));
        match T::PLURALITY {
            Plurality::One => *one,
            Plurality::Optional => Shape::OrOff(one),
            Plurality::Many => Shape::List(one),
        }
    }

    fn blank() -> Self {
        T::default()
    }

    fn list<'c>(&'c mut self, path: String, key: &'static Key, entries: &mut Vec<Entry<'c>>) {
        entries.push(Entry::Field(Field { path, key, value: self }));
    }
}

/// The path of a part within another.
pub fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Declares a section: documentation, name, type and default of each field, and the bounds of numbers, in the unit that
/// the field counts in.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $section_about:literal])+
        $name:ident {
            $(
                $(#[doc = $about:literal])+
                $field:ident: $kind:ty $(= $default:literal $(in $bounds:expr)?)?,
            )+
        }
    ) => {
        $(#[doc = $section_about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $about])+ pub $field: $kind,)+
        }

        impl $name {
            /// The keys of the section.
            pub(crate) fn mapping() -> &'static $crate::MappingType {
                static MAPPING: $crate::MappingType = $crate::MappingType {
                    name: stringify!($name),
                    title: concat!($($section_about),+).trim_ascii(),
                    keys: &[$($crate::Key {
                        name: stringify!($field),
                        about: concat!($($about),+).trim_ascii(),
                        presence: $crate::mapping!(@presence $($default)?),
                        bounds: $crate::mapping!(@bounds $($($bounds)?)?),
                        marks: &[],
                        shape: <$kind as $crate::SectionPart>::shape,
                    }),+],
                };
                &MAPPING
            }

            /// Adds the fields, which are declared in the order of the keys.
            fn list_fields<'c>(&'c mut self, path: &str, entries: &mut Vec<$crate::Entry<'c>>) {
                let mut keys = Self::mapping().keys.iter();
                $(if let Some(key) = keys.next() {
                    let path = $crate::join_path(path, key.name);
                    $crate::SectionPart::list(&mut self.$field, path, key, entries);
                })+
            }
        }

        impl $crate::SectionPart for $name {
            fn shape(_: &$crate::Bounds) -> $crate::Shape {
                $crate::Shape::Mapping(Self::mapping())
            }

            fn blank() -> Self {
                $name { $($field: $crate::SectionPart::blank(),)+ }
            }

            fn list<'c>(
                &'c mut self,
                path: String,
                key: &'static $crate::Key,
                entries: &mut Vec<$crate::Entry<'c>>,
            ) {
                entries.push($crate::Entry::Section { path: path.clone(), about: key.about });
                self.list_fields(&path, entries);
            }
        }
    };
}
