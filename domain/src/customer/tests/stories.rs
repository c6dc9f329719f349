//! One test per rule.

use super::*;
use crate::customer::{Check, INVARIANTS, Missing, missing};
use crate::invariants::check as check_invariants;

#[test]
fn clears_a_person_after_terms_document_and_verification() {
    let story = Story::of(CustomerKind::Individual).is(KycStatus::Pending);
    assert_eq!(missing(&story.0), [Missing::TermsOfService, Missing::ProofOfResidentialAddress]);
    let story = Story::ready();
    assert_eq!(missing(&story.0), []);
    assert_eq!(story.0.tos_accepted_at, Some(NOW));
    let story = story.given(&Command::RequestCheck(check(1))).is(KycStatus::Pending);
    let under_way = story.0.check.unwrap();
    assert_eq!((under_way.id, under_way.purpose, under_way.revision), (check(1), CheckPurpose::Identity, 1));
    let story = story.given(&passes(1));
    assert!(story.0.is_cleared() && story.0.check.is_none());
    story.is(KycStatus::Approved).refuses(&Command::RequestCheck(check(2)), Rejection::AlreadyCleared);
}

#[test]
fn verification_requires_terms_and_every_document() {
    let ask = Command::RequestCheck(check(1));
    let story = Story::of(CustomerKind::Business).refuses(&ask, Rejection::TermsNotAccepted);
    let two = [Missing::IncorporationCertificate, Missing::ProofOfBusinessAddress];
    let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
    let rejection = Rejection::DocumentsMissing(two.to_vec());
    assert_eq!(rejection.to_string(), "documents are missing: incorporation_certificate, proof_of_business_address");
    story.given(&Command::AcceptTerms).given(&Command::AddDocuments(documents)).refuses(&ask, rejection);
}

#[test]
fn repeated_commands_change_nothing() {
    let story = Story::ready().unmoved_by(&Command::AcceptTerms).unmoved_by(&Command::AddDocuments(Documents::NONE));
    // A request while a verification is running does not start another one.
    let story = story.given(&Command::RequestCheck(check(1)));
    let story = story.unmoved_by(&Command::RequestCheck(check(2)));
    let again = passes(1);
    story.given(&again).unmoved_by(&again).unmoved_by(&Command::Decide(IdentityVerdict::Approved));
}

#[test]
fn public_events_follow_consent_status_and_deactivation() {
    use EventName::{
        CustomerConsentAccepted as Consent, CustomerDeactivated as Deactivated, CustomerKycUpdated as Kyc,
    };
    let story = Story::of(CustomerKind::Individual).announces(&Command::AcceptTerms, &[Consent]);
    let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
    let story =
        story.announces(&Command::AddDocuments(documents), &[]).announces(&Command::RequestCheck(check(1)), &[]);
    let story = story.announces(&passes(1), &[Kyc]).announces(&Command::ReplaceWallet(check(2)), &[Kyc]);
    // A second update while the first one is screened.
    let story = story.announces(&Command::ChangePhone(check(3)), &[]).announces(&passes(3), &[Kyc]);
    story.announces(&Command::SetDetails, &[]).announces(&Command::Deactivate, &[Deactivated]);
}

#[test]
fn late_results_do_not_change_a_decided_customer() {
    let late = fails(1, "late");
    Story::approved().unmoved_by(&late).unmoved_by(&Command::LapseCheck(check(1))).is(KycStatus::Approved);
}

#[test]
fn a_rejected_customer_can_start_again() {
    let story = Story::requested();
    let story = story.given(&fails(1, "face_mismatch"));
    assert_eq!(story.0.rejection_reasons, ["face_mismatch"]);
    let story = story.is(KycStatus::Rejected).given(&Command::RequestCheck(check(2))).is(KycStatus::Pending);
    assert!(story.0.rejection_reasons.is_empty());
    let old = passes(1);
    let story = story.unmoved_by(&old);
    story.given(&passes(2)).is(KycStatus::Approved);
}

#[test]
fn a_customer_can_start_again_after_an_abandoned_check() {
    let story = Story::requested();
    let story = story.given(&Command::LapseCheck(check(1))).is(KycStatus::Pending);
    story.given(&Command::RequestCheck(check(2)));
}

#[test]
fn a_passed_screening_restores_the_status() {
    let story = Story::approved().given(&Command::ChangePhone(check(2))).is(KycStatus::PendingUpdate);
    assert!(!story.0.is_cleared());
    let story = story.refuses(&Command::RequestCheck(check(9)), Rejection::UpdateInProgress);
    // A customer cannot abandon a screening.
    let story = story.unmoved_by(&Command::LapseCheck(check(2)));
    story.given(&passes(2)).is(KycStatus::Approved);
}

#[test]
fn a_superseded_screening_does_not_count() {
    let story = Story::approved().given(&Command::ChangePhone(check(2)));
    let story = story.given(&Command::ReplaceWallet(check(3))).is(KycStatus::PendingUpdate);
    let story = story.unmoved_by(&passes(2));
    story.given(&passes(3)).is(KycStatus::Approved);
}

