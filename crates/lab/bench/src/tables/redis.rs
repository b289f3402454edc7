//! Limits that are shared over a real Redis, compared with scripts that
//! `redis-benchmark` calls.
//!
//! All nodes of a fleet share Redis, so its CPU time is the cost of a shared limit.
//! Redis reports it, and unlike decisions per second it hardly depends on other load
//! of the machine.

mod instance;
mod node;
mod paced;
mod raw;
mod stopped;

use std::time::Duration;

use anyhow::Context;
use tidegate_stores::Consistency;

use crate::goal::Goal;
use crate::processor::{Pins, spent};
use crate::scale::Scale;
use crate::spread::Spread;
use crate::stopwatch::Stopwatch;
use crate::table::{Table, count};

use instance::Instance;
use node::{KEYS, Load, MANY_KEYS, Node, NodeFigures, PATIENCE, ample};
use raw::Script;
use stopped::{DEADLINE, StopWaits, at_permille};

const AGAINST_PLAIN: Goal = Goal::at_most(0.5);
const AGAINST_CELL: Goal = Goal::at_most(1.3);
const AGAINST_RAW: Goal = Goal::at_least(0.8);
const AGAINST_EXACT: Goal = Goal::at_least(15.0);
const COMMANDS: Goal = Goal::at_most(20.0);
/// The deadline, and a fifth of it.
const FIRST: Goal = Goal::at_most_of(300.0, " ms");
const OPEN: Goal = Goal::at_most_of(1.0, " ms");
const BYTES: Goal = Goal::at_most(1.0);

/// redis-cell's `CL.THROTTLE` against a plain GCRA script, both 16 in a
/// pipeline, as measured on a machine that has the module: 2.93 µs and 7.50 µs.
const CELL_OF_PLAIN: f64 = 2.93 / 7.50;

/// How many calls `redis-benchmark` sends at a time.
const DEPTHS: [usize; 4] = [1, 4, 16, 64];
/// Callers of a busy server, and of a saturated one.
const CALLERS: usize = 64;
const CALLERS_AT_DEPTH: usize = 512;
/// Longer than any pause of a busy machine, so that no request times out.
const WITHIN: Duration = Duration::from_secs(5);
/// Requests of a caller that is alone.
const LONE_REQUESTS: usize = 5_000;
/// How often Redis is stopped for each wanted round.
const STOPS: usize = 2;

/// The figures of each contestant in one round.
#[derive(Clone, Copy, Debug)]
struct RedisRound {
    plain: NodeFigures,
    raw: NodeFigures,
    deep: NodeFigures,
    exact: NodeFigures,
    exact_few: NodeFigures,
    leased: NodeFigures,
    /// Processors that other processes kept busy.
    others: f64,
}

/// The rounds that count.
struct RedisRounds(Vec<RedisRound>);

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = ["what", "tidegate", "against", "its figure", "ratio", "goal"];
    let mut table = Table::new("9. Limits shared over Redis (`redis`)", &columns);
    let pins = Pins::new()?;
    let instance = match pins.on_server(Instance::start) {
        Ok(instance) => instance,
        Err(missing) => {
            table.note(format!("Not measured: {missing:#}."));
            return Ok(table);
        }
    };
    side_by_side(&mut table, &instance, &pins, scale)?;
    traffic(&mut table, &instance, scale)?;
    lone_caller(&mut table, &instance, &pins)?;
    waits(&mut table, &instance, scale)?;
    bytes(&mut table, &instance)?;
    Ok(table)
}

