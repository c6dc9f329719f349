//! Limits on listed transfers: the payment stays small, and transfers of lower value never displace those of higher
//! value.

use super::*;
use Label::{Multiple, Overpaid, Reorged, Underpaid};
use Status::{Confirmed, Mismatched, Pending, Settled};

const DUST: &str = "0.000001";

/// Log `index` of transaction `n`.
fn one(n: u8, index: usize, of: &str) -> Tx {
    tx(n).log(u32::try_from(index).unwrap()).of(of)
}

impl Story {
    /// Observes `count` transfers.
    fn sees(self, count: usize, tx: impl Fn(usize) -> Tx) -> Self {
        (0..count).fold(self, |story, index| story.when(tx(index).seen()))
    }

    /// Asserts that further transfers change nothing.
    fn takes_no_notice(self, places: std::ops::Range<usize>, tx: impl Fn(usize) -> Tx) -> Self {
        places.fold(self, |story, index| story.unchanged(&tx(index).seen()))
    }

    #[track_caller]
    fn lists(self, count: usize) -> Self {
        assert_eq!(self.payment.transfers.len(), count);
        self
    }
}

#[test]
fn listed_dust_is_limited_and_does_not_block_the_payment() {
    let dust = |index| one(1, index, DUST);
    let story = given(terms())
        .sees(DUST_LISTED_MAX, dust)
        .takes_no_notice(DUST_LISTED_MAX..2_000, dust)
        .lists(DUST_LISTED_MAX)
        .arrives(tx(2))
        .is(Confirmed, &[])
        .takes_no_notice(2_000..2_010, dust)
        .settled(1)
        .is(Settled, &[])
        .takes_no_notice(2_010..2_020, dust)
        .lists(DUST_LISTED_MAX + 1);
    assert!(!story.payment.sets_aside(&dust(30).0), "dust is not reported");
    assert!(serde_json::to_string(&story.payment).unwrap().len() < 20_000);
}

#[test]
fn tracks_changes_of_listed_dust_and_ignores_other_dust() {
    let dust = |index| one(1, index, DUST);
    let (listed, other) = (dust(0), dust(DUST_LISTED_MAX));
    given(terms())
        .sees(DUST_LISTED_MAX, dust)
        .unchanged(&other.seen())
        .when(listed.rev(2).gone().seen())
        .unchanged(&other.rev(2).gone().seen())
        .when(listed.rev(3).seen())
        .unchanged(&other.rev(3).seen())
        .lists(DUST_LISTED_MAX)
        // In another block it is another transfer.
        .arrives(other.at(70).of("10"))
        .is(Confirmed, &[]);
}

#[test]
fn orphaned_dust_makes_room_for_its_replacement() {
    let dust = |index| one(1, index, DUST);
    let renumbered = |index| one(1, 5_000 + index, DUST);
    given(terms())
        .sees(DUST_LISTED_MAX, dust)
        .sees(DUST_LISTED_MAX, |index| dust(index).rev(2).gone())
        .takes_no_notice(DUST_LISTED_MAX..100, |index| dust(index).rev(2).gone())
        .sees(DUST_LISTED_MAX, renumbered)
        .takes_no_notice(DUST_LISTED_MAX..100, renumbered)
        .lists(2 * DUST_LISTED_MAX);
}

#[test]
fn misdirected_transfers_have_their_own_limit() {
    let wrong = |index| one(1, index, "1").look_alike();
    let story = given(terms())
        .sees(MISDIRECTED_LISTED_MAX, wrong)
        .takes_no_notice(MISDIRECTED_LISTED_MAX..200, wrong)
        .arrives(tx(2))
        .is(Confirmed, &[])
        .lists(MISDIRECTED_LISTED_MAX + 1);
    assert!(story.payment.sets_aside(&wrong(150).0), "funds that are set aside are reported");
    assert!(!story.payment.sets_aside(&wrong(0).0) && !story.payment.sets_aside(&tx(2).0), "listed already");
}

#[test]
fn partial_payments_cannot_displace_a_full_payment() {
    let part = |index| one(1, index, "0.001");
    let story = given(terms())
        .sees(PARTS_LISTED_MAX, part)
        .unchanged(&part(PARTS_LISTED_MAX).seen())
        .unchanged(&tx(2).of("9.999999").seen())
        .lists(PARTS_LISTED_MAX);
    assert!(story.payment.sets_aside(&part(PARTS_LISTED_MAX).0));
    let story = story.when(tx(3).seen()).lists(PARTS_LISTED_MAX + 1);
    assert!(story.payment.transfer(tx(3).0.key).is_some());
}

