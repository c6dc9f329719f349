//! Alternating rounds: two services get the same load in turns, so that changes of the machine affect both. The middle
//! of the rounds counts.

use super::drive::number;

/// Returns the turns of two services in `rounds` rounds: which of them has the load, and whether the turn counts. One
/// more round before them warms up. The service that goes second finds warmer caches, so the order changes with each
/// round.
pub(super) fn in_rounds(rounds: u32) -> impl Iterator<Item = (Side, bool)> {
    (0..=rounds).flat_map(|round| {
        let order = if round % 2 == 0 { [Side::First, Side::Second] } else { [Side::Second, Side::First] };
        order.map(|side| (side, round > 0))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    First,
    Second,
}

impl Side {
    /// Returns the value of this side.
    pub(super) fn of<T>(self, first: T, second: T) -> T {
        match self {
            Self::First => first,
            Self::Second => second,
        }
    }
}

/// The middle half of several measurements and its mean. Like a median it ignores outliers, but it needs fewer
/// measurements.
#[derive(Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) lower: f64,
    pub(super) mid_mean: f64,
    pub(super) upper: f64,
}

impl Spread {
    /// Computes the spread. All values are zero if there are no measurements.
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        // A quarter is left out at each end.
        let left_out = sorted.len() / 4;
        let half = &sorted[left_out..sorted.len() - left_out];
        let (lower, upper) = (half.first().copied().unwrap_or_default(), half.last().copied().unwrap_or_default());
        Self { lower, mid_mean: half.iter().sum::<f64>() / number(half.len().max(1)), upper }
    }

    /// Describes ratios as a change in percent.
    pub(super) fn change(&self) -> String {
        let [mean, lower, upper] = [self.mid_mean, self.lower, self.upper].map(|ratio| (ratio - 1.0) * 100.0);
        format!("{mean:+.1} % (middle half of the rounds: {lower:+.1} to {upper:+.1} %)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_a_turn_in_each_round_and_begin_alternately() {
        use Side::{First, Second};
        let turns: Vec<(Side, bool)> = in_rounds(2).collect();
        let [warm, one, two] = [false, true, true];
        assert_eq!(turns, [(First, warm), (Second, warm), (Second, one), (First, one), (First, two), (Second, two)]);
        assert_eq!([First, Second].map(|side| side.of("a", "b")), ["a", "b"]);
    }

    #[test]
    fn the_middle_half_ignores_outliers() {
        let spread = Spread::of([9.0, 1.0, 5.0, 2.0, 6.5].into_iter());
        assert_eq!(spread, Spread { lower: 2.0, mid_mean: 4.5, upper: 6.5 });
        let ratios = Spread::of([1.045, 1.02, 1.065, 0.1, 9.0].into_iter());
        assert_eq!(ratios.change(), "+4.3 % (middle half of the rounds: +2.0 to +6.5 %)");
        let far = Spread::of([4.0, -1_000.0, 3.0, 1_000_000.0].into_iter());
        assert_eq!(far, Spread { lower: 3.0, mid_mean: 3.5, upper: 4.0 });
        assert_eq!(Spread::of([2.0].into_iter()), Spread { lower: 2.0, mid_mean: 2.0, upper: 2.0 });
        assert_eq!(Spread::of(std::iter::empty()), Spread { lower: 0.0, mid_mean: 0.0, upper: 0.0 });
    }
}
