//! Commands to Redis at a fixed rate of decisions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Limit, Period, TokenBucket};
use tidegate_stores::Consistency;
use tokio::time::sleep;

use super::instance::Instance;
use super::node::{CallerContext, KEYS, Load, Node, PATIENCE};
use crate::stopwatch::Stopwatch;

/// Decisions a second, over all keys.
pub(super) const PACE: u32 = 50_000;
/// The rate of a key per second: enough for callers that catch up after a pause of
/// the machine.
pub(super) const EACH: u64 = 500;
const CALLERS: u32 = 64;
/// The warm-up, in which slices find their size.
const WARM_UP: Duration = Duration::from_secs(1);
/// The interval in which callers make the decisions that are due.
const BEAT: Duration = Duration::from_millis(1);
/// A timeout that no request reaches: a late answer of Redis counts as decided.
const WITHIN: Duration = Duration::from_secs(5);

/// The load on Redis in a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Commands that Redis was sent, for 1,000 decisions.
    pub(super) commands: f64,
    /// Keys that it wrote, for 1,000 decisions.
    pub(super) writes: f64,
    /// The rate that was reached.
    pub(super) per_second: f64,
}

/// Decides at the fixed rate for a time.
///
/// # Errors
/// When requests were refused or not decided by Redis, time and again.
pub(super) fn traffic(
    instance: &Instance,
    consistency: Consistency,
    time: Duration,
) -> anyhow::Result<Traffic> {
    let mut client = instance.client()?;
    // Counts of other limits on the same keys would count for this one too.
    client.ask(&["FLUSHALL"])?;
    let limit = Limit::new(TokenBucket::new(EACH, Period::SECOND, EACH));
    let load = Load { consistency, limit, keys: KEYS, within: WITHIN, silence: PATIENCE };
    let node = Node::start(instance, &load)?;
    let mut written = instance.client()?;
    let mut written = || anyhow::Ok(written.calls("set")? + written.calls("setrange")?);
    let mut measure = async || {
        let decided = node.decided();
        let (commands, writes) = (client.calls("evalsha")?, written()?);
        let stopwatch = Stopwatch::start();
        sleep(time).await;
        let decided = (node.decided() - decided) as f64;
        let for_thousand = |count: u64| count as f64 * 1e3 / decided;
        anyhow::Ok(Traffic {
            commands: for_thousand(client.calls("evalsha")? - commands),
            writes: for_thousand(written()? - writes),
            per_second: decided / stopwatch.elapsed().as_secs_f64(),
        })
    };
    let watch = async || node.undisturbed(WARM_UP, &mut measure).await;
    node.with_callers(CALLERS as usize, ask_in_time, watch)
}

/// Makes a caller's share of the decisions when they are due.
async fn ask_in_time(context: Arc<CallerContext>, place: usize) -> anyhow::Result<()> {
    let stopwatch = Stopwatch::start();
    let mut keys = context.keys_from(place);
    let mut done = 0.0;
    while !context.is_over() {
        let due = stopwatch.elapsed().as_secs_f64() * f64::from(PACE) / f64::from(CALLERS);
        while done < due {
            let Some(name) = keys.next() else { break };
            context.admit(name).await?;
            done += 1.0;
        }
        sleep(BEAT).await;
    }
    Ok(())
}
