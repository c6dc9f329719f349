//! Kinds of items that need attention, with the recommended action for each.

use std::str::FromStr;

use payferry_actors::System;
use serde::Serialize;

/// Kind of an item that needs attention, in order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// The database does not answer.
    Database,
    /// The database does not accept writes.
    JournalHindered,
    /// The ledger is inconsistent.
    LedgerImbalance,
    /// The on-chain balance of a vault differs from the ledger.
    VaultDifference,
    /// A chain cannot be read or produces no blocks.
    Chain,
    /// Settlements on a chain are delayed, most likely because the account has no gas.
    Settler,
    /// The identity provider does not answer, or none is configured and checks are waiting.
    IdentityProvider,
    /// A customer check has waited too long for the provider.
    CheckOverdue,
    /// A payment, payout or withdrawal failed too often.
    Quarantined,
    /// A settlement failed with a persistent error.
    SettlementFailed,
    /// A transfer needs a decision about its source.
    InReview,
    /// Blocked money is held.
    FundsBlocked,
    /// A payout or withdrawal needs a decision about its address.
    SendingInReview,
    /// A payout or withdrawal has been pending for too long.
    SendingOverdue,
    /// A refund was not sent for too long, or a settlement that was undone was not repeated.
    OperationOverdue,
    /// Confirmed and not settled for too long.
    Unsettled,
    /// Pending for too long after its deadline.
    Overdue,
    /// A recorded transfer that its payment has not applied.
    TransferUnapplied,
    /// Transfers that a payment does not list because it has too many.
    TransferSetAside,
    /// Deliveries to a PSP's receiver are paused because it fails.
    BreakerOpen,
    /// Events of a PSP have waited too long.
    WebhooksDelayed,
    /// Events of a PSP are exhausted.
    WebhooksExhausted,
    /// A pause set by the operator.
    Paused,
}

impl AttentionKind {
    /// All kinds, most urgent first.
    pub const ALL: [Self; 23] = [
        Self::Database,
        Self::JournalHindered,
        Self::LedgerImbalance,
        Self::VaultDifference,
        Self::Chain,
        Self::Settler,
        Self::IdentityProvider,
        Self::CheckOverdue,
        Self::Quarantined,
        Self::SettlementFailed,
        Self::InReview,
        Self::FundsBlocked,
        Self::SendingInReview,
        Self::SendingOverdue,
        Self::OperationOverdue,
        Self::Unsettled,
        Self::Overdue,
        Self::TransferUnapplied,
        Self::TransferSetAside,
        Self::BreakerOpen,
        Self::WebhooksDelayed,
        Self::WebhooksExhausted,
        Self::Paused,
    ];

