mod properties;
mod stories;

use super::{
    CheckPurpose, Command, Customer, CustomerKind, DocumentKind, Documents, Event, IdentityVerdict, KycStatus,
    Rejection, announced, transition,
};
use crate::command_error::TransitionError;
use crate::ids::{CheckId, CustomerId, PspId};
use crate::payment::EventName;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Returns the check id with this number, for readable tests.
fn check(number: u128) -> CheckId {
    CheckId::from_ulid(ulid::Ulid(number))
}

fn customer(kind: CustomerKind) -> Customer {
    Customer::new(CustomerId::from_ulid(ulid::Ulid(1)), PspId::from_ulid(ulid::Ulid(2)), kind)
}

fn rejected(reason: &str) -> IdentityVerdict {
    IdentityVerdict::Rejected { reasons: vec![reason.to_owned()] }
}

fn passes(number: u128) -> Command {
    Command::ConcludeCheck { check: check(number), verdict: IdentityVerdict::Approved }
}

fn fails(number: u128, reason: &str) -> Command {
    Command::ConcludeCheck { check: check(number), verdict: rejected(reason) }
}

/// A customer in a given-when-then test.
struct Story(Customer);

impl Story {
    fn of(kind: CustomerKind) -> Self {
        Self(customer(kind))
    }

    /// A person who accepted the terms and stored all documents.
    fn ready() -> Self {
        let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
        Self::of(CustomerKind::Individual).given(&Command::AcceptTerms).given(&Command::AddDocuments(documents))
    }

    /// The same, whose verification has begun.
    fn requested() -> Self {
        Self::ready().given(&Command::RequestCheck(check(1)))
    }

    fn approved() -> Self {
        Self::requested().given(&passes(1))
    }

    /// Applies a command that must change the customer.
    fn given(self, command: &Command) -> Self {
        let after = transition(&self.0, command, NOW).unwrap().unwrap_or_else(|| panic!("{command:?} changes nothing"));
        assert_eq!(after.customer.version, self.0.version + 1);
        Self(after.customer)
    }

    /// Applies a command and asserts its public events.
    fn announces(self, command: &Command, names: &[EventName]) -> Self {
        let before = self.0.clone();
        let after = self.given(command);
        assert_eq!(announced(&before, &after.0), names, "{command:?}");
        after
    }

    /// Asserts that a command changes nothing.
    fn unmoved_by(self, command: &Command) -> Self {
        assert_eq!(transition(&self.0, command, NOW), Ok(None), "{command:?}");
        self
    }

    fn refuses(self, command: &Command, rejection: Rejection) -> Self {
        assert_eq!(transition(&self.0, command, NOW), Err(TransitionError::Rejected(rejection)), "{command:?}");
        self
    }

    fn is(self, status: KycStatus) -> Self {
        assert_eq!(self.0.kyc_status, status);
        self
    }

    fn events(&self, command: &Command) -> Vec<Event> {
        transition(&self.0, command, NOW).unwrap().map(|transition| transition.events).unwrap_or_default()
    }
}

#[test]
fn names_match_the_interface() {
    let documents: Documents = DocumentKind::ALL.iter().copied().collect();
    let json = serde_json::to_string(&documents).unwrap();
    assert_eq!(
        json,
        r#"["proof_of_residential_address","incorporation_certificate","proof_of_business_address","verification_document"]"#
    );
    assert_eq!(serde_json::from_str::<Documents>(&json).unwrap(), documents);
    let cleared: Vec<_> = KycStatus::ALL.iter().filter(|status| status.is_cleared()).map(|one| one.as_str()).collect();
    assert_eq!(cleared, ["approved", "success"]);
    for event in [Event::Approved, Event::TermsAccepted { at: NOW }, Event::DetailsSet, Event::PhoneChanged] {
        assert_eq!(serde_json::to_value(&event).unwrap()["event"], event.name());
    }
}
