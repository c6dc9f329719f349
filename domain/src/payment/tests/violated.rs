//! A transition that violates an invariant is not returned.

use super::*;
use crate::invariants::Violation;

#[test]
fn a_transition_that_violates_an_invariant_is_refused_with_its_number() {
    let mut broken = given(terms()).payment;
    broken.first_expires_at = broken.expires_at.plus_secs(1);
    let refused = transition(&broken, &Command::Cancel, at(1));
    let violated = Violated(vec![Violation { id: "PAY-16", name: "deadlines only move later" }]);
    assert_eq!(refused, Err(TransitionError::Violated(violated.clone())));
    assert_eq!(violated.to_string(), "the change would violate PAY-16 (deadlines only move later)");
}

#[test]
fn every_violated_invariant_is_named() {
    let story = paid();
    let (operation, reason) = (story.operation(), "reverted".to_owned());
    let mut broken = story.payment;
    let settlement = broken.settlement.as_mut().unwrap();
    settlement.treasury_fee = settlement.treasury_fee.checked_add(amount("0.01")).unwrap();
    let refused = transition(&broken, &Command::FailSettlement { operation, revision: 1, reason }, at(60));
    let Err(TransitionError::Violated(violated)) = refused else { panic!("{refused:?}") };
    assert_eq!(violated.0.iter().map(|one| one.id).collect::<Vec<_>>(), ["PAY-1", "PAY-2"]);
}

#[test]
fn a_command_that_changes_nothing_or_is_rejected_is_not_checked() {
    let mut broken = given(terms()).when(Command::Cancel).payment;
    broken.first_expires_at = broken.expires_at.plus_secs(1);
    assert!(matches!(transition(&broken, &Command::Cancel, at(60)), Ok(None) | Err(TransitionError::Rejected(_))));
}
