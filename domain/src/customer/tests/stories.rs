//! The rules, one story each.

use super::*;
use crate::customer::{Missing, missing};

#[test]
fn a_person_is_cleared_after_terms_document_and_verification() {
    let story = Story::of(CustomerKind::Individual).is(KycStatus::Pending);
    assert_eq!(missing(&story.0), [Missing::TermsOfService, Missing::ProofOfResidentialAddress]);
    let story = Story::ready();
    assert_eq!(missing(&story.0), []);
    assert_eq!(story.0.tos_accepted_at, Some(NOW));
    let story = story.given(&Command::RequestCheck { check: check(1) }).is(KycStatus::Pending);
    let under_way = story.0.check.unwrap();
    assert_eq!((under_way.id, under_way.purpose, under_way.revision), (check(1), CheckPurpose::Identity, 1));
    let story = story.given(&Command::ConcludeCheck { check: check(1), verdict: Verdict::Approved });
    assert!(story.0.is_cleared() && story.0.check.is_none());
    story.is(KycStatus::Approved).refuses(&Command::RequestCheck { check: check(2) }, Rejection::AlreadyCleared);
}

#[test]
fn verification_waits_for_terms_and_for_every_document() {
    let ask = Command::RequestCheck { check: check(1) };
    let story = Story::of(CustomerKind::Business).refuses(&ask, Rejection::TermsNotAccepted);
    let two = [Missing::IncorporationCertificate, Missing::ProofOfBusinessAddress];
    let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
    let rejection = Rejection::DocumentsMissing(two.to_vec());
    assert_eq!(rejection.to_string(), "documents are missing: incorporation_certificate, proof_of_business_address");
    story.given(&Command::AcceptTerms).given(&Command::AddDocuments(documents)).refuses(&ask, rejection);
}

#[test]
fn what_was_done_is_not_done_again() {
    let story = Story::ready().unmoved_by(&Command::AcceptTerms).unmoved_by(&Command::AddDocuments(Documents::NONE));
    // Asked again while it runs: the same verification goes on.
    let story = story.given(&Command::RequestCheck { check: check(1) });
    let story = story.unmoved_by(&Command::RequestCheck { check: check(2) });
    let again = Command::ConcludeCheck { check: check(1), verdict: Verdict::Approved };
    story.given(&again).unmoved_by(&again).unmoved_by(&Command::Decide(Verdict::Approved));
}

#[test]
fn a_decided_customer_is_not_moved_back_by_what_comes_late() {
    let late = Command::ConcludeCheck { check: check(1), verdict: rejected("late") };
    Story::approved().unmoved_by(&late).unmoved_by(&Command::LapseCheck { check: check(1) }).is(KycStatus::Approved);
}

#[test]
fn who_is_rejected_may_start_anew() {
    let story = Story::ready().given(&Command::RequestCheck { check: check(1) });
    let story = story.given(&Command::ConcludeCheck { check: check(1), verdict: rejected("face_mismatch") });
    assert_eq!(story.0.rejection_reasons, ["face_mismatch"]);
    let story = story.is(KycStatus::Rejected).given(&Command::RequestCheck { check: check(2) }).is(KycStatus::Pending);
    assert!(story.0.rejection_reasons.is_empty());
    let old = Command::ConcludeCheck { check: check(1), verdict: Verdict::Approved };
    let story = story.unmoved_by(&old);
    story.given(&Command::ConcludeCheck { check: check(2), verdict: Verdict::Approved }).is(KycStatus::Approved);
}

#[test]
fn who_gave_up_may_start_anew() {
    let story = Story::ready().given(&Command::RequestCheck { check: check(1) });
    let story = story.given(&Command::LapseCheck { check: check(1) }).is(KycStatus::Pending);
    story.given(&Command::RequestCheck { check: check(2) });
}

#[test]
fn an_update_is_screened_and_the_status_comes_back() {
    let story = Story::approved().given(&Command::ChangePhone { check: check(2) }).is(KycStatus::PendingUpdate);
    assert!(!story.0.is_cleared());
    let story = story.refuses(&Command::RequestCheck { check: check(9) }, Rejection::UpdateInProgress);
    // A screening has nobody who could give it up.
    let story = story.unmoved_by(&Command::LapseCheck { check: check(2) });
    story.given(&Command::ConcludeCheck { check: check(2), verdict: Verdict::Approved }).is(KycStatus::Approved);
}