#[test]
fn a_listed_transfer_that_was_set_aside_is_processed_normally() {
    let whole = |index| one(1, index, "10");
    let (aside, other) = (whole(WHOLES_LISTED_MAX), whole(WHOLES_LISTED_MAX + 1));
    let story = given(terms())
        .arrives(tx(2))
        .is(Confirmed, &[])
        .settled(1)
        .sees(WHOLES_LISTED_MAX - 1, whole)
        .unchanged(&aside.seen())
        .unchanged(&other.seen())
        .when(Command::TakeIn { observed: vec![aside.0, whole(0).0, aside.rev(2).gone().0] })
        .lists(WHOLES_LISTED_MAX + 1)
        .refused(&Command::TakeIn { observed: vec![aside.0] }, "nothing_set_aside")
        .unchanged(&aside.seen());
    assert!(!story.payment.sets_aside(&aside.0) && story.payment.sets_aside(&other.0));
    // Those before it in the chain count first.
    let allowed =
        |story: Story, index| story.when(whole(index).screened(Decision::Allow)).when(whole(index).finalised());
    let story = (0..WHOLES_LISTED_MAX - 1).fold(story, allowed);
    let received = story.payment.excess_received().units();
    let story = story.when(aside.finalised()).when(aside.screened(Decision::Allow));
    assert_eq!(story.payment.excess_received().units(), received + 10_000_000, "its amount is refundable");
}

#[test]
fn transfers_listed_by_a_person_do_not_displace_re_mined_ones() {
    let whole = |index| one(1, index, "10");
    given(terms())
        .arrives(tx(2))
        .is(Confirmed, &[])
        .sees(WHOLES_LISTED_MAX - 1, whole)
        .when(Command::TakeIn { observed: vec![whole(WHOLES_LISTED_MAX).0, whole(WHOLES_LISTED_MAX + 1).0] })
        .lists(WHOLES_LISTED_MAX + 2)
        .when(tx(2).rev(2).gone().seen())
        .is(Pending, &[Reorged])
        .unchanged(&one(3, 0, "10").seen())
        // In another branch it is another transfer. There is room for exactly one.
        .arrives(tx(2).log(9).at(70))
        .is(Confirmed, &[Reorged])
        .unchanged(&tx(2).log(10).at(70).seen());
}

#[test]
fn the_operator_limit_is_enforced() {
    let mut story = given(terms()).refused(&Command::TakeIn { observed: Vec::new() }, "nothing_set_aside");
    story = story.when(one(1, 0, "10").seen());
    let listed = story.payment.transfers[0].clone();
    let places = 1..u32::try_from(LISTED_MAX).unwrap() - 1;
    story.payment.transfers.extend(places.map(|log_index| {
        let key = TransferKey { log_index, ..listed.key };
        Transfer { key, ..listed.clone() }
    }));
    let [first, second] = [0, 1].map(|index| one(2, index, "10").0);
    story
        .when(Command::TakeIn { observed: vec![first, second] })
        .lists(LISTED_MAX)
        .refused(&Command::TakeIn { observed: vec![second] }, "list_full");
}

#[test]
fn full_payments_are_limited_too() {
    let whole = |index| one(1, index, "10");
    given(terms())
        .sees(WHOLES_LISTED_MAX, whole)
        .takes_no_notice(WHOLES_LISTED_MAX..150, whole)
        .when(one(2, 0, "4").seen())
        .lists(WHOLES_LISTED_MAX + 1)
        .is(Pending, &[]);
}

#[test]
fn a_listed_partial_payment_counts_in_its_new_block() {
    let dust = |index| one(1, index, DUST);
    given(terms())
        .sees(DUST_LISTED_MAX, dust)
        .arrives(tx(2).of("4"))
        .is(Mismatched, &[Underpaid])
        .when(tx(2).of("4").rev(2).gone().seen())
        .is(Pending, &[Reorged])
        .arrives(tx(2).of("4").log(9).at(70))
        .arrives(tx(3).of("7"))
        .is(Mismatched, &[Overpaid, Multiple, Reorged]);
}
