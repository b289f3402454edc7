//! Who waits: a line for each category.
//!
//! Those who give up leave a gap in their line, found by its generation and swept
//! out when gaps are the larger part. So every step costs the same however long
//! the lines are.

use std::collections::VecDeque;

use tidegate_algorithms::Timestamp;

use crate::category::Category;

/// Gaps that a line may have whatever its length.
const GAPS_MIN: usize = 16;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// A number that no other ticket has at the same time. Numbers are used again, so they
    /// stay below the most that ever waited at once.
    pub(crate) const fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) category: Category,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) deadline: Option<Timestamp>,
}

/// Who of a line goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
}

#[derive(Debug, Default)]
struct Cell {
    generation: u32,
    waiting: Option<Waiting>,
}

#[derive(Debug, Default)]
struct Line {
    tickets: VecDeque<Ticket>,
    waiting: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    cells: Vec<Cell>,
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

    /// Joins the line of its category. The caller keeps the length bounded.
    pub(super) fn join(&mut self, waiting: Waiting) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.cells.push(Cell::default());
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

    /// Leaves the queue; `None` when it is not in it any more.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.take(ticket)?;
        let line = &mut self.lines[waiting.category.rank()];
        if line.tickets.len() > 2 * line.waiting + GAPS_MIN {
            let cells = &self.cells;
            line.tickets.retain(|ticket| find(cells, *ticket).is_some());
        }
        Some(waiting)
    }

    /// The oldest of a category.
    pub(super) fn oldest(&mut self, category: Category) -> Option<(Ticket, Waiting)> {
        self.end(category, Order::OldestFirst)
    }

    /// Takes the next of a category out of the queue.
    pub(super) fn next(&mut self, category: Category, order: Order) -> Option<(Ticket, Waiting)> {
        let (ticket, _) = self.end(category, order)?;
        Some((ticket, self.take(ticket)?))
    }

    /// The lowest category that waits.
    pub(super) fn lowest(&self) -> Option<Category> {
        Category::ALL.into_iter().find(|category| self.lines[category.rank()].waiting > 0)
    }

    fn take(&mut self, ticket: Ticket) -> Option<Waiting> {
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

    /// Who stands at an end of a line, once the gaps there are gone.
    fn end(&mut self, category: Category, order: Order) -> Option<(Ticket, Waiting)> {
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

fn find(cells: &[Cell], ticket: Ticket) -> Option<Waiting> {
    let cell = cells.get(ticket.index())?;
    if cell.generation == ticket.generation { cell.waiting } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(category: Category, second: u64) -> Waiting {
        let since = Timestamp::from_secs(second);
        Waiting { category, since, until: Timestamp::MAX, deadline: None }
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
