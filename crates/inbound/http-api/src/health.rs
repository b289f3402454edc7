//! Whether the process lives, and whether it should be sent requests.
//!
//! The two are told apart: a process that drains is alive and not ready, and
//! restarting it would help nobody. Each part of the process speaks for
//! itself; readers are told everything that is in the way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// What the parts of a process say of themselves. Clones share it.
///
/// ```
/// use tidegate_http_api::Health;
///
/// let health = Health::new();
/// health.hold_back("rules", "no rules are loaded yet");
/// assert_eq!(health.in_the_way(), ["rules: no rules are loaded yet"]);
/// health.clear("rules");
/// assert!(health.is_ready() && health.is_live());
/// ```
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// By part; a part is named in the code, so there are few.
    in_the_way: BTreeMap<&'static str, String>,
    broken: Option<String>,
}

impl Health {
    /// Alive and ready.
    pub fn new() -> Self {
        Health::default()
    }

    /// Says why the process should not be sent requests, as far as this part goes.
    pub fn hold_back(&self, part: &'static str, reason: impl Into<String>) {
        self.0.lock().in_the_way.insert(part, reason.into());
    }

    /// Says that this part is fine.
    pub fn clear(&self, part: &'static str) {
        self.0.lock().in_the_way.remove(part);
    }

    /// Says that only a restart helps.
    pub fn break_down(&self, reason: impl Into<String>) {
        self.0.lock().broken = Some(reason.into());
    }

    /// Why only a restart helps, if so.
    pub fn broken(&self) -> Option<String> {
        self.0.lock().broken.clone()
    }

    /// Everything because of which the process should not be sent requests, with its part.
    pub fn in_the_way(&self) -> Vec<String> {
        let said = self.0.lock();
        let broken = said.broken.iter().map(|reason| format!("process: {reason}"));
        let parts = said.in_the_way.iter().map(|(part, reason)| format!("{part}: {reason}"));
        broken.chain(parts).collect()
    }

    /// Whether a restart would not help.
    pub fn is_live(&self) -> bool {
        self.0.lock().broken.is_none()
    }

    /// Whether the process should be sent requests.
    pub fn is_ready(&self) -> bool {
        let said = self.0.lock();
        said.broken.is_none() && said.in_the_way.is_empty()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0.lock(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_drains_is_alive_and_not_ready() {
        let health = Health::new();
        health.hold_back("drain", "shutting down");
        assert!(health.is_live() && !health.is_ready());
    }

    #[test]
    fn every_part_has_to_be_fine() {
        let health = Health::new();
        let other = health.clone();
        health.hold_back("rules", "none yet");
        other.hold_back("store", "no answer");
        health.clear("rules");
        assert_eq!(health.in_the_way(), ["store: no answer"]);
        other.clear("store");
        assert!(health.is_ready());
    }

    #[test]
    fn a_broken_process_is_not_ready_either() {
        let health = Health::new();
        health.break_down("a worker died");
        assert!(!health.is_live() && !health.is_ready());
        assert_eq!(health.in_the_way(), ["process: a worker died"]);
        assert_eq!(health.broken().as_deref(), Some("a worker died"));
    }
}
