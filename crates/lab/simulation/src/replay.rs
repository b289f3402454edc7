//! Recorded traffic, played through rules in virtual time.
//!
//! `read` reads logs of web servers, of Envoy, of the gateway, and the decision log; `describe` turns requests into
//! descriptors; `order` puts them in the order in which they began; `rule_set` decides them with the production engine
//! and a manual clock. Two sets of rules can be compared request by request (`flips`). Memory grows with the number of
//! callers, not of lines, and the same input gives the same bytes.

mod describe;
mod exact_window;
mod flips;
mod habits;
mod logged_request;
mod obedient;
mod order;
mod pending;
mod read;
mod render;
mod report;
mod rule_set;
mod run;
mod threshold;
mod timeline;

pub use crate::overload::Format;
pub use describe::{DescriptorRecipes, DescriptorWriter, RecipeError, RequestDescriber};
pub use exact_window::WindowErrors;
pub use logged_request::{LoggedRequest, TimeResolution};
pub use read::{FORMATS, FormatError, LineReaderFormat, LogLine, LogReader};
pub use render::{ChartLine, LineChart};
pub(crate) use report::share;
pub use report::{
    CallerRow, DemandRow, FlipReport, LimitResult, LimitRow, LogSummary, RefusedRow, ReplayReport,
    SetResult, TimelineReport, VerdictComparison, WindowRow,
};
pub(crate) use rule_set::hash_entries;
pub use run::{ClientModel, LOGS_MAX, Recording, ReplayError, ReplayOptions, replay, version_text};
pub use threshold::{MEASURES, Threshold, ThresholdError};
