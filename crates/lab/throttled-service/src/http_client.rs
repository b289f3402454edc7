//! Runs a baseline in real time over HTTP/1.1.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidegate_algorithms::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::baseline::{BaselineClient, BaselineReport};
use crate::service::ServiceError;

/// Connections of one client; more requests wait. At 20 ms for each request they carry 20,000 a second.
const CONNECTIONS_MAX: usize = 400;
/// Requests that wait for a connection.
const REQUESTS_MAX: usize = 100_000;

/// Runs a client against a throttled service until all records are accepted. Each record asks for `units`.
///
/// # Errors
/// When the service cannot be reached or closes a connection.
pub async fn run_over_http(
    client: &mut dyn BaselineClient,
    service: SocketAddr,
    units: u64,
) -> Result<BaselineReport, ServiceError> {
    let started = Instant::now();
    let now = || Timestamp::from_nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(0));
    let (work, records) = mpsc::channel::<usize>(REQUESTS_MAX);
    let (answered, mut answers) =
        mpsc::channel::<Result<(usize, bool), ServiceError>>(REQUESTS_MAX);
    let records = Arc::new(tokio::sync::Mutex::new(records));
    for _ in 0..CONNECTIONS_MAX {
        tokio::spawn(send_records(service, units, Arc::clone(&records), answered.clone()));
    }
    drop(answered);
    let report = Mutex::new(BaselineReport {
        sends: 0,
        throttled: 0,
        accepted: 0,
        elapsed: std::time::Duration::ZERO,
    });
    while !client.has_finished() {
        for record in client.send(now()) {
            report.lock().sends += 1;
            work.send(record)
                .await
                .map_err(|_| ServiceError("no connection is left".to_owned()))?;
        }
        let next = client.next_send();
        let pause = async {
            match next {
                Some(at) => {
                    sleep_until(started + std::time::Duration::from_nanos(at.as_nanos())).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answers.recv() => {
                let answer = answer.ok_or_else(|| ServiceError("no connection is left".to_owned()))?;
                let (record, accepted) = answer?;
                let mut report = report.lock();
                if accepted { report.accepted += 1 } else { report.throttled += 1 }
                report.elapsed = started.elapsed();
                client.answer(record, accepted, now());
            }
            () = pause => {}
        }
    }
    Ok(report.into_inner())
}

/// Sends records over one connection until there are none.
async fn send_records(
    service: SocketAddr,
    units: u64,
    records: Arc<tokio::sync::Mutex<mpsc::Receiver<usize>>>,
    answers: mpsc::Sender<Result<(usize, bool), ServiceError>>,
) {
    let mut connection = match connect(service).await {
        Ok(connection) => connection,
        Err(error) => return drop(answers.send(Err(error)).await),
    };
    loop {
        let Some(record) = records.lock().await.recv().await else { return };
        let answer = send_record(&mut connection, units, record).await;
        let failed = answer.is_err();
        if answers.send(answer.map(|accepted| (record, accepted))).await.is_err() || failed {
            return;
        }
    }
}

async fn connect(service: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, ServiceError> {
    let stream =
        TcpStream::connect(service).await.map_err(|error| ServiceError(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    let shaken = handshake(TokioIo::new(stream)).await;
    let (connection, driver) = shaken.map_err(|error| ServiceError(error.to_string()))?;
    tokio::spawn(async move { drop(driver.await) });
    Ok(connection)
}

async fn send_record(
    connection: &mut SendRequest<Empty<Bytes>>,
    units: u64,
    record: usize,
) -> Result<bool, ServiceError> {
    let failed = |error: hyper::Error| ServiceError(error.to_string());
    let request = Request::post("/")
        .header("host", "throttled")
        .header("idempotency-key", record)
        .header("x-units", units)
        .body(Empty::new())
        .map_err(|error| ServiceError(error.to_string()))?;
    connection.ready().await.map_err(failed)?;
    let response = connection.send_request(request).await.map_err(failed)?;
    let accepted = response.status().is_success();
    response.into_body().collect().await.map_err(failed)?;
    Ok(accepted)
}
