//! Window of deliveries that an endpoint has read and not yet attempted, in the order of first attempts. Pure.
//!
//! Each payment has at most one first attempt in progress; the next begins when it ends. Not here: retries, which block
//! nothing and need no order.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::queue::Waiting;

/// Waiting first attempts, by feed position and in one line per payment.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Rows of payments without a first attempt in progress; one per payment.
    ready: BTreeMap<i64, Waiting>,
    /// The other rows, each behind the ready or running attempt of its payment. A payment without a line has neither.
    lines: HashMap<String, VecDeque<Waiting>>,
    len: usize,
}

impl Window {
    /// Adds a row behind the rows of the same payment.
    pub(super) fn push(&mut self, row: Waiting) {
        self.len += 1;
        if let Some(line) = self.lines.get_mut(&row.payment_id) {
            line.push_back(row);
        } else {
            self.lines.insert(row.payment_id.clone(), VecDeque::new());
            self.ready.insert(row.position, row);
        }
    }

    /// Returns the next first attempt. The other rows of its payment wait until [`Self::ended`].
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let (_, row) = self.ready.pop_first()?;
        self.len -= 1;
        Some(row)
    }

    /// Returns a row from [`Self::pop`] that was not attempted.
    pub(super) fn put_back(&mut self, row: Waiting) {
        self.len += 1;
        self.ready.insert(row.position, row);
    }

    /// Ends the first attempt in progress of this payment.
    pub(super) fn ended(&mut self, payment_id: &str) {
        let Some(line) = self.lines.get_mut(payment_id) else { return };
        match line.pop_front() {
            Some(next) => {
                self.ready.insert(next.position, next);
            }
            None => {
                self.lines.remove(payment_id);
            }
        }
    }

    /// Drops the waiting rows but remembers which payments have a first attempt in progress.
    pub(super) fn clear(&mut self) {
        for row in std::mem::take(&mut self.ready).into_values() {
            self.lines.remove(&row.payment_id);
        }
        self.lines.values_mut().for_each(VecDeque::clear);
        self.len = 0;
    }

    /// Number of waiting rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of rows that could be attempted now.
    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Returns `true` if the row waits here.
    pub(super) fn holds(&self, row: &Waiting) -> bool {
        let waits = |waiting: &Waiting| waiting.id == row.id;
        self.ready.get(&row.position).is_some_and(waits)
            || self.lines.get(&row.payment_id).is_some_and(|line| line.iter().any(waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: i64, payment: &str) -> Waiting {
        Waiting { id: format!("whd_{position}"), payment_id: payment.to_owned(), position }
    }

    fn next(window: &mut Window) -> Option<i64> {
        window.pop().map(|row| row.position)
    }

    #[test]
    fn first_attempts_of_a_payment_are_serial_and_other_payments_pass() {
        let mut window = Window::default();
        for (position, payment) in [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "c")] {
            window.push(row(position, payment));
        }
        assert_eq!([next(&mut window), next(&mut window), next(&mut window)], [Some(1), Some(3), Some(5)]);
        assert_eq!((next(&mut window), window.len()), (None, 2));
        window.ended("a");
        assert_eq!((next(&mut window), next(&mut window)), (Some(2), None));
        window.push(row(6, "a"));
        window.ended("b");
        window.push(row(7, "b"));
        window.ended("a");
        assert_eq!([next(&mut window), next(&mut window), next(&mut window)], [Some(4), Some(7), None]);
        window.ended("a");
        assert_eq!((next(&mut window), window.len()), (Some(6), 0));
    }

    #[test]
    fn attempt_in_progress_still_blocks_its_payment_after_clear() {
        let mut window = Window::default();
        for (position, payment) in [(1, "a"), (2, "a"), (3, "b")] {
            window.push(row(position, payment));
        }
        assert_eq!(next(&mut window), Some(1));
        assert!(window.holds(&row(2, "a")) && window.holds(&row(3, "b")) && !window.holds(&row(1, "a")));
        window.clear();
        assert_eq!((window.len(), window.ready_len()), (0, 0));
        window.push(row(2, "a"));
        window.push(row(3, "b"));
        assert_eq!(
            (next(&mut window), next(&mut window)),
            (Some(3), None),
            "the first attempt of a is still in progress"
        );
        window.ended("a");
        assert_eq!(next(&mut window), Some(2));
    }
}
