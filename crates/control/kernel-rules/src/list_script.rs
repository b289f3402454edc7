//! The list of floods as scripts for `nft -f`.
//!
//! The table is ours alone. The sets are replaced whole in one transaction, so that an update that was lost is made up
//! for by the next one, and every entry has a timeout: when nobody renews them, everybody gets in again.

use std::fmt::Write;

use ipnet::IpNet;

use crate::flood_list::ListEntry;

/// The name of the table.
pub const LIST_TABLE: &str = "inet tidegate_list";

/// The longest timeout in the kernel. Longer entries are renewed.
pub const TIMEOUT_MAX_SECONDS: u32 = 90;

/// The script that makes an empty table, instead of any of this name.
pub fn create_table() -> String {
    // Networks have sets of their own: a set with intervals is slower, and adjacent entries must not merge.
    format!(
        "table {LIST_TABLE}\n\
         delete table {LIST_TABLE}\n\
         table {LIST_TABLE} {{\n\
         \tset hosts4 {{ type ipv4_addr; flags timeout; size 65536; }}\n\
         \tset networks4 {{ type ipv4_addr; flags interval,timeout; size 65536; }}\n\
         \tset networks6 {{ type ipv6_addr; flags interval,timeout; size 65536; }}\n\
         \tchain early {{\n\
         \t\ttype filter hook prerouting priority -310; policy accept;\n\
         \t\tip saddr @hosts4 counter drop\n\
         \t\tip saddr @networks4 counter drop\n\
         \t\tip6 saddr @networks6 counter drop\n\
         \t}}\n\
         }}\n"
    )
}

/// The script that replaces the entries of the table.
pub fn replace_list(entries: &[ListEntry]) -> String {
    let mut script = String::new();
    for (set, belongs) in SETS {
        // Writing to a string does not fail.
        let _ = writeln!(script, "flush set {LIST_TABLE} {set}");
        let mut elements = entries.iter().filter(|entry| belongs(entry.network)).peekable();
        if elements.peek().is_none() {
            continue;
        }
        let _ = write!(script, "add element {LIST_TABLE} {set} {{ ");
        for ListEntry { network, seconds } in elements {
            let seconds = (*seconds).clamp(1, TIMEOUT_MAX_SECONDS);
            let _ = match network.prefix_len() == network.max_prefix_len() {
                true => write!(script, "{} timeout {seconds}s, ", network.addr()),
                false => write!(script, "{network} timeout {seconds}s, "),
            };
        }
        let _ = writeln!(script, "}}");
    }
    script
}

type Belongs = fn(IpNet) -> bool;

const SETS: [(&str, Belongs); 3] = [
    ("hosts4", |network| network.addr().is_ipv4() && network.prefix_len() == 32),
    ("networks4", |network| network.addr().is_ipv4() && network.prefix_len() < 32),
    ("networks6", |network| network.addr().is_ipv6()),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_replaced_and_no_timeout_is_longer_than_the_longest() {
        let entry =
            |network: &str, seconds| ListEntry { network: network.parse().unwrap(), seconds };
        let entries = [entry("192.0.2.7/32", 3_600), entry("2001:db8::/64", 5)];
        let script = replace_list(&entries);
        assert_eq!(
            script,
            "flush set inet tidegate_list hosts4\n\
             add element inet tidegate_list hosts4 { 192.0.2.7 timeout 90s, }\n\
             flush set inet tidegate_list networks4\n\
             flush set inet tidegate_list networks6\n\
             add element inet tidegate_list networks6 { 2001:db8::/64 timeout 5s, }\n"
        );
        assert_eq!(replace_list(&[]).lines().count(), 3, "an empty list empties every set");
    }
}
