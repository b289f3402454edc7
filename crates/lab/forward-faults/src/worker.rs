//! A forwarder as a process of its own: it opens a queue and a lease store by their URLs and drains the queue.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_capacity::{Dimension, LeaseStore, Target, TargetLimit, TargetLimits};
use tidegate_delivery::{Attempt, HttpProcessor, HttpSettings, Processor, ProcessorFuture};
use tidegate_forwarder::{Forwarder, ForwarderParts, RetryPolicy, TypeSettings};
use tidegate_queue::{
    NewRecord, Payload, QueueStore, SqliteSettings, SqliteStore, WallClock, open_store,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// The record type of all scenes.
pub(crate) const RECORD_TYPE: &str = "records";
/// The target of all scenes.
pub(crate) const TARGET: &str = "service";
/// Records of one batch of a producer.
const BATCH: usize = 10;
/// The pause of a producer after a batch, so that a scene has time for its faults before the last one.
const STORED_PAUSE: Duration = Duration::from_millis(20);
/// The pause of a producer whose batch was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// How a worker is started.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArguments {
    /// Its name among the members of the target.
    #[arg(long)]
    pub name: String,
    /// The URL of its queue.
    #[arg(long)]
    pub queue: String,
    /// The URL of its lease store.
    #[arg(long)]
    pub leases: String,
    /// The throttled service.
    #[arg(long)]
    pub service: SocketAddr,
    /// The service's limit of operations in a second.
    #[arg(long)]
    pub amount: u64,
    /// The slots of the target.
    #[arg(long)]
    pub slots: u16,
    /// The lease on slots and claims, in milliseconds.
    #[arg(long)]
    pub lease_ms: u64,
    /// The most requests in flight.
    #[arg(long)]
    pub in_flight: u32,
    /// Records that it stores itself; it prints the ids of each batch once they are durable.
    #[arg(long, default_value_t = 0)]
    pub produce: usize,
    /// How far its clock is wrong, in seconds.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub clock_offset: i64,
    /// It ends after this time, so that no worker outlives its scene for long.
    #[arg(long, default_value_t = 900)]
    pub seconds_max: u64,
}

impl WorkerArguments {
    /// The command that starts it. Writes beyond a limit on file sizes fail instead of ending the process.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "worker"]).arg(program).arg("worker");
        let mut option = |name: &str, value: String| {
            command.arg(format!("--{name}={value}"));
        };
        option("name", self.name.clone());
        option("queue", self.queue.clone());
        option("leases", self.leases.clone());
        option("service", self.service.to_string());
        option("amount", self.amount.to_string());
        option("slots", self.slots.to_string());
        option("lease-ms", self.lease_ms.to_string());
        option("in-flight", self.in_flight.to_string());
        option("produce", self.produce.to_string());
        option("clock-offset", self.clock_offset.to_string());
        option("seconds-max", self.seconds_max.to_string());
        command
    }
}

/// Runs until it is told to stop by SIGTERM.
///
/// # Errors
/// When the queue or the lease store cannot be opened.
pub async fn work(arguments: WorkerArguments) -> anyhow::Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    let working = async {
        let forwarder = start(&arguments).await?;
        println!("started");
        produce(&forwarder, &arguments).await?;
        anyhow::Ok(forwarder)
    };
    let ended = sleep(Duration::from_secs(arguments.seconds_max));
    let forwarder = tokio::select! {
        forwarder = working => forwarder?,
        _ = stop.recv() => return Ok(()),
    };
    tokio::select! {
        _ = stop.recv() => {}
        () = ended => {}
    }
    forwarder.stop(Duration::from_secs(5)).await;
    println!("stopped");
    Ok(())
}

async fn start(arguments: &WorkerArguments) -> anyhow::Result<Forwarder> {
    let clock: Arc<dyn Clock> = Arc::new(WrongClock::new(arguments.clock_offset));
    let queues: Arc<dyn QueueStore> = match arguments.queue.strip_prefix("sqlite:") {
        Some(path) => {
            let settings = SqliteSettings { clock: Arc::clone(&clock), file_bytes_max: None };
            Arc::new(SqliteStore::open_with(Path::new(path), settings)?)
        }
        None => open_store(&arguments.queue).await?,
    };
    let leases = LeaseStore::open(&arguments.leases)?;
    let parts =
        ForwarderParts { clock, ..ForwarderParts::new(queues, leases, arguments.name.clone()) };
    let forwarder = Forwarder::new(parts);
    let limit = TargetLimit::per_second(Dimension::Operations, arguments.amount);
    let target = Target::new(TARGET, TargetLimits::with_slots(vec![limit], arguments.slots)?);
    let settings = TypeSettings {
        slot_lease: Duration::from_millis(arguments.lease_ms),
        in_flight_max: arguments.in_flight,
        attempt_timeout: Duration::from_secs(5),
        retry: RetryPolicy {
            base: Duration::from_millis(50),
            cap: Duration::from_millis(500),
            ..RetryPolicy::default()
        },
        ..TypeSettings::new(RECORD_TYPE)
    };
    let mut http = HttpSettings::post(format!("http://{}/", arguments.service).parse()?);
    http.destinations.networks = vec!["127.0.0.0/8".parse()?];
    http.send_slot = true;
    let processor = Arc::new(StampingProcessor(HttpProcessor::new(http)?));
    forwarder.add(&target, settings, processor).await?;
    Ok(forwarder)
}

/// Stores records batch after batch. A refused batch is repeated: nothing of it was stored.
async fn produce(forwarder: &Forwarder, arguments: &WorkerArguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let mut left = arguments.produce;
    while left > 0 {
        let count = left.min(BATCH);
        let batch = vec![NewRecord::new(Payload::from_body(vec![b'x'; 100])); count];
        // A queue whose server is away may wait for it.
        let stored = timeout(Duration::from_secs(10), forwarder.enqueue(RECORD_TYPE, batch)).await;
        match stored {
            Ok(Ok(outcomes)) => {
                let ids: Vec<String> = outcomes.iter().map(|one| one.id().to_string()).collect();
                writeln!(out, "stored {}.", ids.join(" "))?;
                left -= count;
                sleep(STORED_PAUSE).await;
            }
            Ok(Err(error)) => {
                writeln!(out, "refused: {error}")?;
                sleep(REFUSED_PAUSE).await;
            }
            // It may have been stored: then its records are sent without having been acknowledged.
            Err(_) => writeln!(out, "refused: no answer")?,
        }
    }
    writeln!(out, "produced.")?;
    Ok(())
}

/// Writes into each request when its turn came.
struct StampingProcessor(HttpProcessor);

impl Processor for StampingProcessor {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        Box::pin(async move {
            let stamped: Vec<Attempt> = batch.iter().map(stamp).collect();
            self.0.process(&stamped).await
        })
    }
}

fn stamp(attempt: &Attempt) -> Attempt {
    let mut stamped = attempt.clone();
    let nanos = attempt.departed.as_nanos().to_string();
    stamped.record.payload.headers.push(("departed-ns".to_owned(), nanos.into()));
    stamped
}

/// A clock that is wrong by a constant time.
struct WrongClock {
    clock: WallClock,
    offset: i64,
}

impl WrongClock {
    fn new(offset: i64) -> Self {
        WrongClock { clock: WallClock::new(), offset }
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let right = self.clock.now();
        let offset = Nanos::from_secs(self.offset.unsigned_abs());
        if self.offset >= 0 {
            right.after(offset)
        } else {
            Timestamp::from_nanos(right.as_nanos().saturating_sub(offset.get()))
        }
    }
}
