//! A queue ordered by level that also knows its oldest request.

use std::collections::VecDeque;

use tidegate_overload::LEVELS;

/// First come, first served within each level.
#[derive(Clone, Debug)]
pub(crate) struct LevelQueue {
    levels: Vec<VecDeque<(u32, u64)>>,
    /// A bit for each level with a queued request.
    occupied: [u64; LEVELS / 64],
    /// Level and ticket of all requests, oldest first; some may have left.
    order: VecDeque<(u16, u32, u64)>,
    len: usize,
}

impl LevelQueue {
    pub(crate) fn new() -> Self {
        LevelQueue {
            levels: vec![VecDeque::new(); LEVELS],
            occupied: [0; LEVELS / 64],
            order: VecDeque::new(),
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, level: u16, slot: u32, now: u64) {
        self.levels[usize::from(level)].push_back((slot, now));
        self.occupied[usize::from(level) / 64] |= 1 << (level % 64);
        self.order.push_back((level, slot, now));
        self.len += 1;
    }

    /// The oldest request of the highest level, and since when it waits.
    pub(crate) fn pop(&mut self) -> Option<(u32, u64)> {
        let word = self.occupied.iter().rposition(|word| *word != 0)?;
        let bit = 63 - usize::try_from(self.occupied[word].leading_zeros()).unwrap_or(0);
        self.take(word * 64 + bit)
    }

    /// Since when the oldest request waits. Removes requests that have left.
    pub(crate) fn oldest(&mut self) -> Option<u64> {
        while let Some((level, slot, since)) = self.order.front() {
            if self.levels[usize::from(*level)].front() == Some(&(*slot, *since)) {
                return Some(*since);
            }
            self.order.pop_front();
        }
        None
    }

    /// The oldest request.
    pub(crate) fn pop_oldest(&mut self) -> Option<u32> {
        self.oldest()?;
        let (level, _, _) = self.order.pop_front()?;
        self.take(usize::from(level)).map(|(slot, _)| slot)
    }

    fn take(&mut self, level: usize) -> Option<(u32, u64)> {
        let taken = self.levels[level].pop_front()?;
        if self.levels[level].is_empty() {
            self.occupied[level / 64] &= !(1 << (level % 64));
        }
        self.len -= 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_highest_level_first_and_knows_the_oldest() {
        let mut queue = LevelQueue::new();
        queue.push(5, 1, 10);
        queue.push(511, 2, 11);
        queue.push(5, 3, 12);
        queue.push(64, 4, 13);
        assert_eq!((queue.pop(), queue.oldest()), (Some((2, 11)), Some(10)));
        assert_eq!(queue.pop_oldest(), Some(1));
        assert_eq!((queue.pop(), queue.len()), (Some((4, 13)), 1));
        assert_eq!(queue.oldest(), Some(12));
        assert_eq!((queue.pop(), queue.pop(), queue.oldest()), (Some((3, 12)), None, None));
    }
}
