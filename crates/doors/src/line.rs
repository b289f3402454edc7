//! Lines of requests that wait for a limit: first come, first served.
//!
//! The one in front asks again when its limit said that it would admit, and leaves; then the
//! next is in front. So requests leave at the limit's own pace, whatever its algorithm. A
//! request whose client is gone drops its ticket, and its place is the next one's. A request
//! that comes while others wait stands behind them, or it would take what they wait for.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::settings::DelaySettings;
use crate::described::Described;

/// What becomes of a request over a limit that does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    /// It waits, and its client with it.
    Delay,
    /// It is kept, and its client is sent away.
    Queue,
}

/// What a line is known by: the entries of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey(u64);

/// All lines there are.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Mutex<HashMap<LineKey, Line>>,
    waiting: AtomicUsize,
    tickets: AtomicU64,
    seed: RandomState,
}

#[derive(Debug)]
struct Line {
    later: Later,
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    ticket: u64,
    turn: Arc<Notify>,
}

/// There is no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineFull;

impl Lines {
    pub(super) fn new() -> Self {
        Lines {
            lines: Mutex::default(),
            waiting: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The key of one of the request's descriptors.
    pub(super) fn key(&self, described: &Described, descriptor: usize) -> LineKey {
        let entries = described.entries();
        let descriptors = described.descriptors(&entries);
        let of = descriptors.get(descriptor).map(|descriptor| descriptor.entries);
        let pairs = of.unwrap_or_default().iter().map(|entry| (entry.key, entry.value));
        LineKey(self.seed.hash_one(pairs.collect::<Vec<_>>()))
    }

    /// The line that somebody waits in whom this request must not overtake, and how.
    pub(super) fn standing(&self, described: &Described) -> Option<(LineKey, Later)> {
        if self.waiting() == 0 {
            return None;
        }
        let count = described.descriptors(&described.entries()).len();
        let lines = self.lines.lock();
        (0..count).find_map(|place| {
            let key = self.key(described, place);
            lines.get(&key).map(|line| (key, line.later))
        })
    }

    /// Takes the last place of a line, within these bounds.
    pub(super) fn join(
        self: &Arc<Self>,
        key: LineKey,
        later: Later,
        bounds: &DelaySettings,
    ) -> Result<Ticket, LineFull> {
        let mut lines = self.lines.lock();
        if later == Later::Delay && self.waiting() >= bounds.waiting_max {
            return Err(LineFull);
        }
        let new = || Line { later, places: VecDeque::new() };
        let line = &mut lines.entry(key).or_insert_with(new).places;
        // Those that are kept have a maximum of their own.
        if later == Later::Delay && line.len() >= bounds.line_max {
            return Err(LineFull);
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let turn = Arc::new(Notify::new());
        if line.is_empty() {
            turn.notify_one();
        }
        line.push_back(Place { ticket, turn: Arc::clone(&turn) });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { lines: Arc::clone(self), key, ticket, turn })
    }

    fn leave(&self, key: LineKey, ticket: u64) {
        let mut lines = self.lines.lock();
        let Some(Line { places: line, .. }) = lines.get_mut(&key) else { return };
        let Some(place) = line.iter().position(|place| place.ticket == ticket) else { return };
        line.remove(place);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match line.front() {
            None => drop(lines.remove(&key)),
            Some(next) if place == 0 => next.turn.notify_one(),
            Some(_) => {}
        }
    }
}

/// A place in a line. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Ticket {
    lines: Arc<Lines>,
    key: LineKey,
    ticket: u64,
    turn: Arc<Notify>,
}

impl Ticket {
    /// Waits until nobody is in front.
    pub(super) async fn turn(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lines.leave(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    fn bounds(waiting_max: usize, line_max: usize) -> DelaySettings {
        DelaySettings { waiting_max, line_max, ..DelaySettings::default() }
    }

    fn described(user: &str) -> Described {
        Described::new().descriptor([("user", user)])
    }

    #[tokio::test]
    async fn turns_come_in_order_and_a_place_given_up_is_the_next_ones() {
        let lines = Arc::new(Lines::new());
        let key = lines.key(&described("1"), 0);
        let join = || lines.join(key, Later::Delay, &bounds(10, 10)).unwrap();
        let (first, second, third) = (join(), join(), join());
        first.turn().await;
        let waiting = tokio::spawn(async move { third.turn().await });
        yield_now().await;
        drop(second);
        yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        assert_eq!(lines.waiting(), 0);
        assert!(lines.lines.lock().is_empty());
    }

    #[test]
    fn lines_are_bounded_each_and_together() {
        let lines = Arc::new(Lines::new());
        let (one, two) = (lines.key(&described("1"), 0), lines.key(&described("2"), 0));
        let join = |key| lines.join(key, Later::Delay, &bounds(3, 2));
        let _held = [join(one).unwrap(), join(one).unwrap()];
        assert_eq!(join(one).unwrap_err(), LineFull);
        let _other = join(two).unwrap();
        assert_eq!(join(two).unwrap_err(), LineFull);
        assert_eq!(lines.waiting(), 3);
    }

    #[test]
    fn newcomers_see_the_line_that_they_have_to_join() {
        let lines = Arc::new(Lines::new());
        assert_eq!(lines.standing(&described("1")), None);
        let key = lines.key(&described("1"), 0);
        let _first = lines.join(key, Later::Delay, &bounds(3, 2)).unwrap();
        assert_eq!(lines.standing(&described("1")), Some((key, Later::Delay)));
        assert_eq!(lines.standing(&described("2")), None);
    }
}
