//! Leases in virtual time on many seeds: how much of the capacity is used, how equally, and what it asks of the store.
//!
//! Run it: `cargo run --release -p tidegate-capacity --example lease_figures -- [SEEDS]`. It plays a thousand seeds
//! unless told otherwise, checks every window and every slot, and prints the figures of docs/capacity.md.

#![allow(clippy::unwrap_used, reason = "the simulation cannot continue without these values")]

#[path = "../tests/fleet/simulation.rs"]
mod simulation;

use simulation::{Faults, Fleet, MILLI, SECOND, Scene, scene};

/// Every fault at once.
const ALL_FAULTS: Faults =
    Faults { lost: 10, frozen: 10, killed: 3, outages: 2, wiped: 2, changes: 20, limit_changes: 5 };
/// A new document settles for a lease and its guard; after this much the members are in their steady state.
const WARM_UP: u64 = 30 * SECOND;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds: u64 = std::env::args().nth(1).map_or(Ok(1_000), |text| text.parse())?;
    let mut sent = 0;
    for seed in 0..seeds {
        let store_clock = seed % 2 == 0;
        let mut fleet = Fleet::new(Scene { faults: ALL_FAULTS, store_clock, ..scene() }, seed);
        fleet.run();
        fleet.check_windows(seed);
        sent += fleet.units_sent();
    }
    println!(
        "{seeds} seeds with all faults: {sent} units, no window above its limit, no slot used twice"
    );
    println!(
        "| Members, slots | Used | Jain index, worst | Newcomer: median, worst | Lost races | Heartbeats of a member |"
    );
    println!("|---|---|---|---|---|---|");
    for (members, slots, wants) in
        [(1, 100, 100), (4, 100, 100), (10, 100, 100), (50, 500, 500), (4, 100, 25), (10, 100, 10)]
    {
        print_row(members, slots, wants, (seeds / 20).clamp(1, 50));
    }
    Ok(())
}

/// Members that each want this many slots, on the first seeds.
fn print_row(members: usize, slots: u16, wants: u16, seeds: u64) {
    let (mut used, mut beats, mut writes, mut conflicts) = (0.0, 0.0, 0, 0);
    let (mut jain_worst, mut newcomers) = (1.0_f64, Vec::new());
    for seed in 0..seeds {
        let limit = 50 * u64::from(slots);
        let mut fleet = Fleet::new(Scene { limit, slots, members, ..scene() }, seed);
        for member in &mut fleet.members {
            member.wants = wants;
        }
        fleet.run_for(WARM_UP);
        let (from, before) = (fleet.now, fleet.figures);
        for _ in 0..60 {
            fleet.run_for(SECOND);
            jain_worst = jain_worst.min(jain(&fleet));
        }
        fleet.check_windows(seed);
        used += fleet.units_between(from, fleet.now) as f64 / (60 * limit) as f64;
        beats += (fleet.figures.heartbeats - before.heartbeats) as f64 / 60.0 / members as f64;
        writes += fleet.figures.writes - before.writes;
        conflicts += fleet.figures.conflicts - before.conflicts;
        newcomers.push(time_of_newcomer(&mut fleet, wants));
    }
    newcomers.sort_unstable();
    let seconds = |nanos: u64| nanos as f64 / SECOND as f64;
    println!(
        "| {members}, {slots}, each wants {wants} | {:.3} | {jain_worst:.3} | {:.1} s, {:.1} s | {:.1} % | {:.2}/s |",
        used / seeds as f64,
        seconds(newcomers[newcomers.len() / 2]),
        seconds(newcomers[newcomers.len() - 1]),
        100.0 * conflicts as f64 / writes.max(1) as f64,
        beats / seeds as f64,
    );
}

/// How equal the shares are: 1 if all are the same.
fn jain(fleet: &Fleet) -> f64 {
    let shares = (0..fleet.members.len()).map(|member| fleet.slots_of(member) as f64);
    let (sum, squares) =
        shares.fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    if squares == 0.0 { 1.0 } else { sum * sum / (fleet.members.len() as f64 * squares) }
}

/// How long another member takes to hold nine tenths of its fair share.
fn time_of_newcomer(fleet: &mut Fleet, wants: u16) -> u64 {
    fleet.join();
    let newcomer = fleet.members.len() - 1;
    fleet.members[newcomer].wants = wants;
    let fair = (usize::from(fleet.scene.slots) / fleet.members.len()).min(usize::from(wants));
    let from = fleet.now;
    // Its start, at a random instant of the first second, counts.
    while fleet.slots_of(newcomer) * 10 < fair * 9 && fleet.now < from + 60 * SECOND {
        fleet.run_for(10 * MILLI);
    }
    fleet.now - from
}
