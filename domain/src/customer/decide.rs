//! Commands to a customer, and the events that follow from them.
//!
//! A fact that is outdated or already known leads to no events: a result counts only for the current check. A command
//! of a person is rejected if it does not fit the state.

use super::Customer;
use super::event::Event;
use super::words::{CheckPurpose, Documents, IdentityVerdict, KycStatus, Missing};
use crate::ids::CheckId;
use crate::time::Timestamp;

/// A request of a person, or a fact from a provider. Ids of new checks are part of the command, because decisions are
/// pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The customer accepts the terms of service.
    AcceptTerms,
    /// Documents were stored.
    AddDocuments(Documents),
    /// The PSP asks for identity verification; the id for the check, if the command creates one.
    RequestCheck(CheckId),
    /// A check ended with a verdict.
    ConcludeCheck {
        /// Id of the check.
        check: CheckId,
        /// Verdict.
        verdict: IdentityVerdict,
    },
    /// This check ended without a verdict: the customer abandoned it, or it timed out.
    LapseCheck(CheckId),
    /// The phone number changed; the id for the screening.
    ChangePhone(CheckId),
    /// Payment details were set. The wallet, if any, is the first one or unchanged.
    SetDetails,
    /// Payment details were set and their wallet replaces another one; the id for the screening.
    ReplaceWallet(CheckId),
    /// The operator decides manually.
    Decide(IdentityVerdict),
    /// The PSP deactivates the customer.
    Deactivate,
}

/// Reason for rejecting a command of a person, independent of HTTP. The customer did not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A deactivated customer cannot change.
    #[error("the customer is deactivated and cannot change")]
    CustomerInactive,
    /// Verification and clearance require accepted terms.
    #[error("the customer has not accepted the terms of service")]
    TermsNotAccepted,
    /// Verification requires these documents.
    #[error("documents are missing: {}", names(.0))]
    DocumentsMissing(Vec<Missing>),
    /// The customer is already cleared.
    #[error("the customer is already verified")]
    AlreadyCleared,
    /// A change is being screened. This ends without further action.
    #[error("a change of this customer is being screened; try again when the screening is complete")]
    UpdateInProgress,
}

impl Rejection {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::CustomerInactive => "customer_inactive",
            Self::TermsNotAccepted => "tos_not_accepted",
            Self::DocumentsMissing(_) => "documents_missing",
            Self::AlreadyCleared => "already_cleared",
            Self::UpdateInProgress => "update_in_progress",
        }
    }
}

