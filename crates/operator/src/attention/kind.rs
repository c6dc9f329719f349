//! The kinds of things that get stuck, and what to do about each.

use std::str::FromStr;

use payferry_actors::System;
use serde::Serialize;

/// What sort of thing is stuck. In the order in which they press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StuckKind {
    /// The database does not answer.
    Database,
    /// The database does not take what is written.
    JournalHindered,
    /// The ledger does not add up.
    LedgerImbalance,
    /// What a vault holds on the chain is not what the ledger says.
    VaultDifference,
    /// A chain cannot be read, or stands still.
    Chain,
    /// Settling on a chain is held up: no gas, most likely.
    Settler,
    /// The identity provider does not answer, or there is none and checks wait.
    IdentityProvider,
    /// A check of a customer waits for the provider for too long.
    CheckOverdue,
    /// A payment, payout or withdrawal failed too often.
    Quarantined,
    /// A settlement failed for a lasting reason.
    SettlementFailed,
    /// A transfer waits for a decision about where it came from.
    InReview,
    /// Blocked money is held.
    FundsBlocked,
    /// A payout or withdrawal waits for a decision about where it goes.
    SendingInReview,
    /// A payout or withdrawal is pending for long.
    SendingOverdue,
    /// A refund is not sent for long, or a settlement that was undone is not done again.
    OperationOverdue,
    /// Confirmed and not settled for long.
    Unsettled,
    /// Pending long after its deadline.
    Overdue,
    /// A recorded transfer that its payment has not taken in.
    TransferUnapplied,
    /// Money that came to a payment and that it does not list, for it has too many transfers.
    TransferSetAside,
    /// A PSP's receiver is left alone for failing.
    BreakerOpen,
    /// A PSP's events wait for long.
    WebhooksDelayed,
    /// A PSP's events were given up.
    WebhooksExhausted,
    /// The operator holds something back.
    Paused,
}

impl StuckKind {
    /// Every kind, the most pressing first.
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

    /// The name in answers and queries.
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

