//! A background worker that calls a throttled service at a constant pace.
//!
//! Twelve mails are queued at once; the mail service takes five a second; nine may wait.
//!
//! Run it: `cargo run -p tidegate-pacer --example background_worker`.

use std::sync::Arc;

use tidegate_pacer::{ConfigError, LeakyBucket, Pacer, Period, Turn};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Mails to send; the channel of report lines has room for all of them.
const MAILS: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ConfigError> {
    let mut lines = send_mails()?;
    while let Some(line) = lines.recv().await {
        println!("{line}");
    }
    Ok(())
}

/// Starts one worker for each mail; they share the pacer. Returns a line for each mail.
pub(crate) fn send_mails() -> Result<mpsc::Receiver<String>, ConfigError> {
    let pacer = Arc::new(Pacer::new(LeakyBucket::new(5, Period::SECOND, 9))?);
    let (report, lines) = mpsc::channel(MAILS);
    let start = Instant::now();
    for mail in 1..=MAILS {
        let (pacer, report) = (Arc::clone(&pacer), report.clone());
        tokio::spawn(async move {
            let turn = pacer.turn("mail service").await;
            let at = start.elapsed().as_secs_f64();
            let line = match turn {
                Turn::Yours => format!("{at:5.3} s  mail {mail} sent"),
                Turn::Full { retry_after } => {
                    format!("{at:5.3} s  mail {mail} put back for {retry_after:.0?}")
                }
                Turn::Never => format!("{at:5.3} s  mail {mail} can never be sent"),
            };
            // Fails only when the example ends.
            let _ = report.send(line).await;
        });
    }
    Ok(lines)
}
