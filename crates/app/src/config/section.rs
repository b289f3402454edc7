//! How a section of the configuration is declared: once.
//!
//! `section!` makes the struct, its defaults and the list of its fields from one
//! declaration, so that the reader, the environment, the schema, the reference
//! and `config show` cannot disagree about what there is. Defaults are written
//! as in the file.

use super::kinds::{Bounds, Plurality, Setting};

/// One line of the declaration, with the value behind it.
#[derive(Debug)]
pub enum Entry<'c> {
    /// A mapping with fields of its own.
    Section {
        /// Its keys from the top, joined by dots.
        path: String,
        /// What it is for.
        about: String,
    },
    /// A value.
    Field(Field<'c>),
}

/// One field of a configuration.
#[derive(Debug)]
pub struct Field<'c> {
    /// Its keys from the top, joined by dots.
    pub path: String,
    /// What it is for.
    pub about: String,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What numbers are accepted.
    pub bounds: Bounds,
    /// The value itself.
    pub value: &'c mut dyn Setting,
}

impl Field<'_> {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        variable_of(&self.path)
    }

    /// What can be written for it, in words.
    pub fn takes(&self) -> String {
        let shape = self.value.shape();
        let one = match self.bounds.in_words(shape) {
            Some(bounds) => format!("{}, {bounds}", shape.words()),
            None => shape.words(),
        };
        match self.value.plurality() {
            Plurality::One => one,
            Plurality::Optional => format!("{one}, or `off`"),
            Plurality::Many => format!("a list of: {one}"),
        }
    }
}

/// The environment variable of a path.
pub fn variable_of(path: &str) -> String {
    format!("TIDEGATE_{}", path.replace('.', "_").to_ascii_uppercase())
}

/// What the declaration says of a part.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) about: String,
    pub(super) default: &'static str,
    pub(super) bounds: Bounds,
}

/// A field or a section.
pub(super) trait Part {
    /// One without a meaning yet, to set the defaults in.
    fn blank() -> Self;

    /// Adds itself and what is below it.
    fn list<'c>(&'c mut self, path: String, about: About, entries: &mut Vec<Entry<'c>>);
}

impl<T: Setting + Default> Part for T {
    fn blank() -> Self {
        T::default()
    }

    fn list<'c>(&'c mut self, path: String, about: About, entries: &mut Vec<Entry<'c>>) {
        let About { about, default, bounds } = about;
        entries.push(Entry::Field(Field { path, about, default, bounds, value: self }));
    }
}

/// The path of a part within another.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Declares a section: documentation, name, type and default of each field, and
/// the bounds of numbers, in the unit that the field counts in.
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
            /// Adds the fields.
            fn list_fields<'c>(
                &'c mut self,
                path: &str,
                entries: &mut Vec<crate::config::section::Entry<'c>>,
            ) {
                use crate::config::section::{About, Part, join};
                $({
                    #[allow(unused_mut, unused_assignments, reason = "not every field has them")]
                    let (mut default, mut bounds) = ("", crate::config::kinds::Bounds::NONE);
                    $(
                        default = $default;
                        $(bounds = crate::config::kinds::Bounds::of($bounds);)?
                    )?
                    let about = concat!($($about),+).trim().to_owned();
                    let about = About { about, default, bounds };
                    Part::list(&mut self.$field, join(path, stringify!($field)), about, entries);
                })+
            }
        }

        impl crate::config::section::Part for $name {
            fn blank() -> Self {
                $name { $($field: crate::config::section::Part::blank(),)+ }
            }

            fn list<'c>(
                &'c mut self,
                path: String,
                about: crate::config::section::About,
                entries: &mut Vec<crate::config::section::Entry<'c>>,
            ) {
                let section =
                    crate::config::section::Entry::Section { path: path.clone(), about: about.about };
                entries.push(section);
                self.list_fields(&path, entries);
            }
        }
    };
}

pub(super) use section;