/// The rows that compare contestants, which take turns.
fn side_by_side(
    table: &mut Table,
    instance: &Instance,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<()> {
    let contestants = pins.on_generator(|| Contestants::new(instance))?;
    eprintln!("redis: the best depth for redis-benchmark");
    let depths = pins.on_generator(|| contestants.depths(scale.server_time))?;
    let depth = best(&depths);
    eprintln!("redis: contestants take turns, redis-benchmark {depth} deep");
    let round = || pins.on_generator(|| contestants.round(depth, scale.server_time));
    round()?;
    let rounds: anyhow::Result<Vec<RedisRound>> =
        (0..scale.server_rounds).map(|_| round()).collect();
    let rounds = RedisRounds(rounds?);
    cpu_rows(table, &rounds, depth);
    rate_rows(table, &rounds, depth);
    let tried: Vec<String> =
        depths.iter().map(|(depth, rate)| format!("{} at {depth}", thousands(*rate))).collect();
    table.note(format!(
        "{} rounds on {} keys; Redis has one processor, callers and redis-benchmark the other. Others kept {} \
         processors busy meanwhile. Our script by redis-benchmark, calls/s by depth: {}. Redis CPU with {CALLERS} \
         callers: {}; our script called for each check: {}. Decisions that shared a call: {} of {CALLERS_AT_DEPTH} \
         callers, {} of {CALLERS}.",
        rounds.0.len(),
        count(MANY_KEYS),
        rounds.spread(|round| round.others),
        tried.join(", "),
        micros(rounds.median(|round| round.exact.cpu_micros)),
        micros(rounds.median(|round| round.raw.cpu_micros)),
        rounds.spread(|round| round.deep.per_call),
        rounds.spread(|round| round.exact.per_call),
    ));
    Ok(())
}

/// The CPU time of Redis for a decision.
fn cpu_rows(table: &mut Table, rounds: &RedisRounds, depth: usize) {
    let decision = format!("Redis CPU per exact decision, {CALLERS_AT_DEPTH} callers");
    let deep = micros(rounds.median(|round| round.deep.cpu_micros));
    let plain = rounds.median(|round| round.plain.cpu_micros);
    let rows = [
        (format!("plain GCRA script, {depth} deep"), 1.0, AGAINST_PLAIN),
        (
            "redis-cell, by its ratio to that script elsewhere".to_owned(),
            CELL_OF_PLAIN,
            AGAINST_CELL,
        ),
    ];
    for (against, of_plain, goal) in rows {
        let ratio =
            rounds.spread(|round| round.deep.cpu_micros / (round.plain.cpu_micros * of_plain));
        table.row([
            decision.clone(),
            deep.clone(),
            against,
            micros(plain * of_plain),
            ratio.to_string(),
            goal.judge(ratio.median),
        ]);
    }
}

/// Decisions a second.
fn rate_rows(table: &mut Table, rounds: &RedisRounds, depth: usize) {
    let to_raw = rounds.spread(|round| round.exact.per_second / round.raw.per_second);
    table.row([
        format!("decisions/s, exact, {CALLERS} callers"),
        thousands(rounds.median(|round| round.exact.per_second)),
        format!("our script by redis-benchmark, {depth} deep"),
        thousands(rounds.median(|round| round.raw.per_second)),
        to_raw.to_string(),
        AGAINST_RAW.judge(to_raw.median),
    ]);
    let to_exact = rounds.spread(|round| round.leased.per_second / round.exact_few.per_second);
    table.row([
        format!("decisions/s, leased, {CALLERS} callers, {} keys", count(KEYS)),
        thousands(rounds.median(|round| round.leased.per_second)),
        "exact, the same".to_owned(),
        thousands(rounds.median(|round| round.exact_few.per_second)),
        to_exact.to_string(),
        AGAINST_EXACT.judge(to_exact.median),
    ]);
}

/// Commands to Redis at a fixed rate of decisions.
fn traffic(table: &mut Table, instance: &Instance, scale: Scale) -> anyhow::Result<()> {
    for (name, consistency) in
        [("leased", Consistency::Leased), ("eventual", Consistency::Eventual)]
    {
        eprintln!("redis: commands of {name} limits");
        let time = scale.server_time * 2;
        let seen: anyhow::Result<Vec<_>> =
            (0..scale.server_rounds).map(|_| paced::traffic(instance, consistency, time)).collect();
        let seen = seen?;
        let median = |of: fn(&paced::Traffic) -> f64| Spread::of(seen.iter().map(of).collect());
        let commands = median(|traffic| traffic.commands);
        table.row([
            format!("Redis commands for 1,000 decisions, {name}"),
            commands.to_string(),
            "exact".to_owned(),
            "1000".to_owned(),
            format!("{:.4}", commands.median / 1e3),
            COMMANDS.judge(commands.median),
        ]);
        table.note(format!(
            "Commands, {name}: {} keys asked for {} times a second in all (kept: {:.0}), with a limit of {} a second \
             each. Within these commands Redis wrote {:.0} keys for 1,000 decisions.",
            count(KEYS),
            paced::PACE,
            median(|traffic| traffic.per_second).median,
            paced::EACH,
            median(|traffic| traffic.writes).median,
        ));
    }
    Ok(())
}

/// The latency of a caller that is alone, beside a bare round trip to Redis.
fn lone_caller(table: &mut Table, instance: &Instance, pins: &Pins) -> anyhow::Result<()> {
    eprintln!("redis: a lone caller");
    let (ours, bare) = pins.on_generator(|| {
        let node = Node::start(instance, &load(Consistency::Exact, KEYS))?;
        node.lone_waits(LONE_REQUESTS)?;
        let ours = node.lone_waits(LONE_REQUESTS)?;
        let mut client = instance.client()?;
        let mut ping = || {
            let stopwatch = Stopwatch::start();
            client.ask(&["PING"]).map(|_| stopwatch.elapsed().as_secs_f64() * 1e6)
        };
        let bare: anyhow::Result<Vec<f64>> = (0..LONE_REQUESTS).map(|_| ping()).collect();
        anyhow::Ok((ours, bare?))
    })?;
    for (name, permille) in [("median", 500), ("p99", 990)] {
        let [ours, bare] =
            [&ours, &bare].map(|waits| at_permille(waits, permille).unwrap_or(f64::NAN));
        table.row([
            format!("answer for a lone caller, exact, {name}"),
            format!("{ours:.0} µs"),
            "PING by a client that blocks".to_owned(),
            format!("{bare:.0} µs"),
            format!("{:.2}", ours / bare),
            String::new(),
        ]);
    }
    Ok(())
}

/// Latencies while Redis is stopped.
fn waits(table: &mut Table, instance: &Instance, scale: Scale) -> anyhow::Result<()> {
    let stops = scale.server_rounds * STOPS;
    eprintln!("redis: stopped {stops} times");
    let mut all = StopWaits::default();
    let (mut first, mut open) = (Vec::new(), Vec::new());
    for _ in 0..stops {
        let waits = stopped::waits(instance)?;
        // On a busy machine the breaker of Redis may have opened before.
        first.extend(waits.first());
        open.extend(waits.open());
        all.extend(waits);
    }
    let deadline = format!("deadline of {} ms", DEADLINE.as_millis());
    let rows = [
        ("answer while Redis is stopped, p99.9: first", first, FIRST),
        ("answer while Redis is stopped, p99.9: then", open, OPEN),
    ];
    for (what, times, goal) in rows {
        if times.is_empty() {
            table.note(format!("Not measured: {what}, because Redis never was well before."));
            continue;
        }
        let times = Spread::of(times);
        let ratio = format!("{:.2}", times.median / (DEADLINE.as_secs_f64() * 1e3));
        table.row([
            what.to_owned(),
            format!("{times} ms"),
            deadline.clone(),
            String::new(),
            ratio,
            goal.judge(times.median),
        ]);
    }
    let (before, after) = all.counts();
    table.note(format!(
        "Stopped {stops} times under {CALLERS} callers; each time's p99.9, and its median and quartiles. Over all times \
         together: {:.2} ms of {before} answers, then {:.2} ms of {after}.",
        all.first().unwrap_or_default(),
        all.open().unwrap_or_default(),
    ));
    Ok(())
}

/// Memory of a key in Redis.
fn bytes(table: &mut Table, instance: &Instance) -> anyhow::Result<()> {
    let mut client = instance.client()?;
    client.ask(&["FLUSHALL"])?;
    let load = load(Consistency::Exact, 1);
    let node = Node::start(instance, &load)?;
    let name = "0123456789abcdef";
    node.admit_one(name)?;
    let key = node.store().remote().key_text(node::key(name));
    let ours: f64 = client.ask(&["MEMORY", "USAGE", &key])?.parse()?;
    // Domain, entry, start of the window.
    let counter = "checkout_user_0123456789abcdef_1700000000";
    client.ask(&["INCRBY", counter, "1"])?;
    client.ask(&["EXPIRE", counter, "60"])?;
    let theirs: f64 = client.ask(&["MEMORY", "USAGE", counter])?.parse()?;
    table.row([
        "bytes in Redis per token-bucket key".to_owned(),
        format!("{ours:.0}"),
        "envoyproxy/ratelimit's counter for `user`".to_owned(),
        format!("{theirs:.0}"),
        format!("{:.2}", ours / theirs),
        BYTES.judge(ours / theirs),
    ]);
    Ok(())
}

/// A load that waits for Redis longer than any pause of a busy machine.
fn load(consistency: Consistency, keys: u64) -> Load {
    Load { consistency, limit: ample(), keys, within: WITHIN, silence: PATIENCE }
}

/// All contestants.
struct Contestants<'a> {
    instance: &'a Instance,
    plain: Script,
    ours: Script,
    many: Node,
    few: Node,
    leased: Node,
}

