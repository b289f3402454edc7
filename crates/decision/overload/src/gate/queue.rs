//! The queue: one line for each category.
//!
//! A request that stops waiting leaves a gap in its line. A gap is recognized by its
//! generation, and gaps are swept when they are the larger part, so that every step takes
//! constant time (amortized).

use std::collections::VecDeque;

use tidegate_algorithms::Timestamp;

use crate::category::Category;

/// Gaps that even a short line may have.
const GAPS_MIN: usize = 16;

/// A position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// Unique among current tickets. Indexes are reused, so they stay below the longest
    /// queue so far.
    pub(crate) const fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) category: Category,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) deadline: Option<Timestamp>,
}

/// Which end of a line goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
}

#[derive(Debug, Default)]
struct QueueCell {
    generation: u32,
    waiting: Option<Waiter>,
}

#[derive(Debug, Default)]
struct Line {
    tickets: VecDeque<Ticket>,
    waiting: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    cells: Vec<QueueCell>,
    free: Vec<u32>,
    lines: [Line; 4],
    waiting: usize,
}

impl Queue {
    pub(super) const fn len(&self) -> usize {
        self.waiting
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Appends to the line of its category. The caller bounds the length.
    pub(super) fn join(&mut self, waiting: Waiter) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.cells.push(QueueCell::default());
            u32::try_from(self.cells.len() - 1).unwrap_or(u32::MAX)
        });
        let cell = &mut self.cells[index as usize];
        cell.waiting = Some(waiting);
        let ticket = Ticket { index, generation: cell.generation };
        let line = &mut self.lines[waiting.category.rank()];
        line.tickets.push_back(ticket);
        line.waiting += 1;
        self.waiting += 1;
        ticket
    }

    /// Removes from the queue; `None` when it has left already.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiting = self.take(ticket)?;
        let line = &mut self.lines[waiting.category.rank()];
        if line.tickets.len() > 2 * line.waiting + GAPS_MIN {
            let cells = &self.cells;
            line.tickets.retain(|ticket| find(cells, *ticket).is_some());
        }
        Some(waiting)
    }

    /// The oldest request of a category.
    pub(super) fn oldest(&mut self, category: Category) -> Option<(Ticket, Waiter)> {
        self.end(category, Order::OldestFirst)
    }

    /// Removes and returns the next request of a category.
    pub(super) fn next(&mut self, category: Category, order: Order) -> Option<(Ticket, Waiter)> {
        let (ticket, _) = self.end(category, order)?;
        Some((ticket, self.take(ticket)?))
    }

    /// The lowest category with a waiting request.
    pub(super) fn lowest(&self) -> Option<Category> {
        Category::ALL.into_iter().find(|category| self.lines[category.rank()].waiting > 0)
    }

    fn take(&mut self, ticket: Ticket) -> Option<Waiter> {
        let cell = self.cells.get_mut(ticket.index())?;
        if cell.generation != ticket.generation {
            return None;
        }
        let waiting = cell.waiting.take()?;
        cell.generation = cell.generation.wrapping_add(1);
        self.free.push(ticket.index);
        self.lines[waiting.category.rank()].waiting -= 1;
        self.waiting -= 1;
        Some(waiting)
    }

    /// The request at an end of a line, after gaps there are removed.
    fn end(&mut self, category: Category, order: Order) -> Option<(Ticket, Waiter)> {
        let line = &mut self.lines[category.rank()];
        loop {
            let ticket = match order {
                Order::OldestFirst => line.tickets.front(),
                Order::NewestFirst => line.tickets.back(),
            };
            let ticket = *ticket?;
            if let Some(waiting) = find(&self.cells, ticket) {
                return Some((ticket, waiting));
            }
            match order {
                Order::OldestFirst => line.tickets.pop_front(),
                Order::NewestFirst => line.tickets.pop_back(),
            };
        }
    }
}

fn find(cells: &[QueueCell], ticket: Ticket) -> Option<Waiter> {
    let cell = cells.get(ticket.index())?;
    if cell.generation == ticket.generation { cell.waiting } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(category: Category, second: u64) -> Waiter {
        let since = Timestamp::from_secs(second);
        Waiter { category, since, until: Timestamp::MAX, deadline: None }
    }

    #[test]
    fn a_line_is_left_from_either_end() {
        let mut queue = Queue::default();
        for second in 0..3 {
            queue.join(waiting(Category::Get, second));
        }
        let mut next = |order| queue.next(Category::Get, order).map(|(_, next)| next.since);
        assert_eq!(next(Order::NewestFirst), Some(Timestamp::from_secs(2)));
        assert_eq!(next(Order::OldestFirst), Some(Timestamp::from_secs(0)));
        assert_eq!(next(Order::OldestFirst), Some(Timestamp::from_secs(1)));
        assert_eq!(next(Order::OldestFirst), None);
    }

    #[test]
    fn those_who_gave_up_are_passed_over() {
        let mut queue = Queue::default();
        let gone = queue.join(waiting(Category::Post, 1));
        queue.join(waiting(Category::Post, 2));
        assert!(queue.leave(gone).is_some());
        assert!(queue.leave(gone).is_none());
        assert_eq!(
            queue.oldest(Category::Post).map(|(_, w)| w.since),
            Some(Timestamp::from_secs(2))
        );
        assert_eq!((queue.len(), queue.lowest()), (1, Some(Category::Post)));
    }

    #[test]
    fn a_line_whose_clients_come_and_go_stays_short() {
        let mut queue = Queue::default();
        queue.join(waiting(Category::Test, 0));
        for second in 1..10_000 {
            let ticket = queue.join(waiting(Category::Test, second));
            queue.leave(ticket);
        }
        assert!(queue.lines[0].tickets.len() < 64);
        assert!(queue.cells.len() < 4);
    }
}