    /// What is the matter.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Database => "The database does not answer, or not in time.",
            Self::JournalHindered => "The database does not take what is written.",
            Self::LedgerImbalance => {
                "The ledger does not add up: a balance, an account or a payment differs from its postings."
            }
            Self::VaultDifference => "What a vault holds on the chain is not what the ledger says.",
            Self::Chain => "The chain cannot be read, or stands still.",
            Self::Settler => "Settling on the chain is held up.",
            Self::IdentityProvider => "The identity provider does not answer, or none is configured and checks wait.",
            Self::CheckOverdue => "A check of a customer waits for the identity provider for too long.",
            Self::Quarantined => "It failed too often in a short time and is not run.",
            Self::SettlementFailed => "The settlement failed for a lasting reason; it is tried again by itself.",
            Self::InReview => "Screening is undecided about a transfer; it is asked again by itself.",
            Self::FundsBlocked => "Money that screening blocked is held in the payment's wallet.",
            Self::SendingInReview => "Screening is undecided about where a payout or withdrawal goes.",
            Self::SendingOverdue => "The payout or withdrawal is pending for long.",
            Self::OperationOverdue => {
                "A refund was not sent for long, or a settlement was not carried out and nothing else is listed for it."
            }
            Self::Unsettled => "The payment is confirmed and was not settled for long.",
            Self::Overdue => "The payment is pending long after its deadline.",
            Self::TransferUnapplied => "A recorded transfer was not taken in by its payment.",
            Self::TransferSetAside => {
                "The payment had so many transfers that these are not listed and do not count; the money is in its wallet."
            }
            Self::BreakerOpen => "The PSP's receiver failed many times in a row and is left alone for a while.",
            Self::WebhooksDelayed => "Events of the PSP wait for delivery for long.",
            Self::WebhooksExhausted => "Events of the PSP were given up after all their attempts.",
            Self::Paused => "The operator holds it back.",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Database => {
                "Look at the database: is it up, can it be reached, has it more to do than it can? What only it knows is not listed \
                 until it answers."
            }
            Self::JournalHindered => {
                "Look at the database: is it up, is its disk full, does something hold a lock? Work goes on by itself."
            }
            Self::LedgerImbalance => {
                "Pause the PSP's sending (`payferry pause set`) and read its `/ledger/entries`: the postings are append-only and tell what \
                 should be there. Nothing mends it by itself; tell us."
            }
            Self::VaultDifference => {
                "Look at the vault's transfers on the chain. More than the ledger says: read the blocks again (`payferry reconcile \
                 --from-block`). Less: pause sending, and look for a transaction that is not ours."
            }
            Self::Chain => "Check the chain's endpoints, or wait: no payment expires on a chain that stands still.",
            Self::Settler => {
                "Read the reason. If the account cannot pay, send it gas money. If fees are above the ceiling, wait until they fall, or \
                 raise the chain's `max_fee_gwei`. What waits goes on by itself then."
            }
            Self::IdentityProvider => {
                "Read the reason; look at the provider's status page and at the section [identity]. Checks go on by themselves."
            }
            Self::CheckOverdue => "Look at the identity provider and at the reason; it is tried again by itself.",
            Self::Quarantined => "Read the reason, mend it, then release it.",
            Self::SettlementFailed => {
                "Read the reason: the contract refuses what it is asked to do. Once that is mended, settle again."
            }
            Self::InReview => "Look at where the money came from, and at the screening provider; allow or block it.",
            Self::FundsBlocked => {
                "Decide with compliance what becomes of the money, and send it back; nothing moves it by itself."
            }
            Self::SendingInReview => "Look at the address and at the screening provider; allow or block it.",
            Self::SendingOverdue => {
                "Look at the chain's settler, at pauses of sending, and at the screening provider; its amount stays reserved."
            }
            Self::OperationOverdue => {
                "Read the reason; look at the chain's settler, its finality and the pauses. A chain that is configured no more has to \
                 be configured again: its operations go on by themselves then, each once."
            }
            Self::Unsettled => "Look at the chain's settler and at the payment's operation.",
            Self::Overdue => {
                "Look at the payment's chain and at its transfers; one may wait for finality or screening."
            }
            Self::TransferUnapplied => "It is told again every few seconds; look at the payment's actor.",
            Self::TransferSetAside => {
                "Look at who sent so many; take in what is money and no flood (`take_in`), and it is screened and counted."
            }
            Self::BreakerOpen => "Tell the PSP; it is probed and goes on by itself, and nothing is lost meanwhile.",
            Self::WebhooksDelayed => {
                "Read the reason. Where no webhook URL is set, have the PSP set one (`set_webhook`), and what waits goes out; until then it has the \
                 feed of events. Where the signing secret does not open, find the master key that sealed it. Else look at the PSP's \
                 receiver; tell the PSP if it is slow or failing."
            }
            Self::Paused => "Lift the pause once its reason is gone: `payferry pause lift`, or the page of pauses.",
            Self::WebhooksExhausted => "Once the receiver works, have the PSP redeliver, or read the feed of events.",
        }
    }

    /// Whether it takes the database to know of it.
    pub(super) fn is_asked_of_the_database(self, system: &System) -> bool {
        match self {
            // How a provider gets on is known by itself; who waits for one that is missing is not.
            Self::IdentityProvider => system.desk().provider().is_none(),
            _ => {
                self.is_of_payments()
                    || self.is_of_sendings()
                    || self.is_of_operations()
                    || self.is_of_checks()
                    || self.is_of_webhooks()
            }
        }
    }

    /// Whether rows of payments tell of it.
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

    /// Whether rows of payouts and withdrawals tell of it.
    pub(super) const fn is_of_sendings(self) -> bool {
        matches!(self, Self::SendingInReview | Self::SendingOverdue)
    }

    /// Whether rows of operations tell of it.
    pub(super) const fn is_of_operations(self) -> bool {
        matches!(self, Self::OperationOverdue)
    }

    /// Whether the compliance desk and its queue tell of it.
    pub(super) const fn is_of_checks(self) -> bool {
        matches!(self, Self::IdentityProvider | Self::CheckOverdue)
    }

    /// Whether the webhooks tell of it.
    pub(super) const fn is_of_webhooks(self) -> bool {
        matches!(self, Self::BreakerOpen | Self::WebhooksDelayed | Self::WebhooksExhausted)
    }
}

impl FromStr for StuckKind {
    type Err = payferry_domain::money::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a kind of what is stuck";
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(Self::Err { expected })
    }
}
