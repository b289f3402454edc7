//! The page of differences.

use std::fmt::Write as _;

use crate::differences::DIFFERENCES;

/// The path of the page, from the root of the project.
pub const PAGE: &str = "docs/differences-from-envoy-ratelimit.md";

const HEAD: &str = "\
# Differences from envoyproxy/ratelimit

With `--compat`, Tidegate answers, counts and logs as envoyproxy/ratelimit (\"upstream\") does, except for the rows below.
Each row shows what both do in one case. `make upstream` runs every case on both programs, and then random rules and
requests: a difference that is not listed fails, and so does a row that no longer shows.

This page is made from the list in `crates/lab/upstream-diff/src/differences.rs`:
`cargo run -p tidegate-upstream-diff -- --page`. [Moving from
envoyproxy/ratelimit](migrating-from-envoy-ratelimit.md) has the steps of a move, and differences in operation.

| Case | Upstream | Tidegate with `--compat` | Why |
|---|---|---|---|
";

/// The page, made from the list.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for difference in DIFFERENCES {
        let (what, why) = (difference.what, difference.why);
        let (upstream, tidegate) = (cell(difference.upstream), cell(difference.tidegate));
        let _ = writeln!(page, "| {what} | {upstream} | {tidegate} | {why} |");
    }
    page
}

/// A text of a program, as code.
fn cell(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}
