//! Documents that people write: rule files, the gateway's document, configuration, switches, API keys.
//!
//! A document is declared once, as a struct: each field is a key, its type is what the key takes, its doc comment is
//! what schema and reference page print. [`mapping!`](crate::mapping) makes the reader from that declaration,
//! [`choices!`](crate::choices) ties the words of a closed set to the variants of an enum, and
//! [`section!`](crate::section) declares settings that files, environment variables and flags can set.
//!
//! Every problem is reported with its location, all at once, with a suggestion where there is one. What keys mean is
//! the caller's business: nothing here knows of rules or routes. Pure: no files, no environment.
//!
//! ```
//! use tidegate_document::{PlainDialect, Problems, Reader, Source, mapping, parse};
//!
//! mapping! {
//!     /// the palette
//!     pub Palette "palette" {
//!         /// The color of the background.
//!         background: Option<String> = "white",
//!         /// How many colors there are.
//!         colors: Option<u64> = "8" in 1..=256,
//!     }
//! }
//!
//! let sources = [Source::new("a.yaml", "colours: 3\nbackground: red\n")];
//! let mut problems = Problems::new(&sources);
//! let yaml = parse(0, &sources[0].text, &mut problems).expect("it is YAML");
//! let palette: Option<Palette> = Reader::new(&yaml, &mut problems, &PlainDialect).root();
//! assert_eq!(palette.and_then(|palette| palette.background).as_deref(), Some("red"));
//! let report = problems.into_report().to_string();
//! assert!(report.contains("--> a.yaml:1:1") && report.contains("did you mean `colors`?"));
//! ```

mod source;

mod problems;
mod report;
mod suggest;

mod yaml;

mod bounds;
mod choice;
mod kind;

mod mapping;
mod shape;

mod reader;
mod value;

mod lines;
mod reference;
mod schema;
mod settings;

pub use bounds::Bounds;
pub use choice::{Choice, Word, unknown_choice};
pub use kind::{
    DURATION_PATTERN, HeaderName, Kind, Network, Share, Size, Text, parse_duration, show_duration,
    wrong_type,
};
pub use lines::{LineWord, words_of_lines};
pub use mapping::{Key, MappingType, Presence};
pub use problems::{Fault, Location, Problems};
pub use reader::{Dialect, GivenKey, GivenKeys, Locations, PlainDialect, ReadProblem, Reader};
pub use reference::reference;
pub use report::{PROBLEMS_MAX, Problem, RelatedLocation, Report, Severity, Snippet};
pub use schema::{definitions, property};
pub use serde_json::Value as Json;
pub use settings::{
    Entry, Field, ItemFault, OFF, Plurality, Secrecy, SectionPart, Setting, SettingKind,
    SettingValue, join_path, settings_schema,
};
pub use shape::Shape;
pub use source::Source;
pub use suggest::{closest, did_you_mean, one_of};
pub use tidegate_words::{Words, words};
pub use value::{Item, LocatedValue, NameMap, OrOff, ScalarOr, Value};
pub use yaml::{
    Children, MergedPairs, Node, NodeId, NodeKind, PlainValue, Scalar, ScalarStyle, Yaml, parse,
};
