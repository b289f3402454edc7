//! `tidegate control serve`: the rules service and the publisher in one process.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tidegate_plane::{
    BeatOutcome, Broadcast, CellSettings, DirectoryTarget, ObjectTarget, Publisher,
    PublisherSettings, RulesService, TargetStore,
};
use tidegate_server::{Address, Endpoint, Protocol, Server, Tls, TlsFiles};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::init::{DatabaseArgs, clock, failed};
use crate::config::Config;
use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;
use crate::serve::log;

/// Work of the service between requests.
const TICK: Duration = Duration::from_secs(1);
/// How long requests may take after a stop.
const GRACE: Duration = Duration::from_secs(10);
/// The only ring.
const RING: &str = "all";

/// How to serve.
#[derive(Debug, Args)]
pub(crate) struct ControlServeArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The address of the service.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8082")]
    listen: SocketAddr,
    /// Where snapshots are written: a directory, or s3://BUCKET/PREFIX with the variables AWS_…; can be given several
    /// times. Servers can always read them from the service too.
    #[arg(long, value_name = "TARGET")]
    publish: Vec<String>,
    /// A certificate in PEM, for TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

pub(super) fn run(args: &ControlServeArgs, _out: &mut Output) -> Result<Exit, Failure> {
    let config = Config::default();
    log::start(&config.log).map_err(|message| Complaint::new(message, "set the log level"))?;
    client_runtime()?.block_on(serve(args))
}

fn targets(
    args: &ControlServeArgs,
    cell: &CellSettings,
) -> Result<Vec<Box<dyn TargetStore>>, Failure> {
    // A put that takes longer than half a beat is given up: the next beat puts everything again.
    let deadline = Duration::from_millis(cell.beat_millis / 2).max(Duration::from_millis(500));
    let open = |text: &String| -> Result<Box<dyn TargetStore>, Failure> {
        let opened: Result<Box<dyn TargetStore>, _> = match text.starts_with("s3://") {
            true => ObjectTarget::s3(text, deadline).map(|target| Box::new(target) as _),
            false if text.contains("://") => {
                let message = format!("`{text}` is no target");
                return Err(
                    Complaint::new(message, "give a directory or s3://BUCKET/PREFIX").into()
                );
            }
            false => DirectoryTarget::open(Path::new(text)).map(|target| Box::new(target) as _),
        };
        opened.map_err(|error| {
            Complaint::new(error.to_string(), "check `--publish` and its permissions").into()
        })
    };
    args.publish.iter().map(open).collect()
}

async fn serve(args: &ControlServeArgs) -> Result<Exit, Failure> {
    let database = Arc::new(args.database.open().await?);
    let cell = CellSettings::load(&database).await.map_err(|error| failed(&error))?;
    let cell = cell.ok_or_else(|| {
        let message = format!("{} is no control plane yet", database.location());
        Complaint::new(message, "make one with `tidegate control init`")
    })?;
    let keys = args.database.keys();
    let key = keys.signing().map_err(|error| failed(&error))?;
    let certificate = keys.certificate().map_err(|error| failed(&error))?;
    let broadcast = Arc::new(Broadcast::default());
    let service =
        RulesService::start(Arc::clone(&database), cell.clone(), clock(), Arc::clone(&broadcast));
    let service = service.await.map_err(|error| failed(&error))?;
    let owner = format!("{}-{}", args.listen, std::process::id());
    let targets = targets(args, &cell)?;
    let settings = PublisherSettings { owner, ring: RING.to_owned(), key, certificate, targets };
    let publisher = Publisher::new(database, cell.clone(), clock(), settings, broadcast);
    let mut endpoint = Endpoint::new("control", Protocol::Auto, Address::Tcp(args.listen));
    if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
        let tls = Tls::load(TlsFiles::new(certificate, key)).map_err(|error| {
            Complaint::new(error.to_string(), "check the certificate and its key")
        })?;
        endpoint = endpoint.tls(tls);
    }
    let unusable = |error: &dyn std::fmt::Display| {
        let help = "choose another address with `--listen`, or stop the program that uses it";
        Failure::from(Complaint::new(error.to_string(), help))
    };
    let server = Server::start(NonZeroUsize::MIN).map_err(|error| unusable(&error))?;
    let listening = server.open(endpoint, service.clone()).map_err(|error| unusable(&error))?;
    for endpoint in &listening {
        tracing::info!(address = %endpoint.address(), cell = cell.name, "the rules service is listening");
    }
    let failed = run_until_stopped(publisher, &service, &cell).await;
    server.stop(GRACE).await;
    tracing::info!("stopped");
    failed.map(|()| Exit::Fine)
}

/// Beats until a signal comes.
async fn run_until_stopped(
    mut publisher: Publisher,
    service: &RulesService,
    cell: &CellSettings,
) -> Result<(), Failure> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut beats = interval(Duration::from_millis(cell.beat_millis));
    // A beat that was missed is missed: two snapshots at once tell servers nothing more.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = interval(TICK);
    let mut published = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = ticks.tick() => {
                if let Err(error) = service.tick().await {
                    tracing::warn!(%error, "reports could not be stored, or tokens not be read");
                }
            }
            _ = beats.tick() => {
                if let BeatOutcome::Published { sequence, version } = publisher.beat().await
                    && published.replace(version) != Some(version)
                {
                    tracing::info!(version, sequence, "published");
                }
            }
        }
    }
    publisher.stop().await;
    Ok(())
}
