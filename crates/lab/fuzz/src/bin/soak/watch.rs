//! Watches the process: a line every ten seconds, and a bound on its memory.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::SoakFailure;
use crate::http1::Client;
use crate::process::{BUDGET, ServerProcess};
use crate::tally::Tally;

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Between two readings of the memory.
const READ_EVERY: Duration = Duration::from_millis(500);

/// The most growth of memory after the warm-up. The allocator's pages vary by a few megabytes; a
/// leak of a hundred bytes per request is far more.
const GROWTH_KIB_MAX: u64 = 20 * 1024;

/// What was seen.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    start_kib: u64,
    warm_kib: u64,
    most_kib: u64,
    end_kib: u64,
}

impl fmt::Display for MemoryWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryWatch { start_kib, warm_kib, most_kib, end_kib } = self;
        write!(
            f,
            "resident: {start_kib} KiB at the start, {warm_kib} KiB at most while warming up, \
             {most_kib} KiB at most after, {end_kib} KiB at the end (counters may take {BUDGET})"
        )
    }
}

/// Watches for so long.
pub(crate) async fn watch(
    served: &mut ServerProcess,
    tally: &Tally,
    lasting: Duration,
) -> Result<MemoryWatch, SoakFailure> {
    let began = Instant::now();
    // A third: the counters are full after a few seconds of batches.
    let warm_until = began + lasting / 3;
    let mut next_line = began + LINE_EVERY;
    let start_kib = served.resident_kib()?;
    let mut watched = MemoryWatch { start_kib, warm_kib: 0, most_kib: 0, end_kib: start_kib };
    while began.elapsed() < lasting {
        sleep(READ_EVERY).await;
        let now = served.resident_kib()?;
        watched.end_kib = now;
        if Instant::now() < warm_until {
            watched.warm_kib = watched.warm_kib.max(now);
        } else {
            watched.most_kib = watched.most_kib.max(now);
            if now > watched.warm_kib.saturating_add(GROWTH_KIB_MAX) {
                return Err(SoakFailure(format!("memory grows: {watched}")));
            }
        }
        let faults = tally.faults();
        if !faults.is_empty() {
            return Err(SoakFailure(faults.join("\n")));
        }
        if Instant::now() >= next_line {
            next_line += LINE_EVERY;
            let series = series(&served.doors().debug).await?;
            println!("{:>4} s: {now} KiB, {series} series, {tally}", began.elapsed().as_secs());
        }
    }
    sleep_until(began + lasting).await;
    Ok(watched)
}

/// The number of metric series, which must not grow with the keys.
async fn series(address: &str) -> Result<usize, SoakFailure> {
    let read = async { Client::connect(address).await?.get("/metrics").await };
    let answer = read.await.map_err(|error| SoakFailure::of("/metrics", error))?;
    if answer.status != 200 {
        return Err(SoakFailure::of("/metrics answers", answer.status));
    }
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count())
}
