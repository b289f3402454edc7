//! Random rules and requests on both programs: every answer, the limits in place, the statistics and the health.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use tidegate_test_servers::eventually;

use crate::ask::http;
use crate::compare::differences;
use crate::programs::{Backend, Pair, Programs};
use crate::random::{Random, ask, rules};
use crate::statsd::{Counters, Statsd};

/// Seeds that share a start of the programs: each has a domain of its own.
const BATCH: u64 = 500;
/// Requests of one seed.
const REQUESTS: u64 = 10;
/// The statistics of a limit that a request partly over it changes differently; see the list of differences.
const SPLIT_COUNTS: [&str; 3] = [".over_limit", ".near_limit", ".shadow_mode"];
const RATE_LIMIT: &str = "ratelimit.service.rate_limit.";
/// Differences that are shown in full.
const SHOWN_MAX: usize = 20;
/// How long before the end of an hour a seed waits for the next.
const EDGE_SECONDS: u64 = 15;

/// What was compared, and how much of it differed.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Seeds.
    pub seeds: u64,
    /// Answers over gRPC and `/json`.
    pub answers: u64,
    /// Answers that differ.
    pub differing: u64,
    /// Lines of `/rlconfig`, and those that differ.
    pub lines: [u64; 2],
    /// Statistics, and those that differ.
    pub statistics: [u64; 2],
    /// The first differences.
    pub shown: Vec<String>,
}

impl Figures {
    /// Whether nothing differed.
    pub fn all_equal(&self) -> bool {
        self.differing == 0 && self.lines[1] == 0 && self.statistics[1] == 0
    }

    fn show(&mut self, text: impl FnOnce() -> String) {
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(text());
        }
    }
}

/// Compares both programs on the rules and requests of these seeds.
///
/// # Errors
/// When a program cannot be started or asked.
pub fn compare_seeds(
    programs: &Programs,
    seeds: Range<u64>,
    progress: impl Fn(&Figures),
) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut figures = Figures::default();
    let mut first = seeds.start;
    while first < seeds.end {
        let batch = first..seeds.end.min(first + BATCH);
        runtime.block_on(compare_batch(programs, batch, &mut figures))?;
        progress(&figures);
        first += BATCH;
    }
    Ok(figures)
}

/// The environment of a batch, by its number.
fn variables(number: u64) -> Vec<(&'static str, &'static str)> {
    let mut variables = Vec::new();
    for (bit, name) in [
        (1, "LIMIT_RESPONSE_HEADERS_ENABLED"),
        (2, "RESPONSE_DYNAMIC_METADATA"),
        (4, "SHADOW_MODE"),
    ] {
        // Headers and metadata in half of the batches, shadow mode in a quarter.
        if number & bit == bit && (bit < 4 || number.is_multiple_of(2)) {
            variables.push((name, "true"));
        }
    }
    variables.push(("STATS_FLUSH_INTERVAL", "500ms"));
    variables
}

