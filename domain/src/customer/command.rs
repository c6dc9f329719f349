//! Commands to a customer: requests of people and facts from providers.

use super::words::{Documents, Verdict};
use crate::ids::CheckId;

/// A request of a person, or a fact from a provider. Ids of new checks are part of the command, because decisions are
/// pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The customer accepts the terms of service.
    AcceptTerms,
    /// Documents were stored.
    AddDocuments(Documents),
    /// The PSP asks for identity verification.
    RequestCheck {
        /// Id for the check, if the command creates one.
        check: CheckId,
    },
    /// A check ended with a verdict.
    ConcludeCheck {
        /// Id of the check.
        check: CheckId,
        /// Verdict.
        verdict: Verdict,
    },
    /// A check ended without a verdict: the customer abandoned it, or it timed out.
    LapseCheck {
        /// Id of the check.
        check: CheckId,
    },
    /// The phone number changed.
    ChangePhone {
        /// Id for the screening.
        check: CheckId,
    },
    /// Payment details were set. The wallet, if any, is the first one or unchanged.
    SetDetails,
    /// Payment details were set and their wallet replaces another one.
    ReplaceWallet {
        /// Id for the screening.
        check: CheckId,
    },
    /// The operator decides manually.
    Decide(Verdict),
    /// The PSP deactivates the customer.
    Deactivate,
}
