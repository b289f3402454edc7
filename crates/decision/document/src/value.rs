//! What fields of a declaration can be: one item, a list, a choice of two.

use crate::bounds::Bounds;
use crate::kind::Kind;
use crate::problems::{Fault, Location};
use crate::reader::{GivenKey, Reader};
use crate::shape::Shape;
use crate::yaml::{NodeKind, ScalarStyle};

/// A value that one node of the tree holds.
pub trait Item: Sized {
    /// Whether it is one scalar. A list of scalars can be written as one scalar.
    const IS_SCALAR: bool = false;

    /// What it takes.
    fn shape(bounds: &Bounds) -> Shape;

    /// Reads it. `None` when that is impossible; the problem is reported.
    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self>;
}

/// The field of a declaration.
pub trait Value: Sized {
    /// What the key takes.
    fn shape(bounds: &Bounds) -> Shape;

    /// Reads the value of a key, or what applies when the key is absent or wrong.
    fn read(reader: &mut Reader<'_, '_>, given: Option<&GivenKey>) -> Self;
}

impl<T: Item> Value for Option<T> {
    fn shape(bounds: &Bounds) -> Shape {
        T::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: Option<&GivenKey>) -> Self {
        let given = given?;
        reader.within(given, None, |reader| T::read(reader, given))
    }
}

impl<T: Item> Value for Vec<T> {
    fn shape(bounds: &Bounds) -> Shape {
        <Vec<T> as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: Option<&GivenKey>) -> Self {
        Option::read(reader, given).unwrap_or_default()
    }
}

impl<T: Item> Item for Vec<T> {
    fn shape(bounds: &Bounds) -> Shape {
        Shape::List(Box::new(T::shape(bounds)))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let yaml = reader.yaml();
        let single = [given.node];
        let items = match &yaml.node(given.node).kind {
            NodeKind::Sequence(items) => yaml.items(*items),
            NodeKind::Scalar(_) if T::IS_SCALAR => &single,
            NodeKind::Scalar(_) | NodeKind::Mapping(_) => {
                reader.wrong_type(given, &<Self as Item>::shape(&given.key.bounds).words());
                return None;
            }
        };
        let items_max = reader.dialect.items_max();
        if items.len() > items_max {
            let message = format!("{} items; the maximum is {items_max}", items.len());
            reader.fault(given, Fault::new("out_of_range", message));
            return None;
        }
        let mut read = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            let item = given.item(*node, yaml.location(*node));
            read.extend(reader.within(&item, Some(index), |reader| T::read(reader, &item)));
        }
        Some(read)
    }
}

impl<T: Kind> Item for T {
    const IS_SCALAR: bool = true;

    fn shape(bounds: &Bounds) -> Shape {
        Shape::Scalar(T::words(), T::schema(bounds))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let Some(scalar) = reader.yaml().scalar(given.node) else {
            reader.wrong_type(given, &T::words());
            return None;
        };
        T::parse(scalar, &given.key.bounds).map_err(|fault| reader.fault(given, fault)).ok()
    }
}

/// A value with the location of its key and its own.
#[derive(Clone, Debug)]
pub struct LocatedValue<T> {
    /// The value.
    pub value: T,
    /// The location of the value.
    pub location: Location,
    /// The location of the key.
    pub key: Location,
}

impl<T> LocatedValue<T> {
    /// The same location with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> LocatedValue<U> {
        LocatedValue { value: change(self.value), location: self.location, key: self.key }
    }
}

impl<T: Item> Item for LocatedValue<T> {
    const IS_SCALAR: bool = T::IS_SCALAR;

    fn shape(bounds: &Bounds) -> Shape {
        T::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let value = T::read(reader, given)?;
        Some(LocatedValue { value, location: given.location, key: given.key_location })
    }
}

/// A value, or `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrOff<T> {
    /// `off`.
    Off,
    /// The value.
    On(T),
}

impl<T> OrOff<T> {
    /// The value; none when it is `off`.
    pub fn into_option(self) -> Option<T> {
        match self {
            OrOff::Off => None,
            OrOff::On(value) => Some(value),
        }
    }
}

impl<T: Item> Item for OrOff<T> {
    const IS_SCALAR: bool = T::IS_SCALAR;

    fn shape(bounds: &Bounds) -> Shape {
        Shape::OrOff(Box::new(T::shape(bounds)))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        // The text counts, not the type: `off` is a boolean to YAML.
        let scalar = reader.yaml().scalar(given.node);
        if scalar.is_some_and(|scalar| scalar.style == ScalarStyle::Plain && scalar.text == "off") {
            return Some(OrOff::Off);
        }
        T::read(reader, given).map(OrOff::On)
    }
}

/// A scalar or a mapping.
#[derive(Clone, Debug)]
pub enum ScalarOr<S, M> {
    /// The scalar.
    Scalar(S),
    /// The mapping.
    Mapping(M),
}

impl<S: Item, M: Item> Item for ScalarOr<S, M> {
    fn shape(bounds: &Bounds) -> Shape {
        Shape::Either(Box::new(S::shape(bounds)), Box::new(M::shape(bounds)))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        match &reader.yaml().node(given.node).kind {
            NodeKind::Scalar(_) => S::read(reader, given).map(ScalarOr::Scalar),
            NodeKind::Mapping(_) => M::read(reader, given).map(ScalarOr::Mapping),
            NodeKind::Sequence(_) => {
                reader.wrong_type(given, &Self::shape(&given.key.bounds).words());
                None
            }
        }
    }
}

/// Names, each with a mapping.
#[derive(Debug)]
pub struct NameMap<T>(pub Vec<(LocatedValue<String>, T)>);

impl<T: Item> Item for NameMap<T> {
    fn shape(bounds: &Bounds) -> Shape {
        match T::shape(bounds) {
            Shape::Mapping(mapping) => Shape::Named(mapping),
            other => other,
        }
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let Some(pairs) = reader.pairs(given.node) else {
            reader.wrong_type(given, &Self::shape(&given.key.bounds).words());
            return None;
        };
        let yaml = reader.yaml();
        let mut named = Vec::new();
        for (name, node) in pairs {
            let location = yaml.location(name);
            let Some(text) = yaml.scalar(name) else {
                reader.wrong_type(&given.item(name, location), "text");
                continue;
            };
            let name = LocatedValue { value: text.text.to_string(), location, key: location };
            let item = given.item(node, yaml.location(node));
            named.extend(T::read(reader, &item).map(|read| (name, read)));
        }
        Some(NameMap(named))
    }
}