impl<'a> Contestants<'a> {
    fn new(instance: &'a Instance) -> anyhow::Result<Self> {
        let node = |consistency, keys| Node::start(instance, &load(consistency, keys));
        let many = node(Consistency::Exact, MANY_KEYS)?;
        Ok(Contestants {
            instance,
            plain: Script::plain(instance)?,
            ours: Script::ours(instance, many.store().remote())?,
            many,
            few: node(Consistency::Exact, KEYS)?,
            leased: node(Consistency::Leased, KEYS)?,
        })
    }

    /// Calls a second of our script at each pipeline depth.
    fn depths(&self, time: Duration) -> anyhow::Result<Vec<(usize, f64)>> {
        let rate = |depth| Ok((depth, self.ours.visit(self.instance, depth, time)?.per_second));
        DEPTHS.into_iter().map(rate).collect()
    }

    fn round(&self, depth: usize, time: Duration) -> anyhow::Result<RedisRound> {
        let instance = self.instance;
        let mut others: f64 = 0.0;
        // Other load is measured only while redis-benchmark does not run, which would count as such.
        let mut ask = |what: &'static str, node: &Node, callers| {
            let saturate = || node.saturate(instance, callers, time).context(what);
            let (visit, spent) = spent(&[instance.process()], &[], saturate)?;
            others = others.max(spent.others());
            anyhow::Ok(visit)
        };
        let plain = self.plain.visit(instance, depth, time)?;
        let deep = ask("many callers", &self.many, CALLERS_AT_DEPTH)?;
        let raw = self.ours.visit(instance, depth, time)?;
        let exact = ask("exact", &self.many, CALLERS)?;
        let exact_few = ask("exact, few keys", &self.few, CALLERS)?;
        let leased = ask("leased", &self.leased, CALLERS)?;
        Ok(RedisRound { plain, raw, deep, exact, exact_few, leased, others })
    }
}

impl RedisRounds {
    fn spread(&self, of: impl Fn(&RedisRound) -> f64) -> Spread {
        Spread::of(self.0.iter().map(of).collect())
    }

    fn median(&self, of: impl Fn(&RedisRound) -> f64) -> f64 {
        self.spread(of).median
    }
}

/// The pipeline depth with the most calls a second.
fn best(depths: &[(usize, f64)]) -> usize {
    let best = depths.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(1, |(depth, _)| *depth)
}

fn micros(micros: f64) -> String {
    format!("{micros:.2} µs")
}

fn thousands(per_second: f64) -> String {
    format!("{:.0}k", per_second / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_with_the_most_calls_is_the_best() {
        assert_eq!(best(&[(1, 50.0), (4, 70.0), (16, 60.0)]), 4);
        assert_eq!(best(&[]), 1);
    }
}
