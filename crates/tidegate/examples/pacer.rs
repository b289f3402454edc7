//! Calls to a service that takes ten a second; two may wait.
//!
//! Run it: `cargo run -p tidegate --features pacer --example pacer`.

use tidegate::pacer::{ConfigError, LeakyBucket, Pacer, Period, Turn};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ConfigError> {
    for line in demo().await? {
        println!("{line}");
    }
    Ok(())
}

/// Four calls at once: when each leaves.
pub(crate) async fn demo() -> Result<Vec<String>, ConfigError> {
    let pacer = Pacer::new(LeakyBucket::new(10, Period::SECOND, 2))?;
    let start = Instant::now();
    let call = async || match pacer.turn("mail.example").await {
        Turn::Yours => format!("sent after {} ms", start.elapsed().as_millis()),
        Turn::Full { retry_after } => format!("no room, retry after {retry_after:?}"),
        Turn::Never => "never".to_owned(),
    };
    let (one, two, three, four) = tokio::join!(call(), call(), call(), call());
    Ok(vec![one, two, three, four])
}
