//! Reasons to reject a command of a person. Independent of HTTP.

use super::words::Missing;

/// Reason for rejecting a command. The customer did not change.
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
