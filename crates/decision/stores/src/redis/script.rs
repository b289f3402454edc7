//! The Lua script that implements the algorithms next to the data.
//!
//! One script for all algorithms, because the checks of one request mix them and are decided atomically. The functions
//! that only some calls need are created on first use.

/// The text of the script.
pub(crate) const TEXT: &str = concat!(
    include_str!("script/head.lua"),
    include_str!("script/general.lua"),
    include_str!("script/bucket.lua"),
    include_str!("script/window.lua"),
    include_str!("script/slices.lua"),
    include_str!("script/list.lua"),
    include_str!("script/log.lua"),
    include_str!("script/slots.lua"),
    include_str!("script/call.lua"),
    include_str!("script/report.lua"),
    include_str!("script/dispatch.lua"),
    include_str!("script/main.lua"),
);
