//! Sends statistics to a statsd or DogStatsD server on a fixed beat.
//!
//! The sender reads cumulative counts and sends their growth since the last successful flush. Counts of a beat whose
//! packets could not be written stay unsent and go out with the next one, so an unreachable server costs no memory and
//! loses nothing. Nothing here runs on the path of a request.
//!
//! ```
//! use tidegate_statsd::{LineFormat, LineWriter, StatsReading};
//!
//! let mut writer = LineWriter::new(LineFormat::DogStatsd, &[("zone".to_owned(), "a".to_owned())], Vec::new());
//! let reading = StatsReading { counters: [("hits".to_owned(), 7)].into(), timers: Vec::new() };
//! let lines = writer.lines(&reading);
//! assert_eq!(lines.text(), "hits:7|c|#zone:a\n");
//! writer.sent(lines);
//! assert_eq!(writer.lines(&reading).text(), "", "nothing has grown");
//! ```
//!
//! | Module | Holds |
//! |---|---|
//! | `settings` | where to send to, and how |
//! | `lines` | counts as lines of either format |
//! | `mogrifier` | names that become a shorter name and tags, as in envoyproxy/ratelimit |
//! | `sender` | the socket and the beat |

mod lines;
mod mogrifier;
mod sender;
mod settings;

pub use lines::{LineFormat, LineWriter, Lines, StatsReading, Timer};
pub use mogrifier::{Mogrifier, MogrifierError};
pub use sender::Sender;
pub use settings::{StatsdAddress, StatsdSettings};
