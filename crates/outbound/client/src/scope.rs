//! Which calls share a limit, and the state of each such group.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_algorithms::Timestamp;
use xxhash_rust::xxh3::Xxh3;

use crate::turn::Target;

/// Targets that a layer remembers. A target takes about a kilobyte; beyond the maximum the one that was idle for the
/// longest time is forgotten.
pub const TARGETS_MAX: usize = 1_024;

/// The name of a target: calls with the same scope share its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope(u128);

impl Scope {
    /// The scope of these parts, such as an authority and an API key. `None` differs from an empty part.
    pub fn new<'a>(parts: impl IntoIterator<Item = Option<&'a [u8]>>) -> Self {
        let mut hash = Xxh3::new();
        for part in parts {
            match part {
                Some(part) => {
                    hash.update(&[1]);
                    hash.update(&(part.len() as u64).to_le_bytes());
                    hash.update(part);
                }
                None => hash.update(&[0]),
            }
        }
        Scope(hash.digest128())
    }

    /// The scope of a request's authority: the default.
    pub fn of_authority(uri: &http::Uri) -> Self {
        Scope::new([
            uri.scheme_str().map(str::as_bytes),
            uri.authority().map(|name| name.as_str().as_bytes()),
        ])
    }
}

/// The targets of a layer.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    by_scope: Mutex<HashMap<Scope, Arc<Target>>>,
}

impl Targets {
    /// Every target.
    pub(crate) fn all(&self) -> Vec<Arc<Target>> {
        self.by_scope.lock().values().map(Arc::clone).collect()
    }

    /// The target of a scope, made if it is new. `name` is what observers see.
    pub(crate) fn get(
        &self,
        scope: Scope,
        now: Timestamp,
        name: impl FnOnce() -> String,
    ) -> Arc<Target> {
        let mut targets = self.by_scope.lock();
        if let Some(target) = targets.get(&scope) {
            return Arc::clone(target);
        }
        if targets.len() >= TARGETS_MAX {
            let idle =
                targets.iter().min_by_key(|(_, target)| target.used_at()).map(|(scope, _)| *scope);
            if let Some(idle) = idle {
                targets.remove(&idle);
            }
        }
        let target = Arc::new(Target::new(name(), now));
        targets.insert(scope, Arc::clone(&target));
        target
    }
}
