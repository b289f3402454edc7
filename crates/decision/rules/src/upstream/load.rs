//! The errors of rules whose files can be read.

use std::collections::{HashMap, HashSet};

use super::decode::{UpstreamDescriptor, UpstreamFile, UpstreamLimit};

/// The units of a limit; case does not matter.
const UNITS: [&str; 7] = ["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"];

/// The domains of the files so far, with the keys of their first level.
#[derive(Debug, Default)]
pub(super) struct LoadedDomains(HashMap<String, HashSet<String>>);

impl LoadedDomains {
    /// Adds a file, up to its first error.
    pub(super) fn load(&mut self, root: &UpstreamFile, merge_domains: bool) -> Result<(), String> {
        let domain = &root.domain;
        if domain.is_empty() {
            return Err("config file cannot have empty domain".to_owned());
        }
        if self.0.contains_key(domain) && !merge_domains {
            return Err(format!("duplicate domain '{domain}' in config file"));
        }
        let known = self.0.entry(domain.clone()).or_default();
        load(&format!("{domain}."), &root.descriptors, known)
    }
}

// The depth of the recursion is bounded by that of the tree.
fn load(
    parent: &str,
    descriptors: &[UpstreamDescriptor],
    known: &mut HashSet<String>,
) -> Result<(), String> {
    for descriptor in descriptors {
        if descriptor.key.is_empty() {
            return Err("descriptor has empty key".to_owned());
        }
        let UpstreamDescriptor { key, value, .. } = descriptor;
        let key = if value.is_empty() { key.clone() } else { format!("{key}_{value}") };
        let path = format!("{parent}{key}");
        if known.contains(&key) {
            return Err(format!("duplicate descriptor composite key '{path}'"));
        }
        if let Some(limit) = &descriptor.rate_limit {
            check_limit(limit)?;
        }
        if descriptor.share_threshold && !key.contains('*') {
            return Err(format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{key}'"
            ));
        }
        load(&format!("{path}."), &descriptor.descriptors, &mut HashSet::new())?;
        known.insert(key);
    }
    Ok(())
}

fn check_limit(limit: &UpstreamLimit) -> Result<(), String> {
    let has_unit = UNITS.contains(&limit.unit.to_uppercase().as_str());
    if limit.unlimited && has_unit {
        return Err("should not specify rate limit unit when unlimited".to_owned());
    }
    if !limit.unlimited && !has_unit {
        return Err(format!("invalid rate limit unit '{}'", limit.unit));
    }
    for replaced in &limit.replaces {
        if replaced.is_empty() {
            return Err("should not have an empty replaces entry".to_owned());
        }
        if *replaced == limit.name {
            return Err("replaces should not contain name of same descriptor".to_owned());
        }
    }
    Ok(())
}