    /// Name in responses and queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::JournalHindered => "journal_hindered",
            Self::LedgerImbalance => "ledger_imbalance",
            Self::VaultDifference => "vault_difference",
            Self::Chain => "chain",
            Self::Settler => "settler",
            Self::IdentityProvider => "identity_provider",
            Self::CheckOverdue => "check_overdue",
            Self::Quarantined => "quarantined",
            Self::SettlementFailed => "settlement_failed",
            Self::InReview => "in_review",
            Self::FundsBlocked => "funds_blocked",
            Self::SendingInReview => "sending_in_review",
            Self::SendingOverdue => "sending_overdue",
            Self::OperationOverdue => "operation_overdue",
            Self::Unsettled => "unsettled",
            Self::Overdue => "overdue",
            Self::TransferUnapplied => "transfer_unapplied",
            Self::TransferSetAside => "transfer_set_aside",
            Self::BreakerOpen => "breaker_open",
            Self::WebhooksDelayed => "webhooks_delayed",
            Self::WebhooksExhausted => "webhooks_exhausted",
            Self::Paused => "paused",
        }
    }

    /// Description of the problem.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Database => "The database does not answer or is too slow.",
            Self::JournalHindered => "The database does not accept writes.",
            Self::LedgerImbalance => {
                "The ledger is inconsistent: a balance, an account or a payment differs from its postings."
            }
            Self::VaultDifference => "The on-chain balance of a vault differs from the ledger.",
            Self::Chain => "The chain cannot be read or produces no blocks.",
            Self::Settler => "Settlements on the chain are delayed.",
            Self::IdentityProvider => {
                "The identity provider does not answer, or none is configured and checks are waiting."
            }
            Self::CheckOverdue => "A customer check has waited too long for the identity provider.",
            Self::Quarantined => "It failed too often in a short time and is stopped.",
            Self::SettlementFailed => "The settlement failed with a persistent error; it is retried automatically.",
            Self::InReview => "Screening flagged a transfer for review; it is screened again automatically.",
            Self::FundsBlocked => "The payment's wallet holds money that screening blocked.",
            Self::SendingInReview => "Screening flagged the address of a payout or withdrawal for review.",
            Self::SendingOverdue => "The payout or withdrawal has been pending for too long.",
            Self::OperationOverdue => {
                "A refund was not sent for too long, or a settlement was not carried out and no other kind lists it."
            }
            Self::Unsettled => "The payment is confirmed and has not been settled for too long.",
            Self::Overdue => "The payment is still pending long after its deadline.",
            Self::TransferUnapplied => "A payment has not applied a recorded transfer.",
            Self::TransferSetAside => {
                "The payment's list of transfers is full: these are not listed or counted. The money is in its wallet."
            }
            Self::BreakerOpen => "The PSP's receiver failed many times in a row; deliveries are paused for a while.",
            Self::WebhooksDelayed => "Events of the PSP have waited too long for delivery.",
            Self::WebhooksExhausted => "Events of the PSP are exhausted: all delivery attempts failed.",
            Self::Paused => "Paused by the operator.",
        }
    }

    /// Recommended action.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Database => {
                "Check that the database is up, reachable and not overloaded. Items that only the database knows are \
                not listed until it answers."
            }
            Self::JournalHindered => {
                "Check that the database is up, its disk is not full, and no lock is held. Writes continue \
                automatically."
            }
            Self::LedgerImbalance => {
                "Pause the PSP's sending (`payferry pause set`) and read its `/ledger/entries`: the postings are \
                append-only and show the correct state. It is not repaired automatically; contact us."
            }
            Self::VaultDifference => {
                "Check the vault's transfers on the chain. If the balance is higher than the ledger, read the blocks \
                again (`payferry reconcile --from-block`). If it is lower, pause sending and look for a transaction \
                that the service did not sign."
            }
            Self::Chain => {
                "Check the chain's endpoints, or wait. No payment expires while the chain produces no blocks."
            }
            Self::Settler => {
                "Read the reason. If the account cannot pay for gas, fund it. If fees are above the ceiling, wait \
                until they fall, or raise the chain's `max_fee_gwei`. Operations then continue automatically."
            }
            Self::IdentityProvider => {
                "Read the reason. Check the provider's status page and the section [identity]. Checks continue \
                automatically."
            }
            Self::CheckOverdue => {
                "Read the reason and check the identity provider. The check is retried automatically."
            }
            Self::Quarantined => "Read the reason, fix the cause, then release it.",
            Self::SettlementFailed => {
                "Read the reason: the contract refuses the settlement. Fix the cause, then settle again."
            }
            Self::InReview => "Check the source of the money and the screening provider, then allow or block it.",
            Self::FundsBlocked => {
                "Decide with compliance where the money goes, and send it back. It is never moved automatically."
            }
            Self::SendingInReview => "Check the address and the screening provider, then allow or block it.",
            Self::SendingOverdue => {
                "Check the chain's settler, the pauses of sending and the screening provider. The amount stays \
                reserved."
            }
            Self::OperationOverdue => {
                "Read the reason. Check the chain's settler, its finality and the pauses. If the chain was removed \
                from the configuration, add it again: its operations then continue automatically, each once."
            }
            Self::Unsettled => "Check the chain's settler and the payment's operation.",
            Self::Overdue => "Check the payment's chain and its transfers; one may wait for finality or screening.",
            Self::TransferUnapplied => "The payment is notified every few seconds. Check the payment's actor.",
            Self::TransferSetAside => {
                "Check who sent so many transfers. Apply the genuine ones (`take_in`); they are then screened and \
                counted."
            }
            Self::BreakerOpen => {
                "Inform the PSP. The receiver is probed, and deliveries continue automatically; no event is lost."
            }
            Self::WebhooksDelayed => {
                "Read the reason. If no webhook URL is set, ask the PSP to set one (`set_webhook`): the events are \
                then delivered. Until then it has the feed of events. If the signing secret cannot be decrypted, \
                find the master key that sealed it. Otherwise check the PSP's receiver, and inform the PSP if it \
                is slow or failing."
            }
            Self::Paused => {
                "Lift the pause when its reason no longer applies: `payferry pause lift`, or the Pauses page."
            }
            Self::WebhooksExhausted => {
                "When the receiver works, ask the PSP to redeliver the events or to read the feed of events."
            }
        }
    }

    /// Returns true if the kind is read from the database.
    pub(super) fn is_asked_of_the_database(self, system: &System) -> bool {
        match self {
            // The state of a provider is in memory. The checks that wait for a missing provider are in the database.
            Self::IdentityProvider => system.compliance().provider().is_none(),
            _ => {
                self.is_of_payments()
                    || self.is_of_sendings()
                    || self.is_of_operations()
                    || self.is_of_checks()
                    || self.is_of_webhooks()
            }
        }
    }

    /// Returns true if the kind is read from payments.
    pub(super) const fn is_of_payments(self) -> bool {
        matches!(
            self,
            Self::SettlementFailed
                | Self::InReview
                | Self::FundsBlocked
                | Self::Unsettled
                | Self::Overdue
                | Self::TransferUnapplied
                | Self::TransferSetAside
        )
    }

    /// Returns true if the kind is read from payouts and withdrawals.
    pub(super) const fn is_of_sendings(self) -> bool {
        matches!(self, Self::SendingInReview | Self::SendingOverdue)
    }

    /// Returns true if the kind is read from operations.
    pub(super) const fn is_of_operations(self) -> bool {
        matches!(self, Self::OperationOverdue)
    }

    /// Returns true if the kind is read from the compliance actor and the table of checks.
    pub(super) const fn is_of_checks(self) -> bool {
        matches!(self, Self::IdentityProvider | Self::CheckOverdue)
    }

    /// Returns true if the kind is read from the webhooks.
    pub(super) const fn is_of_webhooks(self) -> bool {
        matches!(self, Self::BreakerOpen | Self::WebhooksDelayed | Self::WebhooksExhausted)
    }
}

impl FromStr for AttentionKind {
    type Err = payferry_domain::money::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a kind of item that needs attention";
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(Self::Err { expected })
    }
}
