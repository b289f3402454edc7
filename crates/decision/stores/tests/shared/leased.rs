//! Limits that nodes take slices of.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{
    Clock, FixedWindow, Limit, Period, SlidingLog, Timestamp, TokenBucket, Window,
};
use tidegate_stores::{
    Answers, Basis, Batch, Charge, Check, Consistency, CounterStore, SharedSettings, Verb,
};

use super::fake::Condition;
use super::world::{Node, Witness, World, check, pass, policy};

fn bucket(rate: u64) -> Limit {
    Limit::new(TokenBucket::new(rate, Period::SECOND, rate))
}

fn window(limit: u64, period: Period) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(period)))
}

fn leased<'a>(name: &str, limit: &'a Limit) -> Check<'a> {
    check(name, limit, 1, policy(Consistency::Leased))
}

/// Sends one request per interval, and records the admissions.
async fn steady(
    world: &World,
    nodes: &[&Node],
    check: Check<'_>,
    every: Duration,
    lasting: Duration,
) -> Witness {
    let mut witness = Witness::default();
    let end = tokio::time::Instant::now() + lasting;
    let mut ticks = tokio::time::interval(every);
    for turn in 0_usize.. {
        ticks.tick().await;
        if tokio::time::Instant::now() >= end {
            break;
        }
        if nodes[turn % nodes.len()].admits(check).await {
            witness.saw(world.server.clock.now(), check.cost);
        }
    }
    witness
}

#[tokio::test(start_paused = true)]
async fn most_decisions_do_not_ask_the_remote() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(1_000);
    pass(20).await;
    let before = world.server.calls.load(Ordering::Relaxed);
    let every = Duration::from_millis(2);
    let witness =
        steady(&world, &[&node], leased("a", &limit), every, Duration::from_secs(10)).await;
    let calls = world.server.calls.load(Ordering::Relaxed) - before;
    assert_eq!(witness.total(), 5_000, "half of the limit: all are admitted");
    assert!(calls * 20 < 5_000, "{calls} calls for 5000 decisions");
    assert_eq!(node.ask(leased("a", &limit)).await.1, Basis::Leased);
}

/// The figure of the issue: 50,000 decisions a second on a thousand keys.
#[tokio::test(start_paused = true)]
async fn a_thousand_keys_share_their_renewals() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(100);
    let names: Vec<String> = (0..1_000).map(|number| format!("key{number}")).collect();
    let checks: Vec<Check<'_>> = names.iter().map(|name| leased(name, &limit)).collect();
    let mut admitted = 0_usize;
    let (mut warm_calls, mut warm_checks) = (0, 0);
    // Twenty milliseconds for each round: fifty a second for each key.
    for round in 0..150 {
        if round == 50 {
            warm_calls = world.server.calls.load(Ordering::Relaxed);
            warm_checks = world.server.checks.load(Ordering::Relaxed);
            admitted = 0;
        }
        for some in checks.chunks(50) {
            for check in some {
                admitted += usize::from(node.admits(*check).await);
            }
            pass(1).await;
        }
    }
    let calls = world.server.calls.load(Ordering::Relaxed) - warm_calls;
    let keys = world.server.checks.load(Ordering::Relaxed) - warm_checks;
    assert_eq!(admitted, 100_000);
    assert!(calls <= 2_000, "{calls} calls for 100,000 decisions: at most 20 for each 1000");
    assert!(keys <= 40_000, "{keys} keys in those calls");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_want_everything_stay_within_a_bucket_together() {
    let world = World::new();
    let nodes = [world.node_off_by(1, 700), world.node(2), world.node_off_by(3, -40)];
    let limit = bucket(200);
    let all: Vec<&Node> = nodes.iter().collect();
    let (every, lasting) = (Duration::from_millis(1), Duration::from_secs(5));
    let witness = steady(&world, &all, leased("a", &limit), every, lasting).await;
    assert!(witness.burst_at(200, Duration::from_secs(1)) <= 200);
    assert!(witness.total() > 5 * 200 * 9 / 10, "little is wasted: {}", witness.total());
}

#[tokio::test(start_paused = true)]
async fn nodes_that_want_everything_stay_within_a_log_together() {
    let world = World::new();
    let nodes = [world.node(1), world.node(2)];
    let limit = Limit::new(SlidingLog::new(100, Period::SECOND).unwrap());
    let all: Vec<&Node> = nodes.iter().collect();
    let (every, lasting) = (Duration::from_millis(1), Duration::from_secs(5));
    let witness = steady(&world, &all, leased("a", &limit), every, lasting).await;
    assert!(witness.most_in(Duration::from_secs(1)) <= 100);
    assert!(witness.total() > 350, "{}", witness.total());
}

