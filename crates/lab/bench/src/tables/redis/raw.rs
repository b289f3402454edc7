//! Scripts as `redis-benchmark` calls them: one check in a call, many calls in a
//! pipeline, keys drawn by Redis's own tool.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use tidegate_engine::{Timestamp, Verb};
use tidegate_stores::{Batch, Charge, Check, RedisStore};

use super::instance::Instance;
use super::node::{self, NodeFigures};

/// The default number of connections of `redis-benchmark`.
const CONNECTIONS: usize = 50;
/// Calls of the first run, which estimates the rate.
const TRIAL: u64 = 5_000;
/// A key of the same length as ours, with a number drawn for each call.
const KEY: &str = "tg{AA}AAAAAAAA__rand_int__";
/// The key of the plain script, which has another format of values.
const PLAIN_KEY: &str = "tg{BB}AAAAAAAA__rand_int__";

/// A typical GCRA script for one check: one read, one write, the server's clock.
const PLAIN: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local left = burst - (full + interval - now)
if left < 0 then
  return {0, -left}
end
redis.call('SET', KEYS[1], full + interval, 'PX', math.ceil((burst - left) / 1000))
return {1, left}
";

/// A loaded script with its arguments.
#[derive(Debug)]
pub(super) struct Script {
    hash: String,
    key: &'static str,
    arguments: Vec<String>,
}

impl Script {
    /// The plain script.
    ///
    /// # Errors
    /// When Redis rejects it.
    pub(super) fn plain(instance: &Instance) -> anyhow::Result<Self> {
        let hash = instance.client()?.ask(&["SCRIPT", "LOAD", PLAIN])?;
        let interval = node::INTERVAL.as_micros();
        let burst = interval * u128::from(node::BURST);
        let arguments = vec![interval.to_string(), burst.to_string()];
        Ok(Script { hash, key: PLAIN_KEY, arguments })
    }

    /// Our script with one check. `redis-benchmark` cannot send zero bytes, so the arguments are
    /// constants at the beginning of the script, and Redis receives less than from our store.
    ///
    /// # Errors
    /// When Redis rejects it.
    pub(super) fn ours(instance: &Instance, store: &RedisStore) -> anyhow::Result<Self> {
        let limit = node::ample();
        let checks = [Check::new(node::key("somebody"), &limit, 1)];
        let batch = Batch::new(Verb::Check, Charge::AllOrNothing, Timestamp::EPOCH, &checks);
        let text =
            format!("ARGV[2] = {} {}", quoted(&store.script_body(&batch)), RedisStore::script());
        let hash = instance.client()?.ask(&["SCRIPT", "LOAD", &text])?;
        Ok(Script { hash, key: KEY, arguments: vec![String::new()] })
    }

    /// Calls it for about this long, with this pipeline depth on each connection.
    ///
    /// # Errors
    /// When `redis-benchmark` is missing or fails.
    pub(super) fn visit(
        &self,
        instance: &Instance,
        depth: usize,
        time: Duration,
    ) -> anyhow::Result<NodeFigures> {
        let rate = self.run(instance, depth, TRIAL)?;
        #[expect(clippy::cast_possible_truncation, reason = "a count of calls")]
        let calls = (rate * time.as_secs_f64()).max(TRIAL as f64) as u64;
        let mut client = instance.client()?;
        let before = client.cpu()?;
        let per_second = self.run(instance, depth, calls)?;
        let spent = client.cpu()?.saturating_sub(before);
        let cpu_micros = spent.as_secs_f64() * 1e6 / calls as f64;
        Ok(NodeFigures { cpu_micros, per_second, per_call: 1.0 })
    }

    /// Makes this many calls; returns the rate per second.
    fn run(&self, instance: &Instance, depth: usize, calls: u64) -> anyhow::Result<f64> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &instance.address()?.port().to_string()]);
        command.args(["-c", &CONNECTIONS.to_string(), "-P", &depth.to_string()]);
        command.args(["-n", &calls.to_string(), "-r", &node::MANY_KEYS.to_string(), "-q"]);
        command.args(["EVALSHA", &self.hash, "1", self.key]).args(&self.arguments);
        let done = command.stdin(Stdio::null()).output();
        let done = done.context("redis-benchmark is needed beside redis-server")?;
        let (said, why) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success(), "redis-benchmark ended with {}: {why}", done.status);
        per_second_in(&said).with_context(|| format!("redis-benchmark says {said:?}"))
    }
}

/// Bytes as a string literal of Lua.
fn quoted(bytes: &[u8]) -> String {
    let spelled: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("'{spelled}'")
}

/// The last figure; the ones before it report progress.
fn per_second_in(said: &str) -> Option<f64> {
    let (before, _) = said.rsplit_once(" requests per second")?;
    before.rsplit([' ', ':']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_can_be_spelled_in_a_script() {
        assert_eq!(quoted(&[0, 39, 255]), r"'\000\039\255'");
    }

    #[test]
    fn the_last_figure_of_redis_benchmark_counts() {
        let said = "EVALSHA a 1 k: rps=10.0 (overall: 11.0)\rEVALSHA a 1 k: 73126.14 requests per second, p50=0.5 msec\n";
        assert_eq!(per_second_in(said).map(f64::round), Some(73_126.0));
        assert_eq!(per_second_in("Error from server"), None);
    }
}
