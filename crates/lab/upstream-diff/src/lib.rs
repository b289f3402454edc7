//! The real envoyproxy/ratelimit ("upstream") beside Tidegate, on the same rule files, environment and requests.
//!
//! Random rules and requests come from seeds; every field of every answer is compared, and so are `/rlconfig`, the
//! statistics, the health and the errors of broken rule files. [`DIFFERENCES`] lists what differs on purpose, each with a
//! case that shows it. The page in `docs` is made from that list. A difference that is not in the list fails, and so does
//! one in the list that no longer shows: the page is neither too short nor too long.

mod ask;
mod broken;
mod cases;
mod compare;
mod differences;
mod page;
mod programs;
mod random;
mod seeds;
mod statsd;

pub use broken::compare_broken_files;
pub use cases::show_all;
pub use differences::{DIFFERENCES, Difference};
pub use page::{PAGE, page};
pub use programs::{Backend, Programs};
pub use seeds::{Figures, compare_seeds};
