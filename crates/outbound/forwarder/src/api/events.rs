//! The progress of a job as a stream of events, one a second, until it is finished.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::ForwardApi;
use super::answer::{Answer, EVENTS, Problem, with_body};
use super::records::unknown_job;

/// The time between two events.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest stream: a client that wants more asks again.
const EVENTS_MAX: u32 = 24 * 60 * 60;

/// A body of events that a task makes.
struct EventBody(mpsc::Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

pub(super) async fn job(
    api: &ForwardApi,
    job: String,
    tenant: Option<String>,
) -> Result<Answer, Problem> {
    let first = api.forwarder.job(&job, tenant.as_deref()).await?;
    first.ok_or_else(|| unknown_job(&job))?;
    let (sender, receiver) = mpsc::channel(1);
    let forwarder = std::sync::Arc::clone(&api.forwarder);
    tokio::spawn(async move {
        for _ in 0..EVENTS_MAX {
            let Ok(Some(progress)) = forwarder.job(&job, tenant.as_deref()).await else { return };
            let text = serde_json::to_string(&progress).unwrap_or_default();
            let event = Bytes::from(format!("event: progress\ndata: {text}\n\n"));
            // An error means that the client is gone.
            if sender.send(event).await.is_err() || progress.finished {
                return;
            }
            sleep(INTERVAL).await;
        }
    });
    Ok(with_body(EVENTS, StatusCode::OK, EventBody(receiver).boxed_unsync()))
}
