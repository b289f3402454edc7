//! The queues of a forwarder for the pages of the debug port: read over its API while somebody looks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_admin::ForwardedReading;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::config::Config;
use crate::debug_client::{DebugClient, TokenArgs};
use crate::exit::Failure;

/// How often the forwarder is asked.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How long it is asked after the last look at a page.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);

/// A forwarder that is looked at.
#[derive(Clone, Debug)]
pub(super) struct ForwarderView {
    client: DebugClient,
    state: Arc<Mutex<ViewState>>,
}

#[derive(Debug, Default)]
struct ViewState {
    queues: Vec<ForwardedReading>,
    looked: Option<Instant>,
}

impl ForwarderView {
    /// The forwarder that the configuration names, if any.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, Failure> {
        let debug = &config.debug;
        let Some(address) = &debug.forwarder else { return Ok(None) };
        let token = TokenArgs { token_file: debug.forwarder_token_file.clone() }.read()?;
        let client = DebugClient::new(address, token)?;
        Ok(Some(ForwarderView { client, state: Arc::default() }))
    }

    /// The queues as they were read last.
    pub(super) fn queues(&self) -> Vec<ForwardedReading> {
        let mut state = self.state.lock();
        state.looked = Some(Instant::now());
        state.queues.clone()
    }

    /// Reads the queues on a beat while somebody looks.
    pub(super) fn watch(&self) -> JoinHandle<()> {
        let view = self.clone();
        tokio::spawn(async move {
            let mut beats = interval(READ_EVERY);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                let looked = view.state.lock().looked;
                if looked.is_some_and(|looked| looked.elapsed() < LOOKED_WITHIN) {
                    let queues = match view.client.get("/v1/types").await {
                        Ok(page) => queues_of(&page),
                        Err(problem) => vec![away(view.client.name(), problem)],
                    };
                    view.state.lock().queues = queues;
                }
            }
        })
    }
}

/// A forwarder that does not answer.
fn away(name: &str, problem: String) -> ForwardedReading {
    let mode = "unknown".to_owned();
    ForwardedReading { name: name.to_owned(), mode, problem: Some(problem), ..Default::default() }
}

/// The queues on the page `/v1/types` of a forwarder.
pub(crate) fn queues_of(page: &Value) -> Vec<ForwardedReading> {
    let none = Vec::new();
    page["types"].as_array().unwrap_or(&none).iter().map(queue_of).collect()
}

fn queue_of(status: &Value) -> ForwardedReading {
    let text = |name: &str| status[name].as_str().map(ToOwned::to_owned);
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let (name, target) = (text("record_type").unwrap_or_default(), text("target"));
    let closed =
        status["closed_for"].as_f64().map(|left| format!("the target is closed for {left:.0} s"));
    let forecast = &status["forecast"];
    let growing = (forecast["state"] == "growing").then(|| "more arrives than leaves".to_owned());
    ForwardedReading {
        target: target.filter(|target| *target != name),
        mode: text("mode").unwrap_or_default(),
        waiting: number("waiting"),
        in_flight: number("in_flight"),
        dead: number("dead"),
        rate: status["rate"].as_f64(),
        empty_in_s: forecast["seconds"].as_f64().and_then(whole),
        problem: text("lease_error").or(closed).or(growing),
        name,
    }
}

/// Seconds as a whole number.
fn whole(seconds: f64) -> Option<u64> {
    Duration::try_from_secs_f64(seconds).ok().map(|length| length.as_secs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_of_the_forwarder_is_one_queue() {
        let page = json!({"types": [
            {"record_type": "mail", "target": "smtp", "mode": "running", "waiting": 12, "dead": 1,
                "in_flight": 2, "rate": 3.5, "forecast": {"state": "clears", "seconds": 4.2}},
            {"record_type": "sms", "target": "sms", "mode": "paused", "closed_for": 9.0,
                "forecast": {"state": "stalled"}},
            {"record_type": "x", "forecast": {"state": "growing", "seconds": 1e300}},
        ]});
        let queues = queues_of(&page);
        let mail = ForwardedReading {
            name: "mail".to_owned(),
            target: Some("smtp".to_owned()),
            mode: "running".to_owned(),
            waiting: 12,
            in_flight: 2,
            dead: 1,
            rate: Some(3.5),
            empty_in_s: Some(4),
            problem: None,
        };
        assert_eq!(queues[0], mail);
        assert_eq!(queues[1].problem.as_deref(), Some("the target is closed for 9 s"));
        assert_eq!((queues[2].empty_in_s, queues[2].problem.is_some()), (None, true));
        assert!(queues_of(&json!({"types": 7})).is_empty() && queues_of(&json!([])).is_empty());
    }
}
