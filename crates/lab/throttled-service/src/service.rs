//! The throttled service over HTTP, on threads of its own.

mod answer;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use parking_lot::Mutex;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, Dimension};
use tidegate_server::{Address, Endpoint, Protocol, Server};
use tokio::time::Instant;

use crate::arrivals::{Arrival, ArrivalLog};
use crate::chance::Chance;
use crate::judge::{Judge, Judgement, Rival};
use crate::settings::{ServiceFault, ThrottledServiceSettings};

pub use self::answer::REPORT_PATH;

/// A running throttled service. Dropping it ends it.
#[derive(Debug)]
pub struct ThrottledService {
    server: Server,
    address: SocketAddr,
    state: Arc<ServiceState>,
}

/// The service cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("the throttled service cannot be started: {0}")]
pub struct ServiceError(pub(crate) String);

/// What all requests share.
#[derive(Debug)]
pub(crate) struct ServiceState {
    settings: ThrottledServiceSettings,
    started: Instant,
    court: Mutex<Court>,
}

/// The parts that change with each request.
#[derive(Debug)]
struct Court {
    judge: Judge,
    chance: Chance,
    log: ArrivalLog,
    fault: ServiceFault,
    /// The newest epoch of each slot.
    epochs: HashMap<u16, u64>,
}

/// A request as the service sees it.
#[derive(Clone, Debug)]
struct Visit {
    received: Timestamp,
    departed: Option<Timestamp>,
    id: Option<Box<str>>,
    attempt: Option<u32>,
    slot: Option<(u16, u64)>,
    /// It fails whatever it is.
    poison: bool,
    cost: Cost,
}

/// The verdict on a visit, before it becomes an HTTP answer.
#[derive(Clone, Copy, Debug)]
struct Ruling {
    status: u16,
    charged: u64,
    retry_after: Option<Nanos>,
    fault: ServiceFault,
    delay: Duration,
    /// Limit, remaining, reset.
    room: Option<(u64, u64, Nanos)>,
}

impl ThrottledService {
    /// Starts a service.
    ///
    /// # Errors
    /// When its threads cannot be started or its address is in use.
    pub fn start(settings: ThrottledServiceSettings) -> Result<Self, ServiceError> {
        let threads = NonZeroUsize::new(settings.threads).unwrap_or(NonZeroUsize::MIN);
        let server = Server::start(threads).map_err(|error| ServiceError(error.to_string()))?;
        let court = Court {
            judge: Judge::new(&settings.limits),
            chance: Chance::new(settings.seed),
            log: ArrivalLog::default(),
            fault: ServiceFault::None,
            epochs: HashMap::new(),
        };
        let listen = settings.listen;
        let state =
            Arc::new(ServiceState { settings, started: Instant::now(), court: Mutex::new(court) });
        let shared = Arc::clone(&state);
        let service = service_fn(move |request| answer::serve(Arc::clone(&shared), request));
        let endpoint = Endpoint::new("throttled", Protocol::Auto, Address::Tcp(listen));
        let listening =
            server.open(endpoint, service).map_err(|error| ServiceError(error.to_string()))?;
        let address = listening.first().map(|first| first.address().to_string());
        let address = address.and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| ServiceError("it has no address".to_owned()))?;
        Ok(ThrottledService { server, address, state })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time on its own clock, which counts from its start.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// A copy of the log.
    pub fn log(&self) -> ArrivalLog {
        self.state.court.lock().log.clone()
    }

    /// How many requests have arrived.
    pub fn arrivals(&self) -> usize {
        self.state.court.lock().log.arrivals().len()
    }

    /// Empties the log and returns it.
    pub fn take_log(&self) -> ArrivalLog {
        std::mem::take(&mut self.state.court.lock().log)
    }

    /// Switches a fault on or off.
    pub fn set_fault(&self, fault: ServiceFault) {
        self.state.court.lock().fault = fault;
    }

