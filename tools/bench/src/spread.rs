//! Several measurements of one thing: the middle of them, and how far they lie apart.

use super::drive::number;

/// Where the middle half of several measurements of one thing lies, and the mean of that half: it leaves out what is rare
/// as a median does, and needs fewer measurements than one.
#[derive(Debug, PartialEq)]
pub(super) struct Spread {
    lower: f64,
    pub(super) mid_mean: f64,
    upper: f64,
}

impl Spread {
    /// All zero of none.
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        // As many from either end.
        let left_out = sorted.len() / 4;
        let half = &sorted[left_out..sorted.len() - left_out];
        let (lower, upper) = (half.first().copied().unwrap_or_default(), half.last().copied().unwrap_or_default());
        Self { lower, mid_mean: half.iter().sum::<f64>() / number(half.len().max(1)), upper }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.1} % (middle half of the rounds: {:+.1} to {:+.1} %)", self.mid_mean, self.lower, self.upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_of_measurements() {
        let spread = Spread::of([9.0, 1.0, 5.0, 2.0, 6.5].into_iter());
        assert_eq!(spread, Spread { lower: 2.0, mid_mean: 4.5, upper: 6.5 });
        assert_eq!(spread.to_string(), "+4.5 % (middle half of the rounds: +2.0 to +6.5 %)");
        // However far the outermost are away.
        let far = Spread::of([4.0, -1_000.0, 3.0, 1_000_000.0].into_iter());
        assert_eq!(far, Spread { lower: 3.0, mid_mean: 3.5, upper: 4.0 });
        assert_eq!(Spread::of([2.0].into_iter()), Spread { lower: 2.0, mid_mean: 2.0, upper: 2.0 });
        assert_eq!(Spread::of(std::iter::empty()), Spread { lower: 0.0, mid_mean: 0.0, upper: 0.0 });
    }
}
