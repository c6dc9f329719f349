//! What happens to a customer, as wishes and as facts.

use super::words::{Documents, Verdict};
use crate::ids::CheckId;

/// A wish of a person, or a fact from a provider. Ids of new checks come in as data: a decision rolls no dice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The customer accepts the terms of service.
    AcceptTerms,
    /// These documents were stored.
    AddDocuments(Documents),
    /// The PSP asks for identity verification.
    RequestCheck {
        /// The id of the check, if a new one is made.
        check: CheckId,
    },
    /// A check has ended with a verdict.
    ConcludeCheck {
        /// Which.
        check: CheckId,
        /// How.
        verdict: Verdict,
    },
    /// A check ended without a verdict: the customer gave up, or its time was over.
    LapseCheck {
        /// Which.
        check: CheckId,
    },
    /// The phone number is another now.
    ChangePhone {
        /// The id of the screening.
        check: CheckId,
    },
    /// Payment details were set; the wallet, if there is one, is the first or the same.
    SetDetails,
    /// Payment details were set, and their wallet replaces another.
    ReplaceWallet {
        /// The id of the screening.
        check: CheckId,
    },
    /// The operator decides by hand.
    Decide(Verdict),
    /// The PSP deactivates the customer.
    Deactivate,
}