async fn compare_batch(
    programs: &Programs,
    seeds: Range<u64>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let number = seeds.start / BATCH;
    let backend = if number.is_multiple_of(2) { Backend::Redis } else { Backend::Memory };
    // Costs above one make a request partly over its limit, which is counted differently.
    let hits_max = if number.is_multiple_of(3) { 1 } else { 4 };
    let domain = |seed: u64| format!("seed-{seed}");
    let texts: Vec<(String, String)> = seeds
        .clone()
        .map(|seed| (format!("{seed}.yaml"), rules(&mut Random::new(seed), &domain(seed))))
        .collect();
    let files: Vec<(&str, &str)> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let statsd = Statsd::start()?;
    let port = statsd.port.to_string();
    let mut variables = variables(number);
    variables.extend([
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", &port),
    ]);
    let mut pair = programs.start(&files, &variables, backend)?;
    pair.wait();
    compare_lines(&pair, figures)?;
    for (seed, (_, text)) in seeds.clone().zip(&texts) {
        wait_for_a_whole_window();
        let mut random = Random::new(seed ^ 0x5EED);
        for _ in 0..REQUESTS {
            let asked = ask(&mut random, &domain(seed), hits_max);
            let over_json = random.once_in(3);
            let (upstream, tidegate) = if over_json {
                (pair.upstream.client.json(&asked)?, pair.tidegate.client.json(&asked)?)
            } else {
                let upstream = pair.upstream.client.grpc(&asked).await;
                (upstream, pair.tidegate.client.grpc(&asked).await)
            };
            figures.answers += 1;
            let found = differences(&upstream, &tidegate);
            if !found.is_empty() {
                figures.differing += 1;
                figures.show(|| {
                    format!(
                        "seed {seed}, batch {number} on {backend:?}: {asked:?}\n{found:#?}\n{text}"
                    )
                });
            }
        }
        figures.seeds += 1;
    }
    ensure!(!pair.upstream.has_ended() && !pair.tidegate.has_ended(), "a program has ended");
    compare_statistics(&pair, &statsd, hits_max == 1, figures)
}

/// Compares `/rlconfig`, whose lines upstream lists in any order, and the health.
fn compare_lines(pair: &Pair, figures: &mut Figures) -> anyhow::Result<()> {
    let lines = |page: String| {
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        page.lines().for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
        counts
    };
    let mut balance = lines(pair.upstream.debug_page("/rlconfig")?);
    figures.lines[0] += balance.len() as u64;
    for (line, count) in lines(pair.tidegate.debug_page("/rlconfig")?) {
        *balance.entry(line).or_default() -= count;
    }
    for (line, count) in balance.into_iter().filter(|(_, count)| *count != 0) {
        figures.lines[1] += 1;
        figures.show(|| format!("/rlconfig: {line}: {count:+} upstream"));
    }
    let health = |port: u16| -> anyhow::Result<(u16, String)> {
        let answer = http(port, "GET", "/healthcheck", "")?;
        Ok((answer.status, answer.body))
    };
    let (upstream, tidegate) = (health(pair.upstream.http)?, health(pair.tidegate.http)?);
    ensure!(upstream == tidegate, "/healthcheck: {upstream:?} and {tidegate:?}");
    Ok(())
}

/// Compares the counters of limits. Without `all`, those that a request partly over its limit changes are left out.
fn compare_statistics(
    pair: &Pair,
    statsd: &Statsd,
    all: bool,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let counted = |name: &str| {
        name.starts_with(RATE_LIMIT) && (all || !SPLIT_COUNTS.iter().any(|end| name.ends_with(end)))
    };
    let page = pair.tidegate.debug_page("/stats")?;
    let ours: Counters = page
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter(|(name, _)| counted(name))
        .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
        .collect();
    // Upstream sends them twice a second; the last ones are on their way.
    let mut before = Counters::new();
    let theirs = eventually("the last statistics", || {
        thread::park_timeout(Duration::from_millis(1_500));
        let now: Counters = statsd.read().into_iter().filter(|(name, _)| counted(name)).collect();
        let is_last = !now.is_empty() && now == before;
        before.clone_from(&now);
        is_last.then_some(now)
    });
    let names: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for name in names {
        let count = |counters: &Counters| counters.get(name).copied().unwrap_or_default();
        let (upstream, tidegate) = (count(&theirs), count(&ours));
        figures.statistics[0] += 1;
        if upstream != tidegate {
            figures.statistics[1] += 1;
            figures.show(|| format!("{name}: upstream {upstream}, tidegate {tidegate}"));
        }
    }
    Ok(())
}

/// Waits for the next hour if this one is almost over: all windows end with an hour.
fn wait_for_a_whole_window() {
    #[expect(clippy::disallowed_methods, reason = "upstream counts by the real clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let rest = 3_600 - now % 3_600;
    if rest <= EDGE_SECONDS {
        thread::park_timeout(Duration::from_secs(rest + 1));
    }
}
