//! Alternating rounds: two services get the same load in turns, so that changes of the machine affect both.

/// Returns the turns of two services in `rounds` rounds: which of them has the load, and whether the turn counts. One
/// more round before them warms up. The service that goes second finds warmer caches, so the order changes with each
/// round.
pub(super) fn in_rounds(rounds: u32) -> impl Iterator<Item = (Side, bool)> {
    (0..=rounds).flat_map(|round| {
        let order = if round % 2 == 0 { [Side::First, Side::Second] } else { [Side::Second, Side::First] };
        order.map(|side| (side, round > 0))
    })
}

/// One of two services.
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
}
