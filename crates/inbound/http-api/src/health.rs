//! Liveness and readiness of the process.
//!
//! They differ: a process that drains is live but not ready, and a restart would not help. Each part of the process
//! reports for itself; readers see the reasons of all parts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Liveness and readiness, as reported by the parts of a process. Clones share one state.
///
/// ```
/// use tidegate_http_api::Health;
///
/// let health = Health::new();
/// health.hold_back("rules", "no rules are loaded yet");
/// assert_eq!(health.unready_reasons(), ["rules: no rules are loaded yet"]);
/// health.clear("rules");
/// assert!(health.is_ready() && health.is_live());
/// ```
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<HealthState>>);

/// Called with each change of the readiness.
type OnChange = Box<dyn Fn(bool) + Send>;

#[derive(Default)]
struct HealthState {
    /// By part. Parts are named in the code, so there are few.
    unready_reasons: BTreeMap<&'static str, String>,
    broken: Option<String>,
    on_change: Vec<OnChange>,
}

impl HealthState {
    fn is_ready(&self) -> bool {
        self.broken.is_none() && self.unready_reasons.is_empty()
    }
}

impl Health {
    /// Live and ready.
    pub fn new() -> Self {
        Health::default()
    }

    /// Makes the process not ready, because of this part.
    pub fn hold_back(&self, part: &'static str, reason: impl Into<String>) {
        self.change(|state| _ = state.unready_reasons.insert(part, reason.into()));
    }

    /// Withdraws the reason of this part.
    pub fn clear(&self, part: &'static str) {
        self.change(|state| _ = state.unready_reasons.remove(part));
    }

    /// Makes the process not live: only a restart helps.
    pub fn break_down(&self, reason: impl Into<String>) {
        self.change(|state| state.broken = Some(reason.into()));
    }

    /// Calls `notify` with the readiness, now and at each change. It must not call back.
    pub fn on_change(&self, notify: impl Fn(bool) + Send + 'static) {
        let mut state = self.0.lock();
        notify(state.is_ready());
        state.on_change.push(Box::new(notify));
    }

    fn change(&self, change: impl FnOnce(&mut HealthState)) {
        let mut state = self.0.lock();
        let before = state.is_ready();
        change(&mut state);
        let ready = state.is_ready();
        if ready != before {
            state.on_change.iter().for_each(|notify| notify(ready));
        }
    }

    /// Why the process is not live, if so.
    pub fn broken(&self) -> Option<String> {
        self.0.lock().broken.clone()
    }

    /// Why the process is not ready: the reasons of all parts.
    pub fn unready_reasons(&self) -> Vec<String> {
        let state = self.0.lock();
        let broken = state.broken.iter().map(|reason| format!("process: {reason}"));
        let parts = state.unready_reasons.iter().map(|(part, reason)| format!("{part}: {reason}"));
        broken.chain(parts).collect()
    }

    /// Whether the process is live.
    pub fn is_live(&self) -> bool {
        self.0.lock().broken.is_none()
    }

    /// Whether the process is ready for requests.
    pub fn is_ready(&self) -> bool {
        self.0.lock().is_ready()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Health")
            .field("unready_reasons", &state.unready_reasons)
            .field("broken", &state.broken)
            .finish_non_exhaustive()
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
        assert_eq!(health.unready_reasons(), ["store: no answer"]);
        other.clear("store");
        assert!(health.is_ready());
    }

    #[test]
    fn a_change_of_the_readiness_is_reported_at_once() {
        let (health, seen) = (Health::new(), Arc::new(Mutex::new(Vec::new())));
        let reported = Arc::clone(&seen);
        health.on_change(move |ready| reported.lock().push(ready));
        health.hold_back("rules", "none yet");
        health.hold_back("store", "no answer");
        health.clear("rules");
        health.clear("store");
        assert_eq!(*seen.lock(), [true, false, true]);
    }

    #[test]
    fn a_broken_process_is_not_ready_either() {
        let health = Health::new();
        health.break_down("a worker died");
        assert!(!health.is_live() && !health.is_ready());
        assert_eq!(health.unready_reasons(), ["process: a worker died"]);
        assert_eq!(health.broken().as_deref(), Some("a worker died"));
    }
}
