//! Objects with known fields, texts and whole numbers, with plain words for
//! what is wrong.
//!
//! Not derived: a derived object also reads a list of its values in order, and
//! does not guess what a misspelt field was meant to be.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tidegate_rules::closest;

/// How much of an unknown field's name is repeated.
const NAME_CHARS_MAX: usize = 64;

/// An object that is read field by field.
pub(super) trait Object<'de>: Sized {
    /// What was read so far.
    type Draft: Default;
    /// What it is, for messages.
    const CALLED: &'static str;
    /// Its fields; at most 32.
    const FIELDS: &'static [&'static str];

    /// Reads the value of a field, given by its place in the list.
    fn fill<A: MapAccess<'de>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error>;

    /// The object, if everything that it needs is there.
    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E>;
}

/// An object, where a value to deserialize is wanted.
#[derive(Debug)]
pub(super) struct Written<T>(pub(super) T);

impl<'de, T: Object<'de>> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Written)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Object<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::CALLED)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut draft = T::Draft::default();
        let mut seen = 0_u32;
        while let Some(field) = map.next_key_seed(FieldOf(T::FIELDS))? {
            let bit = u32::try_from(field).ok().and_then(|place| 1_u32.checked_shl(place));
            let bit = bit.unwrap_or_default();
            if seen & bit != 0 {
                let name = T::FIELDS.get(field).copied().unwrap_or_default();
                return Err(A::Error::custom(format_args!("the field `{name}` is there twice")));
            }
            seen |= bit;
            T::fill(&mut draft, field, &mut map)?;
        }
        T::finish(draft)
    }
}

/// Reads a field's name as its place in the list.
struct FieldOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for FieldOf {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldOf {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let place = self.0.iter().position(|field| *field == name);
        place.ok_or_else(|| E::custom(unknown(name, self.0)))
    }
}

#[cold]
fn unknown(name: &str, fields: &[&str]) -> String {
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    match closest(name, fields.iter().copied()) {
        Some(meant) => format!("there is no field `{shown}`; did you mean `{meant}`?"),
        None => format!("there is no field `{shown}`; there are: {}", fields.join(", ")),
    }
}

/// Reads a text, borrowed where nothing in it is escaped.
pub(super) fn text<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Cow<'a, str>, A::Error> {
    map.next_value::<Text<'a>>().map(|Text(text)| text)
}

/// Reads a text that may be `null`.
pub(super) fn some_text<'a, A: MapAccess<'a>>(
    map: &mut A,
) -> Result<Option<Cow<'a, str>>, A::Error> {
    Ok(map.next_value::<Option<Text<'a>>>()?.map(|Text(text)| text))
}

/// Reads a whole number, not below zero.
pub(super) fn number<'a, A: MapAccess<'a>>(map: &mut A) -> Result<u64, A::Error> {
    map.next_value::<Whole>().map(|Whole(number)| number)
}

/// Reads a whole number that may be `null`.
pub(super) fn some_number<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Option<u64>, A::Error> {
    Ok(map.next_value::<Option<Whole>>()?.map(|Whole(number)| number))
}

/// A field that must be there.
pub(super) fn required<T, E: Error>(field: Option<T>, name: &'static str) -> Result<T, E> {
    field.ok_or_else(|| E::missing_field(name))
}

#[derive(Debug)]
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

#[derive(Debug)]
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number))
    }
}
