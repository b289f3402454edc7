//! Calls that leave at the pace their receiver allows.
