//! Limits for the kernel's packet filter.
//!
//! Two ways to let the kernel refuse what would cost the server a connection:
//!
//! - [`Export`] is the part of the rules that a packet filter can express, with a reason for every limit that it
//!   cannot. [`nftables`] and [`iptables`] write it as text.
//! - [`FloodList`] decides which networks flood, from refusals; `list_message` carries the whole list to the process
//!   with the right to change the packet filter, and `list_script` is what that process hands to `nft`.
//!
//! Pure: nothing here runs a program, opens a socket or reads a clock.

mod export;
mod flood_list;
mod iptables;
mod list_message;
mod list_script;
mod nftables;

pub use export::{
    AddressScope, Export, ExportError, ExportSettings, ExportedLimit, ExportedRule, KernelLimit,
    NotExported,
};
pub use flood_list::{FloodCounts, FloodList, FloodSettings, ListEntry};
pub use iptables::{IpFamily, iptables};
pub use list_message::{LIST_LINE_BYTES_MAX, ListMessage, ListMessageError, ListMessageReader};
pub use list_script::{LIST_TABLE, TIMEOUT_MAX_SECONDS, create_table, replace_list};
pub use nftables::{EXPORT_TABLE, nftables};