#[test]
fn a_screening_restores_the_status_before_the_update() {
    let passed = passes(2);
    let story = Story::of(CustomerKind::Individual).given(&Command::ChangePhone(check(2)));
    story.given(&passed).is(KycStatus::Pending);

    let story = Story::requested();
    let story = story.given(&fails(1, "document_forged"));
    let story = story.given(&Command::ChangePhone(check(2))).given(&passed).is(KycStatus::Rejected);
    assert_eq!(story.0.rejection_reasons, ["document_forged"]);

    // The running verification used the old phone number, so it must be requested again.
    let story = Story::requested();
    let story = story.given(&Command::ChangePhone(check(2)));
    let story = story.unmoved_by(&passes(1));
    let story = story.given(&passed).is(KycStatus::Pending);
    story.given(&Command::RequestCheck(check(3)));
}

#[test]
fn a_failed_screening_rejects_the_customer() {
    let story = Story::approved().given(&Command::ReplaceWallet(check(2)));
    let story = story.given(&fails(2, "sanctioned_wallet"));
    assert_eq!(story.is(KycStatus::Rejected).0.rejection_reasons, ["sanctioned_wallet"]);
}

#[test]
fn screens_only_a_wallet_that_replaces_another() {
    let story = Story::approved().given(&Command::SetDetails).is(KycStatus::Approved);
    assert_eq!(story.0.check, None);
}

#[test]
fn the_operator_decides_manually_but_only_after_the_terms() {
    let approve = Command::Decide(IdentityVerdict::Approved);
    let story = Story::of(CustomerKind::Individual).refuses(&approve, Rejection::TermsNotAccepted);
    let story = story.given(&Command::Decide(rejected("known to us"))).is(KycStatus::Rejected);
    let story = story.given(&Command::AcceptTerms).given(&approve).is(KycStatus::Approved);
    let story = story.given(&Command::ChangePhone(check(1))).given(&Command::Decide(IdentityVerdict::Approved));
    story.is(KycStatus::Approved).unmoved_by(&fails(1, "late"));
}

#[test]
fn a_deactivated_customer_does_not_change() {
    let story = Story::requested();
    let superseded = Event::CheckSuperseded { check: check(1) };
    assert_eq!(story.events(&Command::Deactivate), [superseded, Event::Deactivated]);
    let mut story = story.given(&Command::Deactivate).unmoved_by(&Command::Deactivate);
    for command in [
        Command::AcceptTerms,
        Command::AddDocuments(Documents::NONE.with(DocumentKind::VerificationDocument)),
        Command::RequestCheck(check(2)),
        Command::ChangePhone(check(2)),
        Command::SetDetails,
        Command::ReplaceWallet(check(2)),
        Command::Decide(IdentityVerdict::Approved),
        Command::Decide(rejected("x")),
    ] {
        story = story.refuses(&command, Rejection::CustomerInactive);
    }
    // Facts from a provider are outdated.
    let late = passes(1);
    assert!(!story.unmoved_by(&late).0.is_active);
}

#[test]
fn a_transition_that_violates_an_invariant_is_refused_with_its_number() {
    let (of, screened) =
        (|purpose, revision| Some(Check { id: check(9), purpose, revision }), KycStatus::PendingUpdate);
    let (identity, rescreen) = (CheckPurpose::Identity, CheckPurpose::Rescreen);
    let company = Documents::NONE.with(DocumentKind::IncorporationCertificate);
    let (approved, pending) = (Story::approved().0, Story::ready().0);
    let cases = [
        (Customer { tos_accepted_at: None, ..approved.clone() }, "CUS-1"),
        (Customer { before_update: Some(KycStatus::Approved), ..approved.clone() }, "CUS-2"),
        (Customer { kyc_status: screened, before_update: Some(KycStatus::Approved), ..approved.clone() }, "CUS-3"),
        (Customer { rejection_reasons: vec!["expired".to_owned()], ..approved.clone() }, "CUS-5"),
        (Customer { check: of(identity, 1), ..approved.clone() }, "CUS-6"),
        (Customer { check: of(identity, 2), ..pending.clone() }, "CUS-7"),
        (Customer { check: of(rescreen, 1), ..pending.clone() }, "CUS-8"),
        (Customer { documents: pending.documents.and(company), ..pending }, "CUS-9"),
    ];
    for (broken, number) in cases {
        let refused = transition(&broken, &Command::SetDetails, NOW);
        let Err(TransitionError::Violated(violated)) = refused else { panic!("{number}: {refused:?}") };
        assert_eq!(violated.0.iter().map(|one| one.id).collect::<Vec<_>>(), [number]);
    }
    // A deactivated customer keeps a check only if the command does not end it.
    let broken = Customer { is_active: false, check: of(identity, 1), ..Story::ready().0 };
    assert_eq!(check_invariants(INVARIANTS, &broken).unwrap_err().0[0].id, "CUS-4");
}
