//! How many attempts an endpoint gets at once: more while it answers and could do with more, half as many when it shows
//! strain. Pure.

/// Attempts that an endpoint always gets.
pub const IN_FLIGHT_MIN: usize = 4;
/// Attempts that an endpoint never exceeds.
pub const IN_FLIGHT_MAX: usize = 256;

/// Additive increase, multiplicative decrease; doubling until the first strain.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: usize,
    successes: usize,
    was_strained: bool,
    /// Decreases so far.
    decreases: u64,
}

/// When an attempt began, counted in decreases: what began before the last one says nothing about the limit since.
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

    /// To be kept with an attempt that begins now.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.decreases)
    }

    /// An attempt was acknowledged while `in_flight` were under way. A limit that is not used is not raised.
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

    /// An attempt that began in `epoch` met no answer, or one that says that it is too much.
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
    fn it_grows_while_all_is_well_and_halves_on_strain_within_its_bounds() {
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
    fn what_was_under_way_together_halves_it_once() {
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
    fn it_does_not_grow_unused() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded(IN_FLIGHT_MIN - 1);
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }
}
