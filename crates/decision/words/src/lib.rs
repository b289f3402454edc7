//! Closed sets of words: enums that know the word of each variant.
//!
//! The same words are keys of files, label values of metrics, members of answers and texts of logs. [`words!`] declares
//! an enum together with them, so that all agree, and a match over the enum is exhaustive, so that no word is
//! overlooked.
//!
//! ```
//! use tidegate_words::words;
//!
//! words! {
//!     /// How to log.
//!     #[derive(Default)]
//!     pub enum Format {
//!         /// For people.
//!         #[default]
//!         Text = "text",
//!         /// For programs.
//!         Json = "json",
//!     }
//! }
//! assert_eq!(Format::from_word("json"), Some(Format::Json));
//! assert_eq!(Format::default().as_str(), "text");
//! assert_eq!(Format::ALL.map(Format::as_str), Format::WORDS);
//! ```
//!
//! [`FailureKind`] is a set that several crates share. How words are read from files and described in schemas is the
//! business of `document`.

/// An enum whose variants have words. Implemented by [`words!`].
pub trait Words: Copy + 'static {
    /// The words, in the order in which they are explained.
    const WORDS: &'static [&'static str];

    /// The variant that a word stands for.
    fn from_word(word: &str) -> Option<Self>;

    /// The word for it.
    fn word(self) -> &'static str;
}

/// Declares an enum with the word of each variant.
#[macro_export]
macro_rules! words {
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

        #[allow(dead_code, reason = "not every set of words is written as well as read")]
        impl $name {
            /// All variants, in the order of their words.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// The words, in the order in which they are explained.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The variant that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::Words for $name {
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

words! {
    /// The kind of a failed call to a store or to Redis; the label of its metric.
    #[derive(PartialOrd, Ord)]
    pub enum FailureKind {
        /// No reply in time.
        Timeout = "timeout",
        /// No server listens, or it closed the connection.
        Refused = "refused",
        /// The connection was lost while the call was in flight.
        Lost = "lost",
        /// Too many calls wait in this process.
        Overloaded = "overloaded",
        /// The server is out of memory.
        Full = "full",
        /// The server is a replica and takes no writes.
        ReadOnly = "readonly",
        /// The server is loading its data.
        Loading = "loading",
        /// The server rejects the login, or the user lacks a right.
        Auth = "auth",
        /// The nodes of the cluster disagree on the slot, or no node has it.
        Cluster = "cluster",
        /// The reply is malformed.
        Protocol = "protocol",
        /// Any other failure.
        Other = "other",
    }
}

impl FailureKind {
    /// Whether the server may have executed a call that failed so. A timeout of this kind is one of connecting; a call
    /// that was sent and not answered in time is an error of its own.
    pub const fn may_have_run(self) -> bool {
        matches!(self, FailureKind::Lost | FailureKind::Protocol | FailureKind::Other)
    }
}
