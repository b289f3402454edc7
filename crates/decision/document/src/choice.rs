//! Closed sets of words: enums that know the word of each variant.

use serde_json::{Value, json};

use crate::bounds::Bounds;
use crate::kind::Kind;
use crate::problems::Fault;
use crate::suggest::{closest, one_of};
use crate::yaml::Scalar;

/// A closed set of words, usually an enum made by [`choices!`](crate::choices).
pub trait Choice: Copy + 'static {
    /// The words, in the order in which they are explained.
    const WORDS: &'static [&'static str];

    /// The choice that a word stands for.
    fn from_word(word: &str) -> Option<Self>;

    /// The word for it.
    fn word(self) -> &'static str;
}

impl<T: Choice> Kind for T {
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
        T::from_word(&scalar.text).ok_or_else(|| unknown_choice(&scalar.text, T::WORDS))
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

/// Declares an enum with the word of each variant, or ties the variants of an enum to words.
///
/// A match over the enum is exhaustive, so a new word cannot be overlooked.
///
/// ```
/// use tidegate_document::choices;
///
/// choices! {
///     /// How to log.
///     #[derive(Default)]
///     pub enum Format {
///         /// For people.
///         #[default]
///         Text = "text",
///         /// For programs.
///         Json = "json",
///     }
/// }
/// assert_eq!(Format::from_word("json"), Some(Format::Json));
/// assert_eq!(Format::Text.as_str(), "text");
/// ```
#[macro_export]
macro_rules! choices {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_about:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$variant_about])* $variant,)+
        }

        $crate::choices! { $name { $($variant = $word,)+ } }
    };
    ($name:ident { $($variant:ident = $word:literal,)+ }) => {
        #[allow(dead_code, reason = "not every set of words is written as well as read")]
        impl $name {
            /// The words, in the order in which they are explained.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The choice that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::Choice for $name {
            const WORDS: &'static [&'static str] = $name::WORDS;

            fn from_word(word: &str) -> Option<Self> {
                $name::from_word(word)
            }

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    };
}
