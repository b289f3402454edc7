//! The background tasks on tokio: ticks with readings of the scheduling delay, and beats to the
//! fleet's board.
//!
//! Each is a future that never ends: spawn it, and drop it to stop. Beats wait for the board, so
//! they run in their own task and do not delay ticks. After a pause, missed ticks are skipped.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::fleet::FleetBoard;
use crate::probe::SchedulerProbe;
use crate::protection::Protection;

/// The random part of the time between beats in percent, so that nodes do not beat in step.
const JITTER_PERCENT: u64 = 10;

/// Calls [`Protection::tick`] at its period.
pub async fn run<C: Clock>(protection: Arc<Protection<C>>) -> Infallible {
    let period = Duration::from(protection.worker().settings().law.period);
    let step = Duration::from(SchedulerProbe::EVERY);
    let mut wake = Instant::now();
    let mut tick = wake + period;
    loop {
        wake += step;
        sleep_until(wake).await;
        let now = Instant::now();
        let late = now.saturating_duration_since(wake);
        protection.probe().record(Nanos::from(late));
        if now >= tick {
            protection.tick();
            tick = (tick + period).max(now);
        }
        if late > period {
            wake = now;
        }
    }
}

/// Reports to the board on every beat and accepts its grants. An answer that takes longer than a
/// beat is a missed beat.
pub async fn run_beats<C: Clock, B: FleetBoard>(
    protection: Arc<Protection<C>>,
    board: B,
    node: u64,
) -> Infallible {
    let fleet = Arc::clone(protection.fleet());
    let beat = fleet.settings().beat;
    loop {
        let sent = protection.clock().now();
        let answer = timeout(beat.into(), board.beat(fleet.report(node, sent))).await;
        match answer {
            Ok(Ok(grant)) => fleet.accept(sent, &grant),
            Ok(Err(_)) | Err(_) => fleet.miss_beat(),
        }
        sleep(jittered(beat, protection.random()).into()).await;
    }
}

/// The span ± 10 %.
fn jittered(span: Nanos, random: u64) -> Nanos {
    let most = span.get() / 100 * JITTER_PERCENT;
    let moved = random % (2 * most).saturating_add(1);
    Nanos::new(span.get().saturating_sub(most).saturating_add(moved))
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::Timestamp;
    use tokio::time::advance;

    use super::*;
    use crate::category::Category;
    use crate::fleet::{BoardError, FleetSettings, Grant, Report, SharedBoard};
    use crate::protection::ProtectionSettings;
    use crate::tokio_clock::TokioClock;

    fn protection(limit: u64) -> Arc<Protection<TokioClock>> {
        let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
        Arc::new(Protection::new(ProtectionSettings::new(limit), clock))
    }

    /// A board that never answers.
    struct Silent;

    impl FleetBoard for Silent {
        async fn beat(&self, _: Report) -> Result<Grant, BoardError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_come_at_their_period() {
        let protection = protection(10);
        let ticks = tokio::spawn(run(Arc::clone(&protection)));
        for _ in 0..40 {
            protection.worker().offer(crate::Level::CRITICAL);
        }
        sleep(Duration::from_millis(240)).await;
        assert_eq!(protection.gauges().worker.arrivals, 0);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(protection.gauges().worker.arrivals, 40);
        sleep(Duration::from_millis(250)).await;
        assert_eq!(protection.gauges().worker.arrivals, 0);
        ticks.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_runtime_is_noticed() {
        let protection = protection(10);
        let ticks = tokio::spawn(run(Arc::clone(&protection)));
        tokio::task::yield_now().await;
        for _ in 0..20 {
            advance(Duration::from_millis(100)).await;
            sleep(Duration::from_millis(1)).await;
        }
        assert!(protection.gauges().scheduler_delay > Nanos::from_millis(10));
        sleep(Duration::from_secs(2)).await;
        assert!(protection.gauges().scheduler_delay < Nanos::from_millis(10));
        ticks.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_share_a_board_and_the_idle_one_leaves_its_part_to_the_busy_one() {
        let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
        let board = Arc::new(SharedBoard::new(FleetSettings::default(), clock));
        let (busy, idle) = (protection(100), protection(100));
        for (node, protection) in (0..).zip([&busy, &idle]) {
            tokio::spawn(run_beats(Arc::clone(protection), Arc::clone(&board), node));
        }
        let mut held = Vec::new();
        for _ in 0..200 {
            sleep(Duration::from_millis(200)).await;
            let now = busy.clock().now();
            held.extend(std::iter::from_fn(|| busy.fleet().try_enter(now, Category::Post)));
        }
        assert_eq!(held.len(), 100, "all of its own capacity");
        let view = idle.gauges().fleet;
        assert_eq!((view.pool, view.used), (160, 100));
        assert!(view.grant <= 60 && !view.fallback);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_board_leaves_the_node_with_its_safe_share() {
        let protection = protection(100);
        let clock = *protection.clock();
        let grant =
            Grant { grant: 120, admit_below: 120, pool: 160, fleet_capacity: 200, fleet_used: 0 };
        protection.fleet().accept(clock.now(), &grant);
        let beats = tokio::spawn(run_beats(Arc::clone(&protection), Silent, 1));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(protection.gauges().fleet.grant, 120);
        sleep(Duration::from_millis(200)).await;
        let view = protection.gauges().fleet;
        assert_eq!((view.grant, view.fallback), (80, true));
        assert!(view.beats_missed >= 3);
        beats.abort();
    }

    #[test]
    fn beats_move_by_a_tenth_at_most() {
        let span = Nanos::from_millis(200);
        for random in 0..1_000 {
            let moved = jittered(span, crate::mix::mix(random));
            assert!((Nanos::from_millis(180)..=Nanos::from_millis(220)).contains(&moved));
        }
        jittered(Nanos::MAX, u64::MAX);
        assert_eq!(jittered(Nanos::ZERO, 7), Nanos::ZERO);
    }
}
