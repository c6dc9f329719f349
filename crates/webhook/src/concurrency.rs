//! Adaptive limit of an endpoint's concurrent attempts: grows while the receiver answers and the limit is used, halves
//! on strain. Pure.

/// Attempts that every endpoint may have in progress.
pub const IN_FLIGHT_MIN: usize = 4;
/// Upper bound of the limit.
pub const IN_FLIGHT_MAX: usize = 256;

/// Additive increase, multiplicative decrease; doubles until the first strain.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: usize,
    successes: usize,
    was_strained: bool,
    /// Number of decreases.
    decreases: u64,
}

/// Start of an attempt, counted in decreases. An attempt that began before the last decrease carries no information
/// about the current limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch(u64);

impl Default for Concurrency {
    fn default() -> Self {
        Self { limit: IN_FLIGHT_MIN, successes: 0, was_strained: false, decreases: 0 }
    }
}

impl Concurrency {
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Epoch for an attempt that begins now.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.decreases)
    }

    /// Records an acknowledged attempt while `in_flight` were in progress. An unused limit does not rise.
    pub(super) fn succeeded(&mut self, in_flight: usize) {
        if in_flight < self.limit {
            return;
        }
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = if self.was_strained { self.limit + 1 } else { self.limit * 2 }.min(IN_FLIGHT_MAX);
        }
    }

    /// Records that an attempt of `epoch` got no answer or an overload status.
    pub(super) fn strained(&mut self, epoch: Epoch) {
        if epoch != self.epoch() {
            return;
        }
        self.successes = 0;
        self.was_strained = true;
        self.decreases += 1;
        self.limit = (self.limit / 2).max(IN_FLIGHT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_on_success_and_halves_on_strain_within_bounds() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MAX);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX);
        concurrency.strained(concurrency.epoch());
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2);
        for _ in 0..IN_FLIGHT_MAX / 2 {
            concurrency.succeeded(IN_FLIGHT_MAX / 2);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2 + 1);
        for _ in 0..20 {
            concurrency.strained(concurrency.epoch());
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }

    #[test]
    fn concurrent_strained_attempts_halve_it_once() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MAX);
        }
        let together = concurrency.epoch();
        for _ in 0..IN_FLIGHT_MAX {
            concurrency.strained(together);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2);
    }

    #[test]
    fn does_not_grow_while_unused() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MIN - 1);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }
}
