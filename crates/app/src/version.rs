//! The version of this build.

use std::sync::LazyLock;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    // Set by the release build; a build from an archive has no commit.
    match option_env!("TIDEGATE_COMMIT") {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
});

/// The version, with the commit if it is known.
pub(crate) fn text() -> &'static str {
    &TEXT
}
