//! Opens the queue and the lease store of a forwarder.

use std::sync::Arc;

use tidegate_forwarder::LeaseStore;
use tidegate_queue::{QueueStore, SqliteStore, open_store};

use super::serve::ProcessRole;
use crate::config::{Config, QueueUrl};
use crate::exit::Complaint;

/// Where leases are kept if one process owns the queue.
const IN_MEMORY: &str = "memory:";

/// Opens the queue, or says why this process cannot have it.
pub(super) async fn open_queue(
    config: &Config,
    role: ProcessRole,
) -> Result<Arc<dyn QueueStore>, Complaint> {
    let is_shared = config.forward.queue.as_ref().is_some_and(QueueUrl::is_shared);
    if role == ProcessRole::Work && !is_shared {
        let message =
            "`forward work` needs a queue that processes share; this one belongs to one process";
        let help =
            "set `forward.queue` to a URL of PostgreSQL or Redis, or run `forward serve` alone";
        return Err(Complaint::new(message, help));
    }
    match (&config.forward.queue, &config.data_dir) {
        (Some(url), _) => open_store(url.reveal()).await.map_err(|error| {
            let message = format!("the queue cannot be opened: {error}");
            Complaint::new(message, "check `forward.queue`, and that its server runs")
        }),
        (None, Some(directory)) => match SqliteStore::open(directory) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => {
                let path = directory.display();
                let message = format!("the data directory {path} cannot be used: {error}");
                let help = "set `data_dir` to a directory that only this process uses";
                Err(Complaint::new(message, help))
            }
        },
        (None, None) => {
            let message = "there is no place for records";
            let help = "set `data_dir=/var/lib/tidegate`, or `forward.queue` to a URL of PostgreSQL or Redis";
            Err(Complaint::new(message, help))
        }
    }
}

/// Opens the lease store: that of the configuration, that of a shared queue, or memory.
pub(super) fn open_leases(config: &Config) -> Result<LeaseStore, Complaint> {
    let shared = config.forward.queue.as_ref().filter(|url| url.is_shared());
    let url = match (&config.forward.leases, shared) {
        (Some(url), _) => url.reveal(),
        (None, Some(queue)) => queue.reveal(),
        (None, None) => IN_MEMORY,
    };
    LeaseStore::open(url).map_err(|error| {
        let message = format!("the lease store cannot be opened: {error}");
        Complaint::new(message, "check `forward.leases`")
    })
}
