//! The queue of the gateway's requests: durable with a data directory, otherwise in memory.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use tidegate_delivery::secrets::is_sensitive;
use tidegate_gateway::{DurableQueue, QueueSettings, RequestQueue};
use tidegate_queue::{QueueError, SqliteStore};
use tokio::runtime::Builder;

use crate::config::Config;
use crate::exit::{Complaint, Failure};

/// Opens the durable queue, if the configuration names a data directory.
pub(super) fn open(
    config: &Config,
    settings: QueueSettings,
) -> Result<Option<Arc<dyn RequestQueue>>, Failure> {
    let Some(directory) = &config.data_dir else {
        tracing::info!(
            "requests queued by `when_over: queue` are kept in memory and lost with the process; set data_dir to keep them"
        );
        return Ok(None);
    };
    // A thread of its own: the runtime that this runs on cannot be blocked by a future.
    let opened = thread::scope(|scope| {
        let opening = scope.spawn(|| open_blocking(directory, settings));
        opening.join().unwrap_or_else(|_| Err("opening it panicked".to_owned()))
    });
    match opened {
        Ok(queue) => Ok(Some(Arc::new(queue))),
        Err(error) => {
            let path = directory.display();
            let message = format!("the data directory {path} cannot be used: {error}");
            let hint = "set `data_dir` to a directory that only this process uses";
            Err(Complaint::new(message, hint).into())
        }
    }
}

fn open_blocking(directory: &Path, settings: QueueSettings) -> Result<DurableQueue, String> {
    let text = |error: QueueError| error.to_string();
    let store = SqliteStore::open(directory).map_err(text)?;
    let runtime = Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(DurableQueue::open(&store, settings, is_sensitive)).map_err(text)
}
