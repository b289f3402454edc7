//! How a mapping is declared: once, as a struct.

use crate::bounds::Bounds;
use crate::shape::Shape;

/// The keys that one kind of mapping has.
#[derive(Debug)]
pub struct MappingType {
    /// Its name in the schema and in the reference page.
    pub name: &'static str,
    /// What it is, such as "a route".
    pub title: &'static str,
    /// Its keys, in the order in which they are explained.
    pub keys: &'static [Key],
}

/// One key of a mapping.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Whether it must be there.
    pub presence: Presence,
    /// What numbers it takes.
    pub bounds: Bounds,
    /// Words that the document's owner attached to it.
    pub marks: &'static [&'static str],
    /// What it takes; see [`Key::shape`].
    pub shape: fn(&Bounds) -> Shape,
}

/// Whether a key must be there, and what applies without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Required,
    /// It can be left out.
    Optional,
    /// Without it, this value applies.
    Default(&'static str),
}

impl MappingType {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of the keys.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }

    /// The mapping and all below it, each after the first that leads to it.
    pub fn reachable(&'static self) -> Vec<&'static MappingType> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect(&'static self, found: &mut Vec<&'static MappingType>) {
        if found.iter().any(|mapping| std::ptr::eq(*mapping, self)) {
            return;
        }
        found.push(self);
        for key in self.keys {
            if let Some(below) = key.shape().mapping() {
                below.collect(found);
            }
        }
    }
}

impl Key {
    /// What it takes.
    pub fn shape(&self) -> Shape {
        (self.shape)(&self.bounds)
    }

    /// Whether a word is attached to it.
    pub fn has_mark(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}

/// Declares a mapping as a struct, and makes the reader, the schema and the reference from it.
///
/// The doc comment of the struct is its title; those of the fields are the texts of schema and reference. A field is
/// an `Option` or a `Vec` of something that implements [`Item`](crate::Item). After its type can come `= required`,
/// or `=` and the default in quotes for the reference, and `in` with the bounds of a number. Words in brackets after
/// the name are marks for the document's owner; `as` gives the key when it is a word of Rust.
#[macro_export]
macro_rules! mapping {
    (
        #[doc = $title:literal]
        $vis:vis $name:ident $schema_name:literal {
            $(
                $(#[doc = $about:literal])+
                $field:ident $(as $key:literal)? $([$($mark:ident),+])?: $type:ty
                    $(= $presence:tt $(in $bounds:expr)?)?,
            )+
        }
    ) => {
        #[doc = $title]
        #[derive(Debug)]
        $vis struct $name {
            /// The keys that are there, with their locations.
            #[allow(dead_code, reason = "not every mapping has checks across its keys")]
            $vis keys: $crate::GivenKeys,
            $($(#[doc = $about])+ $vis $field: $type,)+
        }

        impl $name {
            /// The declaration.
            $vis fn mapping() -> &'static $crate::MappingType {
                static MAPPING: $crate::MappingType = $crate::MappingType {
                    name: $schema_name,
                    title: $title.trim_ascii(),
                    keys: &[$($crate::Key {
                        name: $crate::mapping!(@name $field $($key)?),
                        about: concat!($($about),+).trim_ascii(),
                        presence: $crate::mapping!(@presence $($presence)?),
                        bounds: $crate::mapping!(@bounds $($($bounds)?)?),
                        marks: &[$($(stringify!($mark)),+)?],
                        shape: <$type as $crate::Value>::shape,
                    }),+],
                };
                &MAPPING
            }
        }

        impl $crate::Item for $name {
            fn shape(_: &$crate::Bounds) -> $crate::Shape {
                $crate::Shape::Mapping(Self::mapping())
            }

            fn read(
                reader: &mut $crate::Reader<'_, '_>,
                given: &$crate::GivenKey,
            ) -> Option<Self> {
                let keys = reader.keys(given, Self::mapping())?;
                Some($name {
                    $($field: {
                        let name = $crate::mapping!(@name $field $($key)?);
                        <$type as $crate::Value>::read(reader, keys.get(name))
                    },)+
                    keys,
                })
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@presence) => { $crate::Presence::Optional };
    (@presence optional) => { $crate::Presence::Optional };
    (@presence required) => { $crate::Presence::Required };
    (@presence $default:literal) => { $crate::Presence::Default($default) };
    (@bounds) => { $crate::Bounds::NONE };
    (@bounds $bounds:expr) => { $crate::Bounds::of($bounds) };
}
