//! The middle of several measurements of one thing, and their spread.

use super::drive::number;

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