    /// Lets a rival call from now on, for this time.
    pub fn add_rival(&self, cost: Cost, every: Nanos, lasting: Duration) {
        let from = self.now();
        let until = from.after(Nanos::from(lasting));
        self.state.court.lock().judge.add_rival(Rival { cost, every, from, until });
    }

    /// Ends it, after requests in flight.
    pub async fn stop(self) -> ArrivalLog {
        self.server.stop(Duration::from_secs(1)).await;
        self.state.court.lock().log.clone()
    }
}

impl ServiceState {
    fn now(&self) -> Timestamp {
        let nanos = self.started.elapsed().as_nanos();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Judges a visit, logs it and decides about its answer.
    fn rule(&self, visit: Visit) -> Ruling {
        let settings = &self.settings;
        let mut court = self.court.lock();
        // Read under the lock, so that the judge's time never goes back.
        let judged = self.now();
        let fault = court.fault;
        let units = court.charge(visit.cost.units, settings.units_spread_percent);
        let cost = Cost { units, ..visit.cost };
        let mut ruling = Ruling {
            status: 200,
            charged: units,
            retry_after: None,
            fault,
            delay: settings.delay_after.draw(&mut court.chance),
            room: None,
        };
        match fault {
            ServiceFault::Status(status) => ruling.status = status,
            ServiceFault::Closed { retry_after } => {
                ruling.status = 503;
                ruling.retry_after = Some(Nanos::from_secs(u64::from(retry_after)));
            }
            ServiceFault::None | ServiceFault::Slow(_) | ServiceFault::Silent => {
                if settings.fences && court.is_stale(visit.slot) {
                    ruling.status = 409;
                } else if let Judgement::Throttled { retry_after } = court.judge.judge(cost, judged)
                {
                    (ruling.status, ruling.retry_after) = (429, retry_after);
                } else if visit.poison
                    || court.chance.below(1_000_000) < u64::from(settings.error_ppm)
                {
                    ruling.status = 500;
                }
            }
        }
        if let ServiceFault::Slow(delay) = fault {
            ruling.delay = delay;
        }
        let room = court.judge.room(judged);
        ruling.room = room.map(|(limit, left, reset)| (limit.amount, left, reset));
        let Visit { received, departed, id, attempt, slot, .. } = visit;
        let status = ruling.status;
        court.log.push(Arrival { received, judged, departed, id, attempt, slot, cost, status });
        ruling
    }

    fn draw_delay_before(&self) -> Duration {
        let mut court = self.court.lock();
        self.settings.delay_before.draw(&mut court.chance)
    }

    /// The figures as JSON.
    fn report(&self) -> serde_json::Value {
        let log = self.court.lock().log.clone();
        let summary = log.summary(Dimension::Units);
        serde_json::json!({
            "arrivals": summary.arrivals,
            "accepted": summary.accepted,
            "throttled": summary.throttled,
            "duplicates": summary.duplicates,
            "busiest_second_units": summary.busiest_second,
            "busiest_bin_ratio": summary.busiest_bin_ratio,
            "span_ms": summary.span.as_millis(),
            "stale_epochs": log.stale_epochs(),
            "unlogged": log.unlogged(),
        })
    }
}

impl Court {
    /// The units that are charged for these.
    fn charge(&mut self, units: u64, spread_percent: u8) -> u64 {
        let span = units.saturating_mul(u64::from(spread_percent)) / 100;
        let drawn = self.chance.below(span.saturating_mul(2).saturating_add(1));
        units.saturating_sub(span).saturating_add(if span == 0 { 0 } else { drawn })
    }

    fn is_stale(&mut self, slot: Option<(u16, u64)>) -> bool {
        let Some((slot, epoch)) = slot else { return false };
        let newest = self.epochs.entry(slot).or_insert(epoch);
        *newest = (*newest).max(epoch);
        epoch < *newest
    }
}