#[test]
fn a_screening_of_what_has_changed_again_does_not_count() {
    let story = Story::approved().given(&Command::ChangePhone { check: check(2) });
    let story = story.given(&Command::ReplaceWallet { check: check(3) }).is(KycStatus::PendingUpdate);
    let story = story.unmoved_by(&Command::ConcludeCheck { check: check(2), verdict: Verdict::Approved });
    story.given(&Command::ConcludeCheck { check: check(3), verdict: Verdict::Approved }).is(KycStatus::Approved);
}

#[test]
fn an_update_returns_to_whatever_was_before() {
    let passed = Command::ConcludeCheck { check: check(2), verdict: Verdict::Approved };
    let story = Story::of(CustomerKind::Individual).given(&Command::ChangePhone { check: check(2) });
    story.given(&passed).is(KycStatus::Pending);

    let story = Story::ready().given(&Command::RequestCheck { check: check(1) });
    let story = story.given(&Command::ConcludeCheck { check: check(1), verdict: rejected("document_forged") });
    let story = story.given(&Command::ChangePhone { check: check(2) }).given(&passed).is(KycStatus::Rejected);
    assert_eq!(story.0.rejection_reasons, ["document_forged"]);

    // A verification that was under way was about somebody with another number: it is asked for again.
    let story = Story::ready().given(&Command::RequestCheck { check: check(1) });
    let story = story.given(&Command::ChangePhone { check: check(2) });
    let story = story.unmoved_by(&Command::ConcludeCheck { check: check(1), verdict: Verdict::Approved });
    let story = story.given(&passed).is(KycStatus::Pending);
    story.given(&Command::RequestCheck { check: check(3) });
}

#[test]
fn a_screening_may_end_worse() {
    let story = Story::approved().given(&Command::ReplaceWallet { check: check(2) });
    let story = story.given(&Command::ConcludeCheck { check: check(2), verdict: rejected("sanctioned_wallet") });
    assert_eq!(story.is(KycStatus::Rejected).0.rejection_reasons, ["sanctioned_wallet"]);
}

#[test]
fn only_a_wallet_that_replaces_another_is_screened() {
    let story = Story::approved().given(&Command::SetDetails).is(KycStatus::Approved);
    assert_eq!(story.0.check, None);
}

#[test]
fn the_operator_decides_by_hand_but_never_before_the_terms() {
    let approve = Command::Decide(Verdict::Approved);
    let story = Story::of(CustomerKind::Individual).refuses(&approve, Rejection::TermsNotAccepted);
    let story = story.given(&Command::Decide(rejected("known to us"))).is(KycStatus::Rejected);
    let story = story.given(&Command::AcceptTerms).given(&approve).is(KycStatus::Approved);
    let story = story.given(&Command::ChangePhone { check: check(1) }).given(&Command::Decide(Verdict::Approved));
    story.is(KycStatus::Approved).unmoved_by(&Command::ConcludeCheck { check: check(1), verdict: rejected("late") });
}

#[test]
fn nothing_of_a_deactivated_customer_changes() {
    let story = Story::ready().given(&Command::RequestCheck { check: check(1) });
    let superseded = Event::CheckSuperseded { check: check(1) };
    assert_eq!(story.events(&Command::Deactivate), [superseded, Event::Deactivated]);
    let mut story = story.given(&Command::Deactivate).unmoved_by(&Command::Deactivate);
    for command in [
        Command::AcceptTerms,
        Command::AddDocuments(Documents::NONE.with(DocumentKind::VerificationDocument)),
        Command::RequestCheck { check: check(2) },
        Command::ChangePhone { check: check(2) },
        Command::SetDetails,
        Command::ReplaceWallet { check: check(2) },
        Command::Decide(Verdict::Approved),
        Command::Decide(rejected("x")),
    ] {
        story = story.refuses(&command, Rejection::CustomerInactive);
    }
    // What a provider tells of it is old.
    let late = Command::ConcludeCheck { check: check(1), verdict: Verdict::Approved };
    assert!(!story.unmoved_by(&late).0.is_active);
}
