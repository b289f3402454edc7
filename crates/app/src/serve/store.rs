//! The store of counters: opened from the configuration, with its work between requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Clock, CounterStore, Engine, MemoryConfig, MemoryStore, SystemClock};
use tidegate_overload::FleetSettings;
use tidegate_redis_board::RedisBoard;
use tidegate_stores::{
    LinkState, Login, NameCheck, Password, RedisSettings, RedisSettingsError, RedisStore, Remote,
    Secret, SharedSettings, SharedStore, StoreErrors, UpstreamLayout, UpstreamStore,
};
use tokio::task::JoinHandle;

use crate::config::{self, Config, OnRedisError, RedisUrl, count};
use crate::exit::{Complaint, Failure};

/// How long a process that stops may take to return its leases and slots.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// How often the first contact with the shared store is looked for.
const FIRST_CONTACT_BEAT: Duration = Duration::from_millis(50);

/// A store that the service can use.
pub(super) trait ServiceStore: CounterStore + Sized {
    /// An engine on this store.
    fn engine(self) -> Engine<Self> {
        Engine::new(self, SystemClock::new())
    }

    /// Starts its work between requests, if it has any.
    fn start_background(_engine: &Arc<Engine<Self>>) -> Option<JoinHandle<()>> {
        None
    }

    /// Why it is not available at present.
    fn unavailable_reason(&self) -> Option<String> {
        None
    }

    /// Returns leases and slots before the process ends.
    fn close(&self, _clock: &SystemClock) -> impl Future<Output = ()> + Send {
        async {}
    }
}

impl ServiceStore for MemoryStore {}

/// A remote store that shows the state of its connections.
pub(super) trait MonitoredRemote: Remote + 'static {
    /// Whether its keys have the names of the limits, not only their fingerprints.
    const HAS_NAMES: bool;

    /// The state of its connections.
    fn link_state(&self) -> LinkState;
}

impl MonitoredRemote for RedisStore {
    const HAS_NAMES: bool = false;

    fn link_state(&self) -> LinkState {
        self.state()
    }
}

impl MonitoredRemote for UpstreamStore {
    const HAS_NAMES: bool = true;

    fn link_state(&self) -> LinkState {
        self.store().state()
    }
}

impl<R: MonitoredRemote> ServiceStore for SharedStore<R> {
    fn engine(self) -> Engine<Self> {
        let engine = Engine::new(self, SystemClock::new()).with_shared_fingerprints();
        if R::HAS_NAMES { engine.with_names() } else { engine }
    }

    fn start_background(engine: &Arc<Engine<Self>>) -> Option<JoinHandle<()>> {
        let engine = Arc::clone(engine);
        Some(tokio::spawn(async move {
            let store = engine.store();
            tokio::join!(store.run(engine.clock()), log_first_contact(store.remote()));
        }))
    }

    fn unavailable_reason(&self) -> Option<String> {
        let link = self.remote().link_state();
        if !self.is_degraded() && link.is_connected() {
            return None;
        }
        let failure = link.last_failure.map(|failure| failure.to_string());
        Some(failure.unwrap_or_else(|| "the shared store is not available".to_owned()))
    }

    async fn close(&self, clock: &SystemClock) {
        let closing = SharedStore::close(self, clock.now());
        if tokio::time::timeout(CLOSE_MAX, closing).await.is_err() {
            tracing::warn!("the leases and slots of this process were not returned in time");
        }
    }
}

/// Logs whether the shared store could be reached at the start. The service starts without it, so nothing else might
/// say so until a request needs it.
async fn log_first_contact(remote: &impl MonitoredRemote) {
    let mut ticks = tokio::time::interval(FIRST_CONTACT_BEAT);
    loop {
        ticks.tick().await;
        let link = remote.link_state();
        if link.is_connected() {
            return tracing::info!("connected to the shared store");
        }
        if let Some(error) = link.last_failure {
            return tracing::warn!(
                %error,
                "the shared store cannot be reached; until it can, limits follow store.redis.on_error and on_store_error"
            );
        }
    }
}

/// Counters in this process.
pub(super) fn in_memory(config: &Config) -> Result<MemoryStore, Failure> {
    let when_full = config.store.memory.when_full.0;
    let budget_bytes = config.store.memory.budget.to_usize();
    let store = MemoryStore::new(MemoryConfig { budget_bytes, when_full, seed: None });
    Ok(store.map_err(|error| Complaint::new(error.to_string(), "raise `store.memory.budget`"))?)
}

/// Counters in Redis, in our own layout.
pub(super) fn in_redis(
    config: &Config,
    url: &RedisUrl,
) -> Result<SharedStore<RedisStore>, Failure> {
    let redis = &config.store.redis;
    let mut store = shared(config, open(url, login(redis), redis)?)?;
    for region in &redis.regions {
        let other = open(region, Login::default(), redis)?;
        store = store.with_region(region.redacted(), other);
    }
    Ok(store)
}

