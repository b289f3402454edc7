//! A background worker that calls a throttled service at a constant pace.
//!
//! Twelve mails are handed over at once; the mail service takes five a second.
//! Nine may wait. Run it: `cargo run -p tidegate-outbound --example background_worker`.

use std::sync::Arc;

use tidegate_pacer::{ConfigError, LeakyBucket, Pacer, Period, Turn};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// No more lines are on their way to the printer than there are mails.
const MAILS: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ConfigError> {
    let mut lines = send_mails()?;
    while let Some(line) = lines.recv().await {
        println!("{line}");
    }
    Ok(())
}

/// Starts one worker for each mail; they share the pacer. Says what each does.
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
            // Nobody listens any more only when the example ends.
            let _ = report.send(line).await;
        });
    }
    Ok(lines)
}
