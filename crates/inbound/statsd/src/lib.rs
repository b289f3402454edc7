//! Statistics of the process for other systems: sent to statsd or DogStatsD, or shown under the Prometheus names of
//! envoyproxy/ratelimit.
//!
//! The sender reads cumulative counts on a fixed beat and sends their growth since the last flush. Counts whose packets
//! could not be written go out with the next flush, so an unreachable server costs no memory and loses no count. Nothing
//! here runs on the path of a request.
//!
//! ```
//! use tidegate_statsd::{LineFormat, LineWriter, StatsReading};
//!
//! let mut writer = LineWriter::new(LineFormat::DogStatsd, &[("zone".to_owned(), "a".to_owned())], Vec::new());
//! let mut reading = StatsReading::default();
//! reading.add("hits".to_owned(), 7);
//! let mut lines = writer.lines(&reading);
//! assert_eq!(lines.text(), "hits:7|c|#zone:a\n");
//! writer.confirm(&mut lines, usize::MAX);
//! assert_eq!(writer.lines(&reading).text(), "", "nothing has grown");
//! ```
//!
//! | Module | Holds |
//! |---|---|
//! | `reading` | statistics at one moment |
//! | `settings` | where to send to, and how |
//! | `lines` | statistics as lines of either format |
//! | `mogrifier` | names that become a shorter name and tags, as in envoyproxy/ratelimit |
//! | `sender` | the socket and the beat |
//! | `figures` | metrics of the sender |
//! | `mapping` | statistics under Prometheus names, with the mapping file of envoyproxy/ratelimit |

mod reading;

mod lines;
mod mogrifier;
mod settings;

mod figures;
mod sender;

mod mapping;

pub use figures::{STATSD_METRICS, SenderFigures};
pub use lines::{LineFormat, LineWriter, Lines};
pub use mapping::{NameMapping, UpstreamMetrics};
pub use mogrifier::{Mogrifier, MogrifierError};
pub use reading::{StatsReading, Timer};
pub use sender::Sender;
pub use settings::{StatsdAddress, StatsdSettings};
