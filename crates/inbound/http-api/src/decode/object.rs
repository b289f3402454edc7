//! A JSON object. Derived structs alone would also accept an array of their values.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A type with a description for error messages.
pub(crate) trait JsonObject {
    /// What the object is and which fields it needs.
    const DESCRIPTION: &'static str;
}

/// A value that is written as an object.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de> + JsonObject> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + JsonObject> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::DESCRIPTION)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// A type of which bodies have lists.
pub(crate) trait ListItem: JsonObject {
    /// The error for an empty list.
    const EMPTY: &'static str;
    /// The most items, and their name.
    const MAX: (usize, &'static str) = (usize::MAX, "items");
}

/// A list of objects that is not empty.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<Object<T>>);

impl<'de, T: Deserialize<'de> + ListItem> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        let (max, name) = T::MAX;
        match items.len() {
            0 => Err(Error::custom(T::EMPTY)),
            count if count > max => {
                Err(Error::custom(format_args!("a request may have {max} {name}, not {count}")))
            }
            _ => Ok(List(items)),
        }
    }
}