#[tokio::test(start_paused = true)]
async fn slices_end_with_the_window_of_the_remotes_clock() {
    let world = World::new();
    world.server.clock.step(333);
    let nodes = [world.node_off_by(1, 250), world.node_off_by(2, -250)];
    nodes.iter().for_each(|node| node.line.slow(Duration::from_millis(4)));
    let limit = window(100, Period::SECOND);
    let all: Vec<&Node> = nodes.iter().collect();
    let (every, lasting) = (Duration::from_millis(1), Duration::from_secs(5));
    let witness = steady(&world, &all, leased("a", &limit), every, lasting).await;
    assert!(witness.most_in_aligned(Duration::from_secs(1)) <= 100);
    assert!(witness.total() >= 450, "{}", witness.total());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_given_back() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000, Period::HOUR);
    steady(
        &world,
        &[&node],
        leased("a", &limit),
        Duration::from_millis(1),
        Duration::from_millis(500),
    )
    .await;
    assert!(node.metrics().leases.held > 0);
    pass(1_500).await;
    let leases = node.metrics().leases;
    assert_eq!((leases.held, leases.lost), (0, 0));
    assert!(leases.returned > 0);
    assert_eq!(world.left("a", &limit), 500);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_gives_back_what_it_holds() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000, Period::HOUR);
    let lasting = Duration::from_millis(500);
    let every = Duration::from_millis(1);
    let used = steady(&world, &[&node], leased("a", &limit), every, lasting).await.total();
    assert!(world.left("a", &limit) < 1_000 - used);
    node.store.close(node.clock.now()).await;
    assert_eq!(world.left("a", &limit), 1_000 - used);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_crashes_takes_its_slices_with_it_and_no_more() {
    let world = World::new();
    let limit = window(1_000, Period::HOUR);
    let mut witness = Witness::default();
    for seed in 0..10 {
        let node = world.node(seed);
        let lasting = Duration::from_millis(200);
        let every = Duration::from_millis(1);
        witness
            .used
            .extend(steady(&world, &[&node], leased("a", &limit), every, lasting).await.used);
    }
    assert!(witness.total() <= 1_000);
    assert!(witness.total() >= 500, "{}", witness.total());
    assert!(world.left("a", &limit) <= 1_000 - witness.total());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_little_demand_gets_units_although_another_wants_all() {
    let world = World::new();
    let (greedy, modest) = (world.node(1), world.node(2));
    let limit = bucket(100);
    let check = leased("a", &limit);
    let mut found = 0;
    pass(1_100).await;
    for turn in 0..5_000 {
        greedy.admits(check).await;
        if turn % 100 == 0 {
            found += u64::from(modest.admits(check).await);
        }
        pass(1).await;
    }
    assert!(found >= 5, "{found} of 50 beside a thousand a second");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_does_not_lengthen_slices() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(400);
    let mut witness = Witness::default();
    for step in 0..3_000 {
        if step % 97 == 96 {
            node.clock.step(if step % 2 == 0 { -40 } else { 55 });
        }
        if node.admits(leased("a", &limit)).await {
            witness.saw(world.server.clock.now(), 1);
        }
        pass(1).await;
    }
    let burst = witness.burst_at(400, Duration::from_secs(1));
    assert!(burst <= 400, "{burst}");
    assert!(witness.total() > 500);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_held_up_destroys_no_slice_that_was_taken_since() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(10_000, Period::HOUR);
    let check = leased("a", &limit);
    steady(&world, &[&node], check, Duration::from_millis(1), Duration::from_millis(500)).await;
    // By one that read the clock 200 ms ago, and comes to be decided only now.
    let earlier = Timestamp::from_nanos(node.clock.now().as_nanos() - 200_000_000);
    let held = node.metrics().leases.held;
    let checks = [check];
    let mut answers = Answers::new();
    let batch = Batch::new(Verb::Check, Charge::AllOrNothing, earlier, &checks);
    node.store.apply(&batch, &mut answers).await.unwrap();
    assert!(answers[0].decision.is_admitted());
    // It may use a unit that was taken before it, and none that was taken later.
    assert!(node.metrics().leases.held + 1 >= held, "{held} were held");
    assert_eq!(node.metrics().leases.lost, 0);
}

#[tokio::test(start_paused = true)]
async fn slices_serve_while_the_remote_is_away_and_are_then_decided_by_policy() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(10_000, Period::HOUR);
    let check = leased("a", &limit);
    steady(&world, &[&node], check, Duration::from_millis(1), Duration::from_millis(500)).await;
    world.server.set(Condition::Refusing);
    assert_eq!(node.ask(check).await.1, Basis::Leased);
    pass(2_000).await;
    assert_eq!(node.ask(check).await.1, Basis::Local);
}

