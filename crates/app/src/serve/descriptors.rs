//! The limit on open files.
//!
//! Most systems start a program with a limit of 1,024, and let it raise that to half a million. The low limit is for
//! programs that use `select`, which cannot wait for more. Each connection needs a descriptor, and each request of the
//! gateway another one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the system allows.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(from = current, to = maximum, "raised the limit on open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit on open files"),
    }
}
