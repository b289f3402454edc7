//! A ring of rows, one row for each step of time.

/// Rows of `width` cells for the last `length` steps.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    step: u64,
    length: u64,
    width: usize,
    /// The number of the newest step since 1970; [`None`] before the first row.
    newest: Option<u64>,
    /// The number of the first step that had a row.
    first: u64,
    cells: Box<[T]>,
    empty: T,
}

impl<T: Copy> Ring<T> {
    /// A ring of empty rows.
    pub(crate) fn new(step: u64, length: u64, width: usize, empty: T) -> Self {
        let cells = usize::try_from(length).unwrap_or(0).saturating_mul(width);
        Ring {
            step,
            length,
            width,
            newest: None,
            first: 0,
            cells: vec![empty; cells].into(),
            empty,
        }
    }

    /// The bytes of its rows.
    pub(crate) const fn bytes(&self) -> usize {
        size_of_val::<[T]>(&self.cells)
    }

    pub(crate) const fn step(&self) -> u64 {
        self.step
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.cells.fill(self.empty);
        self.newest = None;
    }

    /// The row of an instant, to be changed. Steps that were skipped are empty. [`None`] if the instant is older than
    /// the ring.
    pub(crate) fn row_mut(&mut self, now: u64) -> Option<&mut [T]> {
        let number = now / self.step;
        match self.newest {
            Some(newest) if number <= newest => {
                if newest - number >= self.length {
                    return None;
                }
            }
            Some(newest) => {
                let skipped = (number - newest).min(self.length);
                for back in 0..skipped {
                    let range = self.range(number - back);
                    if let Some(row) = self.cells.get_mut(range) {
                        row.fill(self.empty);
                    }
                }
                self.newest = Some(number);
            }
            None => (self.newest, self.first) = (Some(number), number),
        }
        let range = self.range(number);
        self.cells.get_mut(range)
    }

    /// Rows since an instant, from the oldest, each with its instant.
    pub(crate) fn rows_since(&self, since: u64) -> impl Iterator<Item = (u64, &[T])> {
        let end = self.newest.map_or(0, |newest| newest + 1);
        let oldest = end.saturating_sub(self.length).max(self.first);
        let first = since.div_ceil(self.step).max(oldest).min(end);
        (first..end)
            .filter_map(|number| Some((number * self.step, self.cells.get(self.range(number))?)))
    }

    fn range(&self, number: u64) -> std::ops::Range<usize> {
        let row = usize::try_from(number % self.length.max(1)).unwrap_or(0);
        row * self.width..(row + 1) * self.width
    }
}
