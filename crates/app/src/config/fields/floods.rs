//! The fields of the list of floods.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_document::{Network, section};

use super::{DAY, MANY, SECOND};
use crate::config::kinds::SwitchMode;

section! {
    /// The list of networks that flood, for `tidegate guard`, which hands it to the kernel's packet filter.
    Floods {
        /// Whether networks are listed (`shadow`), and handed to the packet filter too (`enforce`).
        list: SwitchMode = "off",
        /// The Unix socket where `tidegate guard` reads the list. Its file is for the user of the service only.
        socket: Option<PathBuf> = "/run/tidegate/floods.sock",
        /// How many connections and requests of a network must be refused in each second, ...
        rate: u32 = "50" in 1..=MANY,
        /// ... for so many seconds in a row, until it is listed.
        seconds: u32 = "10" in 1..=3_600,
        /// A network is never listed if more callers than this showed valid keys or tokens from it within the last
        /// minutes: many people may share its address.
        callers: u32 = "3" in 0..=1_000,
        /// How long a network is listed the first time. Each further time within a day doubles it.
        first: Duration = "60s" in SECOND..=DAY,
        /// How long it is listed at most.
        longest: Duration = "1h" in SECOND..=DAY,
        /// Networks that are never listed, beside those of `connections.exempt` and `gateway.proxy_protocol_from`, the
        /// addresses of this machine and its resolvers.
        never: Vec<Network> = "",
    }
}