#[tokio::test(start_paused = true)]
async fn a_reset_voids_what_is_held() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000, Period::HOUR);
    let check = leased("a", &limit);
    steady(&world, &[&node], check, Duration::from_millis(1), Duration::from_millis(300)).await;
    node.send(Verb::Reset, &[check]).await.unwrap();
    assert_eq!(node.metrics().leases.held, 0);
    let peeked = node.send(Verb::Peek, &[check]).await.unwrap()[0].0;
    assert_eq!(peeked.remaining, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_peek_counts_what_this_node_holds_as_left() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000, Period::HOUR);
    let check = leased("a", &limit);
    let every = Duration::from_millis(1);
    let used = steady(&world, &[&node], check, every, Duration::from_millis(300)).await.total();
    let peeked = node.send(Verb::Peek, &[check]).await.unwrap()[0].0;
    assert_eq!(peeked.remaining, 1_000 - used);
}

/// Random numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        let state = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = state.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

#[tokio::test(start_paused = true)]
async fn random_arrivals_seldom_find_their_slice_used_up() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(500);
    let names: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    let mut chance = Chance(7);
    let (mut calls, mut keys) = (0, 0);
    // Ten a millisecond: fifty a second for each key.
    for millis in 0..4_000 {
        if millis == 1_000 {
            calls = world.server.calls.load(Ordering::Relaxed);
            keys = world.server.checks.load(Ordering::Relaxed);
        }
        for _ in 0..10 {
            let name = &names[chance.below(names.len())];
            assert!(node.admits(leased(name, &limit)).await);
        }
        pass(1).await;
    }
    calls = world.server.calls.load(Ordering::Relaxed) - calls;
    keys = world.server.checks.load(Ordering::Relaxed) - keys;
    assert!(calls <= 300 + 150, "{calls}: one every 10 ms, and 5 of 1000 decisions waited");
    assert!(keys <= 10_000, "{keys} keys in those calls, for 30,000 decisions");
    let lost = node.metrics().leases.lost;
    assert!(lost <= 20_000, "{lost} units ended unused, and 40,000 were used");
}

/// How many of the random arrivals of ten seconds are admitted, and how many there were.
async fn at_random(nodes: usize, per_second: usize, limit: &Limit) -> (usize, usize) {
    let world = World::new();
    let all: Vec<Node> = (1..).take(nodes).map(|seed| world.node(seed)).collect();
    pass(1_100).await;
    let mut chance = Chance(7);
    let (mut admitted, mut sent) = (0, 0);
    for _ in 0..10_000 {
        if chance.below(1_000) < per_second {
            sent += 1;
            let node = &all[chance.below(nodes)];
            admitted += usize::from(node.admits(leased("a", limit)).await);
        }
        pass(1).await;
    }
    (admitted, sent)
}

#[tokio::test(start_paused = true)]
async fn what_nodes_hold_ahead_leaves_nine_tenths_of_the_limit_to_random_arrivals() {
    for limit in [bucket(200), window(200, Period::SECOND)] {
        for nodes in [1, 3] {
            let (admitted, sent) = at_random(nodes, 180, &limit).await;
            assert!(
                admitted * 100 >= sent * 98,
                "{admitted} of {sent} by {nodes} nodes of {limit:?}"
            );
        }
    }
}

/// The checks that the server decided, and how many requests waited for it.
#[derive(Debug, Default)]
struct Cost {
    decisions: u64,
    checks: u64,
    waited: u64,
}