fn names(missing: &[Missing]) -> String {
    missing.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the items that are missing before identity verification can start, the terms first.
pub fn missing(customer: &Customer) -> Vec<Missing> {
    let terms = customer.tos_accepted_at.is_none().then_some(Missing::TermsOfService);
    terms.into_iter().chain(missing_documents(customer)).collect()
}

fn missing_documents(customer: &Customer) -> impl Iterator<Item = Missing> {
    let required = customer.kind.required_documents().iter().copied();
    required.filter(|kind| !customer.documents.contains(*kind)).map(Missing::from)
}

/// Returns the events that follow from `command` at `now`; empty if the command is outdated or already known.
pub fn decide(customer: &Customer, command: &Command, now: Timestamp) -> Result<Vec<Event>, Rejection> {
    match command {
        // Facts from providers about a deactivated customer are outdated.
        Command::ConcludeCheck { check, verdict } => Ok(conclude(customer, *check, verdict)),
        Command::LapseCheck(check) => Ok(lapse(customer, *check)),
        Command::Deactivate => Ok(deactivate(customer)),
        _ if !customer.is_active => Err(Rejection::CustomerInactive),
        Command::AcceptTerms if customer.tos_accepted_at.is_some() => Ok(Vec::new()),
        Command::AcceptTerms => Ok(vec![Event::TermsAccepted { at: now }]),
        Command::AddDocuments(documents) => Ok(added(*documents)),
        Command::RequestCheck(check) => request(customer, *check),
        Command::ChangePhone(check) => Ok(update(customer, Event::PhoneChanged, *check)),
        Command::SetDetails => Ok(vec![Event::DetailsSet]),
        Command::ReplaceWallet(check) => {
            let mut events = vec![Event::DetailsSet];
            events.extend(update(customer, Event::WalletReplaced, *check));
            Ok(events)
        }
        Command::Decide(verdict) => by_hand(customer, verdict),
    }
}

fn added(documents: Documents) -> Vec<Event> {
    if documents.is_empty() { Vec::new() } else { vec![Event::DocumentsAdded { documents }] }
}

/// Requests identity verification. While a check is running, a repeated request does not start a second one.
fn request(customer: &Customer, check: CheckId) -> Result<Vec<Event>, Rejection> {
    if customer.tos_accepted_at.is_none() {
        return Err(Rejection::TermsNotAccepted);
    }
    let missing: Vec<Missing> = missing_documents(customer).collect();
    if !missing.is_empty() {
        return Err(Rejection::DocumentsMissing(missing));
    }
    match customer.kyc_status {
        KycStatus::Approved | KycStatus::Success => Err(Rejection::AlreadyCleared),
        KycStatus::PendingUpdate => Err(Rejection::UpdateInProgress),
        KycStatus::Pending if customer.check.is_some() => Ok(Vec::new()),
        KycStatus::Pending => Ok(vec![queued(customer, check, CheckPurpose::Identity)]),
        KycStatus::Rejected => Ok(vec![Event::Reopened, queued(customer, check, CheckPurpose::Identity)]),
    }
}

fn queued(customer: &Customer, check: CheckId, purpose: CheckPurpose) -> Event {
    Event::CheckQueued { check, purpose, revision: customer.revision }
}

/// Handles a change of screened data. The current check used the old data, so it is superseded.
fn update(customer: &Customer, what: Event, check: CheckId) -> Vec<Event> {
    let mut events = vec![what];
    events.extend(superseded(customer));
    events.push(Event::UpdateBegun);
    let (purpose, revision) = (CheckPurpose::Rescreen, customer.revision + 1);
    events.push(Event::CheckQueued { check, purpose, revision });
    events
}

fn superseded(customer: &Customer) -> Option<Event> {
    customer.check.map(|check| Event::CheckSuperseded { check: check.id })
}

fn conclude(customer: &Customer, id: CheckId, verdict: &IdentityVerdict) -> Vec<Event> {
    let Some(check) = customer.check.filter(|check| check.id == id && check.revision == customer.revision) else {
        return Vec::new();
    };
    match (verdict, check.purpose) {
        // A customer is never cleared before it accepts the terms.
        (IdentityVerdict::Approved, CheckPurpose::Identity) if customer.tos_accepted_at.is_none() => Vec::new(),
        (IdentityVerdict::Approved, CheckPurpose::Identity) => vec![Event::CheckPassed { check: id }, Event::Approved],
        (IdentityVerdict::Approved, CheckPurpose::Rescreen) => {
            let kyc_status = customer.before_update.unwrap_or(KycStatus::Pending);
            vec![Event::CheckPassed { check: id }, Event::Restored { kyc_status }]
        }
        (IdentityVerdict::Rejected { reasons }, _) => {
            vec![Event::CheckFailed { check: id }, Event::Rejected { reasons: reasons.clone() }]
        }
    }
}

/// Handles a check that ended without a verdict. A verification can be started again. A screening does not involve the
/// customer; it is requested again.
fn lapse(customer: &Customer, id: CheckId) -> Vec<Event> {
    match customer.check {
        Some(check) if check.id == id && check.purpose == CheckPurpose::Identity => {
            vec![Event::CheckLapsed { check: id }]
        }
        _ => Vec::new(),
    }
}

fn by_hand(customer: &Customer, verdict: &IdentityVerdict) -> Result<Vec<Event>, Rejection> {
    let decision = match verdict {
        IdentityVerdict::Approved if customer.tos_accepted_at.is_none() => return Err(Rejection::TermsNotAccepted),
        IdentityVerdict::Approved if customer.kyc_status.is_cleared() => return Ok(Vec::new()),
        IdentityVerdict::Approved => Event::Approved,
        IdentityVerdict::Rejected { reasons } => Event::Rejected { reasons: reasons.clone() },
    };
    Ok(superseded(customer).into_iter().chain([decision]).collect())
}

fn deactivate(customer: &Customer) -> Vec<Event> {
    if !customer.is_active {
        return Vec::new();
    }
    superseded(customer).into_iter().chain([Event::Deactivated]).collect()
}
