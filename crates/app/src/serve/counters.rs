//! The store: where counters live, and what it does between requests.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Clock, CounterStore, Engine, MemoryConfig, MemoryStore, SystemClock};
use tidegate_overload::FleetSettings;
use tidegate_redis_board::RedisBoard;
use tidegate_stores::{
    LinkState, Login, NameCheck, Password, RedisSettings, RedisSettingsError, RedisStore, RedisTls,
    Remote, Secret, SharedSettings, SharedStore, UpstreamLayout, UpstreamStore,
};
use tokio::task::JoinHandle;

use crate::config::{self, Config, RedisUrl, WhenFull};
use crate::exit::{Complaint, Failure};

/// How long a process that ends may give back what it holds.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// A store that the service can stand on.
pub(super) trait Counters: CounterStore {
    /// An engine on this store.
    fn engine(self) -> Engine<Self>
    where
        Self: Sized,
    {
        Engine::new(self, SystemClock::new())
    }

    /// Begins what it does between requests.
    fn begin(_engine: &Arc<Engine<Self>>) -> Option<JoinHandle<()>>
    where
        Self: Sized,
    {
        None
    }

    /// Why it cannot be asked at present, if so.
    fn in_the_way(&self) -> Option<String> {
        None
    }

    /// Gives back what it holds of others' budgets: the process ends.
    fn close(&self, _clock: &SystemClock) -> impl Future<Output = ()> + Send {
        async {}
    }
}

impl Counters for MemoryStore {}

/// A remote that says how it is.
pub(super) trait Linked: Remote + 'static {
    /// How its connections are.
    fn link(&self) -> LinkState;

    /// Whether counters are kept under words.
    const IS_NAMED: bool = false;
}

impl Linked for RedisStore {
    fn link(&self) -> LinkState {
        self.state()
    }
}

impl Linked for UpstreamStore {
    fn link(&self) -> LinkState {
        self.store().state()
    }

    const IS_NAMED: bool = true;
}

impl<R: Linked> Counters for SharedStore<R> {
    fn engine(self) -> Engine<Self> {
        let engine = Engine::new(self, SystemClock::new()).with_shared_fingerprints();
        if R::IS_NAMED { engine.with_names() } else { engine }
    }

    fn begin(engine: &Arc<Engine<Self>>) -> Option<JoinHandle<()>> {
        let engine = Arc::clone(engine);
        Some(tokio::spawn(async move { engine.store().run(engine.clock()).await }))
    }

    fn in_the_way(&self) -> Option<String> {
        let link = self.remote().link();
        if !self.is_degraded() && link.is_connected() {
            return None;
        }
        let failure = link.last_failure.map(|failure| failure.to_string());
        Some(failure.unwrap_or_else(|| "the shared store cannot be asked".to_owned()))
    }

    async fn close(&self, clock: &SystemClock) {
        let closing = SharedStore::close(self, clock.now());
        if tokio::time::timeout(CLOSE_MAX, closing).await.is_err() {
            tracing::warn!("the shared store did not take back what this process held");
        }
    }
}

/// The most bytes that counters in memory may take.
fn budget_bytes(config: &Config) -> usize {
    usize::try_from(config.store.memory.budget.bytes()).unwrap_or(usize::MAX)
}

/// Counters in this process.
pub(super) fn in_memory(config: &Config) -> Result<MemoryStore, Failure> {
    let when_full = match config.store.memory.when_full {
        WhenFull::Approximate => tidegate_engine::WhenFull::Approximate,
        WhenFull::Allow => tidegate_engine::WhenFull::Allow,
        WhenFull::Deny => tidegate_engine::WhenFull::Deny,
    };
    let budget_bytes = budget_bytes(config);
    let store = MemoryStore::new(MemoryConfig { budget_bytes, when_full, seed: None });
    Ok(store.map_err(|error| Complaint::new(error.to_string(), "raise `store.memory.budget`"))?)
}

/// Counters in Redis, our own way.
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

/// Counters in Redis, as envoyproxy/ratelimit keeps them.
pub(super) fn as_upstream(
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
        let password = upstream.per_second_password.as_ref().map_or(Password::None, given);
        let login = Login { user: upstream.per_second_user.clone(), password };
        store = store.with_per_second(open(url, login, redis)?);
    }
    shared(config, store)
}

fn shared<R: Remote>(config: &Config, remote: R) -> Result<SharedStore<R>, Failure> {
    let redis = &config.store.redis;
    let settings =
        SharedSettings { within: redis.deadline, beat: redis.beat, ..SharedSettings::default() };
    let store = SharedStore::new(remote, settings);
    Ok(store.map_err(|error| Complaint::new(error.to_string(), "check `store.redis`"))?)
}

/// The board on which nodes divide the fleet's capacity, if they share a Redis. Without one a node
/// is alone with its own.
pub(super) fn board(config: &Config, fleet: FleetSettings) -> Result<Option<RedisBoard>, Failure> {
    let redis = &config.store.redis;
    let Some(url) = &redis.url else { return Ok(None) };
    let settings = settings(url, login(redis), redis)?;
    let board = RedisBoard::new(settings, &config.overload.fleet.name, fleet);
    Ok(Some(board.map_err(|error| wrong(url, &error))?))
}

/// A store at this URL.
fn open(url: &RedisUrl, login: Login, redis: &config::Redis) -> Result<RedisStore, Failure> {
    let store = RedisStore::new(settings(url, login, redis)?);
    Ok(store.map_err(|error| wrong(url, &error))?)
}

fn wrong(url: &RedisUrl, error: &RedisSettingsError) -> Complaint {
    Complaint::new(format!("{}: {error}", url.redacted()), "check `store.redis`")
}

/// How to ask the servers at this URL. What the fields say wins over what the URL says.
fn settings(url: &RedisUrl, login: Login, redis: &config::Redis) -> Result<RedisSettings, Failure> {
    let mut settings = RedisSettings::parse(url.reveal()).map_err(|error| wrong(url, &error))?;
    if login != Login::default() {
        settings.login = login;
    }
    let sentinel = &redis.sentinel;
    let password = password(sentinel.password.as_ref(), sentinel.password_file.as_ref());
    if sentinel.user.is_some() || password != Password::None {
        settings.sentinel_login = Login { user: sentinel.user.clone(), password };
    }
    if let Some(tls) = &mut settings.tls {
        fill_tls(tls, &redis.tls);
    }
    settings.prefix.clone_from(&redis.prefix);
    settings.connections = usize::try_from(redis.connections).unwrap_or(usize::MAX);
    settings.deadline = redis.deadline;
    settings.connect_timeout = redis.connect_timeout;
    settings.slot_lease = redis.slot_lease;
    Ok(settings)
}

fn fill_tls(tls: &mut RedisTls, given: &config::RedisTls) {
    if given.ca.is_some() {
        tls.roots.clone_from(&given.ca);
    }
    if let Some((certificate, key)) = given.cert.as_ref().zip(given.key.as_ref()) {
        tls.identity = Some((certificate.clone(), key.clone()));
    }
    if !given.verify_name {
        tls.names = NameCheck::Any;
    }
}

fn login(redis: &config::Redis) -> Login {
    let password = password(redis.password.as_ref(), redis.password_file.as_ref());
    Login { user: redis.user.clone(), password }
}

fn password(text: Option<&config::Password>, file: Option<&std::path::PathBuf>) -> Password {
    match (text, file) {
        (_, Some(file)) => Password::File(file.clone()),
        (Some(text), None) => given(text),
        (None, None) => Password::None,
    }
}

fn given(password: &config::Password) -> Password {
    Password::Text(Secret::new(password.reveal()))
}