/// Counters in Redis, in the layout of envoyproxy/ratelimit.
pub(super) fn in_upstream_layout(
    config: &Config,
    url: &RedisUrl,
) -> Result<SharedStore<UpstreamStore>, Failure> {
    let redis = &config.store.redis;
    let upstream = &redis.upstream;
    let layout = UpstreamLayout {
        prefix: upstream.key_prefix.clone().unwrap_or_default(),
        jitter_max: upstream.expiration_jitter.as_secs(),
    };
    let mut store = UpstreamStore::new(open(url, login(redis), redis)?, layout);
    if let Some(url) = &upstream.per_second_url {
        let password = password(upstream.per_second_password.as_ref(), None);
        let login = Login { user: upstream.per_second_user.clone(), password };
        store = store.with_per_second(open(url, login, redis)?);
    }
    shared(config, store)
}

fn shared<R: Remote>(config: &Config, remote: R) -> Result<SharedStore<R>, Failure> {
    let redis = &config.store.redis;
    let usual = SharedSettings::default();
    let errors = match redis.on_error {
        OnRedisError::Upstream => StoreErrors::Upstream,
        OnRedisError::Local | OnRedisError::Allow | OnRedisError::Deny => StoreErrors::Own,
    };
    let settings = SharedSettings {
        within: redis.deadline,
        background_within: usual.background_within.max(redis.deadline),
        beat: redis.beat,
        errors,
        ..usual
    };
    let store = SharedStore::new(remote, settings);
    Ok(store.map_err(|error| Complaint::new(error.to_string(), "check `store.redis`"))?)
}

/// The board on which nodes divide the fleet's capacity; `None` without Redis, where each node is on its own.
pub(super) fn fleet_board(
    config: &Config,
    fleet: FleetSettings,
) -> Result<Option<RedisBoard>, Failure> {
    let Some((url, settings)) = redis_settings(config)? else { return Ok(None) };
    let board = RedisBoard::new(settings, &config.overload.fleet.name, fleet);
    Ok(Some(board.map_err(|error| wrong_settings(url, &error))?))
}

/// The settings for the shared Redis, with its URL; `None` without one.
pub(super) fn redis_settings(
    config: &Config,
) -> Result<Option<(&RedisUrl, RedisSettings)>, Failure> {
    let redis = &config.store.redis;
    let Some(url) = &redis.url else { return Ok(None) };
    Ok(Some((url, settings(url, login(redis), redis)?)))
}

/// A store at this URL.
fn open(url: &RedisUrl, login: Login, redis: &config::Redis) -> Result<RedisStore, Failure> {
    let store = RedisStore::new(settings(url, login, redis)?);
    Ok(store.map_err(|error| wrong_settings(url, &error))?)
}

pub(super) fn wrong_settings(url: &RedisUrl, error: &RedisSettingsError) -> Complaint {
    Complaint::new(format!("{}: {error}", url.redacted()), "check `store.redis`")
}

/// The settings for the servers at this URL. Fields of the configuration win over parts of the URL.
fn settings(url: &RedisUrl, login: Login, redis: &config::Redis) -> Result<RedisSettings, Failure> {
    let parsed = RedisSettings::parse(url.reveal());
    let mut settings = parsed.map_err(|error| wrong_settings(url, &error))?;
    if login != Login::default() {
        settings.login = login;
    }
    let sentinel = &redis.sentinel;
    let password = password(sentinel.password.as_ref(), sentinel.password_file.as_ref());
    if sentinel.user.is_some() || password != Password::None {
        settings.sentinel_login = Login { user: sentinel.user.clone(), password };
    }
    if let Some(tls) = &mut settings.tls {
        if redis.tls.ca.is_some() {
            tls.authority.clone_from(&redis.tls.ca);
        }
        if let Some((certificate, key)) = redis.tls.cert.as_ref().zip(redis.tls.key.as_ref()) {
            tls.identity = Some((certificate.clone(), key.clone()));
        }
        if !redis.tls.verify_name {
            tls.names = NameCheck::Any;
        }
    }
    settings.prefix.clone_from(&redis.prefix);
    settings.connections = count(redis.connections);
    settings.deadline = redis.deadline;
    settings.connect_timeout = redis.connect_timeout;
    settings.slot_lease = redis.slot_lease;
    Ok(settings)
}

fn login(redis: &config::Redis) -> Login {
    let password = password(redis.password.as_ref(), redis.password_file.as_ref());
    Login { user: redis.user.clone(), password }
}

fn password(text: Option<&config::Password>, file: Option<&PathBuf>) -> Password {
    match (text, file) {
        (_, Some(file)) => Password::File(file.clone()),
        (Some(text), None) => Password::Text(Secret::new(text.reveal())),
        (None, None) => Password::None,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_document::{Bounds, SettingValue};
    use tidegate_engine::{Descriptor, Entry, LimiterStage, Request, Tenure, contain_future};

    use super::*;

    /// Unoptimized builds copy a future several times on the stack of a worker before it is boxed, and a stack that
    /// overflows ends the process.
    #[tokio::test]
    async fn the_future_of_a_request_to_redis_has_few_kilobytes() {
        let url = RedisUrl::read_text("redis://localhost:1", &Bounds::NONE).unwrap();
        let engine = Arc::new(in_redis(&Config::default(), &url).unwrap().engine());
        let entries = [Entry { key: "user", value: "ada" }];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request::new("shop", &descriptors);
        let admit = contain_future(LimiterStage::Decide, engine.admit(&request, Tenure::Held));
        let bytes = size_of_val(&admit);
        assert!(bytes <= 12 * 1024, "{bytes}");
    }
}
