//! The Lua twin of the algorithms: one script, of one file for each idea.
//!
//! One script rather than one for each algorithm: checks of one request mix
//! them, and are decided together. The parts that are seldom needed are made
//! when they are.

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
    include_str!("script/parcel.lua"),
    include_str!("script/main.lua"),
);
