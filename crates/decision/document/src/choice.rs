//! Closed sets of words as kinds of scalars.

use std::fmt;

use serde_json::{Value, json};
use tidegate_words::Words;

use crate::bounds::Bounds;
use crate::kind::Kind;
use crate::problems::Fault;
use crate::settings::SettingKind;
use crate::suggest::{closest, one_of};
use crate::yaml::Scalar;

/// An enum whose words can be written in a document. Implemented by [`choices!`](crate::choices).
pub trait Choice: Words {}

/// A word of an enum that a crate below declares, which knows nothing of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T: Words> Kind for Word<T> {
    fn words() -> String {
        one_of(T::WORDS)
    }

    fn schema(_: &Bounds) -> Value {
        // To YAML 1.1 an unquoted `on` or `off` is a boolean.
        let off = T::WORDS.contains(&"off").then_some(Value::Bool(false));
        let on = T::WORDS.contains(&"on").then_some(Value::Bool(true));
        let words = T::WORDS.iter().map(|word| Value::from(*word));
        // An unquoted `429` is a number.
        let numbers = T::WORDS.iter().filter_map(|word| word.parse::<u64>().ok()).map(Value::from);
        json!({"enum": words.chain(off).chain(on).chain(numbers).collect::<Vec<_>>()})
    }

    fn parse(scalar: &Scalar<'_>, _: &Bounds) -> Result<Self, Fault> {
        // The text counts, not the type: `off` is a boolean to YAML.
        T::from_word(&scalar.text).map(Word).ok_or_else(|| unknown_choice(&scalar.text, T::WORDS))
    }
}

impl<T: Words + fmt::Debug + PartialEq> SettingKind for Word<T> {
    fn show(&self) -> Value {
        Value::from(self.0.word())
    }
}

impl<T: Choice> Kind for T {
    fn words() -> String {
        Word::<T>::words()
    }

    fn schema(bounds: &Bounds) -> Value {
        Word::<T>::schema(bounds)
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        Word::parse(scalar, bounds).map(|Word(choice)| choice)
    }
}

impl<T: Choice + fmt::Debug + PartialEq> SettingKind for T {
    fn show(&self) -> Value {
        Word(*self).show()
    }
}

/// The fault of a word that is not in its set.
pub fn unknown_choice(word: &str, words: &[&str]) -> Fault {
    let hint = match closest(word, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? It can be {}", one_of(words)),
        None => format!("it can be {}", one_of(words)),
    };
    Fault::new("unknown_choice", format!("unknown value `{word}`")).hint(hint)
}

/// Declares an enum with the word of each variant, like [`words!`](crate::words), as a kind of scalar.
///
/// ```
/// use tidegate_document::{Kind, choices};
///
/// choices! {
///     /// How to log.
///     pub enum Format {
///         /// For people.
///         Text = "text",
///         /// For programs.
///         Json = "json",
///     }
/// }
/// assert_eq!(Format::words(), "`text` or `json`");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$about:meta])* $vis:vis enum $name:ident $variants:tt) => {
        $crate::words! { $(#[$about])* $vis enum $name $variants }

        impl $crate::Choice for $name {}
    };
}
