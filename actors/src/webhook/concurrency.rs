//! How many attempts an endpoint gets at once: more while it answers, half as many when it fails. Pure.

/// Attempts that an endpoint always gets.
pub const IN_FLIGHT_MIN: usize = 4;
/// Attempts that an endpoint never exceeds.
pub const IN_FLIGHT_MAX: usize = 256;

/// Additive increase, multiplicative decrease; doubling until the first failure.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: usize,
    successes: usize,
    has_failed: bool,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { limit: IN_FLIGHT_MIN, successes: 0, has_failed: false }
    }
}

impl Concurrency {
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn succeeded(&mut self) {
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = if self.has_failed { self.limit + 1 } else { self.limit * 2 }.min(IN_FLIGHT_MAX);
        }
    }

    pub(super) fn failed(&mut self) {
        self.successes = 0;
        self.has_failed = true;
        self.limit = (self.limit / 2).max(IN_FLIGHT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_all_is_well_and_halves_on_failure_within_its_bounds() {
        let mut concurrency = Concurrency::default();
        for _ in 0..10_000 {
            concurrency.succeeded();
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX);
        concurrency.failed();
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2);
        for _ in 0..IN_FLIGHT_MAX / 2 {
            concurrency.succeeded();
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MAX / 2 + 1);
        for _ in 0..20 {
            concurrency.failed();
        }
        assert_eq!(concurrency.limit(), IN_FLIGHT_MIN);
    }
}
