//! The demo API on a thread of its own, beside the service that stands in front of it.

use std::net::SocketAddr;
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::system;
use crate::demo_api::{DemoApiArgs, bind, serve};
use crate::exit::Failure;

/// The demo API, until it is stopped.
#[derive(Debug)]
pub(super) struct DemoApi {
    stop: oneshot::Sender<()>,
}

impl DemoApi {
    /// Starts it at this address.
    pub(super) async fn start(listen: SocketAddr) -> Result<Self, Failure> {
        let args = DemoApiArgs { listen, capacity: 8, work: 100 };
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| system("the demo API cannot be started", &error))?;
        let api = async move {
            let listener = match bind(&args).await {
                Ok(listener) => listener,
                Err(failure) => return drop(tell.send(Err(failure))),
            };
            let address = listener.local_addr().unwrap_or(args.listen);
            tracing::info!(door = "demo-api", %address, "listening");
            drop(tell.send(Ok(())));
            tokio::select! {
                served = serve(listener, &args) => drop(served),
                _ = stopped => {}
            }
        };
        let thread = thread::Builder::new().name("tidegate-demo-api".to_owned());
        thread
            .spawn(move || runtime.block_on(api))
            .map_err(|error| system("the demo API cannot be started", &error))?;
        match told.await {
            Ok(told) => told?,
            Err(error) => return Err(system("the demo API cannot be started", &error)),
        }
        Ok(DemoApi { stop })
    }

    /// Ends it.
    pub(super) fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
    }
}