/// Requests for the keys of `next`, some every millisecond, with one cost measured after `warm_millis`.
async fn cost_of(
    latency: Duration,
    limit: &Limit,
    millis: u64,
    warm_millis: u64,
    mut next: impl FnMut(u64) -> Vec<String>,
) -> Cost {
    let world = World::new();
    let within = Duration::from_millis(500);
    let settings =
        SharedSettings { within, background_within: within, ..SharedSettings::default() };
    let node = world.node_with(1, 0, |store| store, &settings);
    node.line.slow(latency);
    let mut cost = Cost::default();
    let mut before = 0;
    for now in 0..millis {
        if now == warm_millis {
            before = world.server.checks.load(Ordering::Relaxed);
            cost = Cost::default();
        }
        for name in next(now) {
            let sent = tokio::time::Instant::now();
            assert!(node.admits(leased(&name, limit)).await, "at {now} ms: {limit:?}");
            cost.decisions += 1;
            cost.waited += u64::from(!sent.elapsed().is_zero());
        }
        pass(1).await;
    }
    cost.checks = world.server.checks.load(Ordering::Relaxed) - before;
    cost
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_used_rarely_costs_no_more_than_an_exact_check() {
    for limit in [
        bucket(1_000_000),
        Limit::new(TokenBucket::new(60, Period::MINUTE, 1_000)),
        window(1_000_000, Period::SECOND),
        window(1_000, Period::HOUR),
        Limit::new(SlidingLog::new(1_000, Period::MINUTE).unwrap()),
    ] {
        // A hundred keys, each once a second.
        let keys = |now: u64| now.is_multiple_of(10).then(|| format!("key{}", now / 10 % 100));
        let cost = cost_of(Duration::from_millis(1), &limit, 10_000, 0, |now| {
            keys(now).into_iter().collect()
        })
        .await;
        assert!(cost.decisions >= 400, "{cost:?}");
        assert!(cost.checks <= cost.decisions, "{cost:?}: {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_used_rarely_and_at_random_costs_hardly_more_than_an_exact_check() {
    for limit in
        [bucket(1_000_000), window(1_000_000, Period::SECOND), window(10_000, Period::HOUR)]
    {
        // A thousand keys, each once a second on average.
        let mut chance = Chance(11);
        let cost = cost_of(Duration::ZERO, &limit, 10_000, 0, |_| {
            vec![format!("key{}", chance.below(1_000))]
        })
        .await;
        assert!(cost.checks * 100 <= cost.decisions * 105, "{cost:?}: {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_costs_almost_nothing() {
    for limit in [
        bucket(1_000_000),
        window(1_000_000, Period::SECOND),
        window(1_000_000, Period::HOUR),
        Limit::new(TokenBucket::new(600_000, Period::MINUTE, 1_000_000)),
    ] {
        let cost =
            cost_of(Duration::from_millis(1), &limit, 5_000, 1_000, |_| vec!["hot".to_owned(); 5])
                .await;
        assert!(cost.decisions >= 15_000, "{cost:?}");
        assert!(cost.checks * 1_000 <= cost.decisions * 5, "5 for each 1,000: {cost:?}: {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_a_renewal_that_could_be_asked_for_earlier() {
    let limit = Limit::new(TokenBucket::new(600_000, Period::MINUTE, 1_000_000));
    for latency in [1, 20, 100] {
        let latency = Duration::from_millis(latency);
        for every in [1, 5, 40] {
            let cost = cost_of(latency, &limit, 6_000, 3_000, |now| {
                now.is_multiple_of(every).then(|| "a".to_owned()).into_iter().collect()
            })
            .await;
            assert_eq!(cost.waited, 0, "every {every} ms, {latency:?} away: {cost:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_refused_at_the_end_of_a_window_of_which_much_remains() {
    let limit = window(1_000_000, Period::SECOND);
    let cost = cost_of(Duration::from_millis(2), &limit, 3_000, 0, |now| {
        vec!["busy".to_owned(), format!("rare{now}")]
    })
    .await;
    assert!(cost.decisions >= 2_000, "{cost:?}");
}

/// A few busy keys, many rare ones: number n in proportion to 1 / (n + 1).
#[tokio::test(start_paused = true)]
async fn keys_in_zipfs_proportions_cost_less_than_half_of_exact_checks() {
    let mut sums = Vec::new();
    let mut sum = 0;
    for rank in 1..=2_000 {
        sum += 1_000_000 / rank;
        sums.push(sum);
    }
    for (limit, percent) in [(bucket(1_000_000), 50), (window(1_000_000, Period::SECOND), 25)] {
        let mut chance = Chance(3);
        let cost = cost_of(Duration::ZERO, &limit, 4_000, 1_500, |_| {
            let mut draw = || chance.below(sum);
            let drawn = (0..20).map(|_| draw());
            drawn.map(|drawn| sums.partition_point(|sum| *sum <= drawn).to_string()).collect()
        })
        .await;
        assert!(cost.checks * 100 <= cost.decisions * percent, "{cost:?}: {limit:?}");
    }
}
