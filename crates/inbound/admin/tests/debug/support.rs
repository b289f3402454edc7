//! A door to an engine on a clock turned by hand, and answers that are easy to compare.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use tidegate_admin::{DebugDoor, DebugParts, DebugSettings, Observations, Switchboard};
use tidegate_engine::{
    Clock, CounterStore, Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore,
    NearLimit, Observer, Options, Source, Timestamp, compile,
};
use tidegate_overload::{Grant, Protection, ProtectionSettings, SteadyClock};

pub(crate) type TestEngine = Engine<MemoryStore, ManualClock>;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_920_000);

/// An engine that is watched, and the door to it.
pub(crate) struct Stage {
    pub(crate) engine: Arc<TestEngine>,
    pub(crate) door: DebugDoor<MemoryStore, ManualClock>,
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Stage {
    /// With these descriptors in the domain `api`.
    pub(crate) fn new(descriptors: &str, parts: DebugParts) -> Self {
        let text = format!("domain: api\ndescriptors:\n{descriptors}");
        let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
            .unwrap_or_else(|report| panic!("{report}"));
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        let observer: Arc<Observations> = Arc::clone(&parts.observations);
        let engine = Engine::new(store, ManualClock::at(START))
            .with_tallies(NearLimit::default())
            .with_observer(observer as Arc<dyn Observer>)
            .with_rules(rules);
        let engine = Arc::new(engine);
        Stage { door: DebugDoor::new(Arc::clone(&engine), parts), engine }
    }

    /// With two hits a day for each user.
    pub(crate) fn two_a_day(settings: DebugSettings) -> Self {
        let rules = "- {key: user, rate_limit: {unit: day, requests_per_unit: 2}}";
        Stage::new(rules, DebugParts { settings, ..DebugParts::default() })
    }

    /// Decides one request; whether it is admitted.
    pub(crate) fn check(&self, key: &str, value: &str) -> bool {
        let entries = [Entry { key, value }];
        let descriptors = [Descriptor::new(&entries)];
        self.engine.check_now(&tidegate_engine::Request::new("api", &descriptors)).is_admitted()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let Ok(answer) = self.door.call(request).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }
}

/// The body of a page.
pub(crate) async fn page_of<S: CounterStore>(
    door: &DebugDoor<S, ManualClock>,
    path: &str,
) -> String {
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let Ok(answer) = door.call(request).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// An engine without rules.
pub(crate) fn bare_engine() -> Arc<TestEngine> {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    Arc::new(Engine::new(store, ManualClock::at(START)))
}

/// A node of eight slots that has heard of its fleet, and the switches of all its limiters.
pub(crate) fn protected(
    engine: &Arc<TestEngine>,
) -> (Arc<Protection<SteadyClock>>, Arc<Switchboard>) {
    let clock = SteadyClock::starting_at(START);
    let protection = Arc::new(Protection::new(ProtectionSettings::new(8), clock));
    let grant = Grant { grant: 6, admit_below: 6, pool: 6, fleet_capacity: 8, fleet_used: 0 };
    protection.fleet().accept(clock.now(), &grant);
    let board = Switchboard::new(Arc::clone(engine), Some(Arc::clone(&protection)));
    (protection, Arc::new(board))
}
