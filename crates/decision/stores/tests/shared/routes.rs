//! A remote with several routes, of which one is lost.

use std::sync::atomic::Ordering;

use tidegate_algorithms::{FixedWindow, Limit, Period, Window};
use tidegate_stores::{Basis, Check, Consistency, Route, Verb};

use super::world::{Node, World, check, key, pass, policy};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Where nodes register, and where they do not.
const ROUTES: [Route; 2] = [Route(0), Route(1)];

fn hourly() -> Limit {
    Limit::new(FixedWindow::new(1_000, Window::Every(Period::HOUR)))
}

/// A server with two routes, and a node.
async fn two_routes() -> (World, Node) {
    let world = World::new();
    world.server.spread(2);
    let node = world.node(1);
    pass(20).await;
    (world, node)
}

/// The name of a key that lies there.
fn name_on(world: &World, route: Route) -> &'static str {
    let lies_there = |name: &&&str| world.server.route(key(name)) == route;
    NAMES.iter().find(lies_there).expect("eight names lie in both places")
}

/// A check of a key that lies there.
fn on<'a>(world: &World, route: Route, limit: &'a Limit, mode: Consistency) -> Check<'a> {
    check(name_on(world, route), limit, 1, policy(mode))
}

#[tokio::test(start_paused = true)]
async fn a_lost_route_leaves_the_keys_of_the_others_exact() {
    for lost in ROUTES {
        let (world, node) = two_routes().await;
        let limit = hourly();
        let gone = on(&world, lost, &limit, Consistency::Exact);
        let there = on(&world, Route(1 - lost.0), &limit, Consistency::Exact);
        world.server.lose(Some(lost));
        for _ in 0..300 {
            assert_eq!(node.ask(gone).await.1, Basis::Local);
            assert_eq!(node.ask(there).await.1, Basis::Exact);
            pass(10).await;
        }
        let metrics = node.metrics();
        assert!(metrics.degraded && metrics.outages == 1, "{metrics:?}");
        assert_eq!(metrics.fell_back_local, 300);
        assert!(metrics.failures < 20, "five, and the probes: {}", metrics.failures);
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_back_is_called_again_and_charged_once() {
    for lost in ROUTES {
        let (world, node) = two_routes().await;
        let limit = hourly();
        let name = name_on(&world, lost);
        let gone = on(&world, lost, &limit, Consistency::Exact);
        assert_eq!(node.burst(gone, 10).await, 10);
        world.server.lose(Some(lost));
        assert_eq!(node.burst(gone, 20).await, 20);
        pass(3_000).await;
        assert_eq!(world.left(name, &limit), 990);
        world.server.lose(None);
        pass(3_000).await;
        assert!(!node.metrics().degraded);
        assert_eq!(node.ask(gone).await.1, Basis::Exact);
        assert_eq!(world.left(name, &limit), 969, "31 in all");
        assert_eq!(node.metrics().owing, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_two_routes_blames_the_one_that_failed() {
    for lost in ROUTES {
        let (world, node) = two_routes().await;
        let limit = hourly();
        let gone = on(&world, lost, &limit, Consistency::Exact);
        let there = on(&world, Route(1 - lost.0), &limit, Consistency::Exact);
        world.server.lose(Some(lost));
        for _ in 0..50 {
            let decided = node.send(Verb::Check, &[gone, there]).await.expect("by its policy");
            assert!(decided.iter().all(|(_, basis)| *basis == Basis::Local), "{decided:?}");
            assert_eq!(node.ask(there).await.1, Basis::Exact);
        }
        assert_eq!(node.metrics().outages, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn slices_and_counts_of_other_routes_go_on() {
    let (world, node) = two_routes().await;
    let limit = hourly();
    let leased = on(&world, Route(1), &limit, Consistency::Leased);
    let counted = on(&world, Route(1), &limit, Consistency::Eventual);
    let gone = on(&world, Route(0), &limit, Consistency::Eventual);
    // Both modes of one key would be one counter too many.
    let other = NAMES.iter().rfind(|name| world.server.route(key(name)) == Route(1));
    let counted = Check { key: key(other.expect("there are several")), ..counted };
    assert_ne!(counted.key, leased.key);
    for millis in 0..2_000 {
        if millis == 500 {
            world.server.lose(Some(Route(0)));
        }
        assert_eq!(node.ask(leased).await.1, Basis::Leased);
        assert_eq!(node.ask(counted).await.1, Basis::Eventual);
        node.ask(gone).await;
        pass(1).await;
    }
    assert!(node.metrics().degraded);
    assert_eq!(node.ask(gone).await.1, Basis::Local);
    assert!(world.server.calls.load(Ordering::Relaxed) < 600, "one every 10 ms, and a few");
}
