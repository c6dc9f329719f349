//! Why a person's command does not fit. Knows no HTTP.

use super::words::Missing;

/// Why a command was refused; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nothing of a deactivated customer changes any more.
    #[error("the customer is deactivated")]
    CustomerInactive,
    /// Nobody is verified, or cleared, before it has accepted the terms.
    #[error("the customer has not accepted the terms of service")]
    TermsNotAccepted,
    /// Documents have to be there first.
    #[error("documents are missing: {}", names(.0))]
    DocumentsMissing(Vec<Missing>),
    /// The customer is cleared: there is nothing to verify.
    #[error("the customer is verified already")]
    AlreadyCleared,
    /// A change is being screened; that ends by itself.
    #[error("a change of this customer is being screened")]
    UpdateInProgress,
}

impl Rejection {
    /// The stable name of the refusal.
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
