//! Kinds of items that need attention, with the recommended action for each.

use payferry_actors::System;

payferry_domain::named! {
    /// Kind of an item that needs attention, in order of urgency.
    AttentionKind, "a kind of item that needs attention" {
        Database = "database",
        JournalHindered = "journal_hindered",
        Node = "node",
        Invariant = "invariant",
        LedgerImbalance = "ledger_imbalance",
        VaultDifference = "vault_difference",
        ReceivedMoneyOrphaned = "received_money_orphaned",
        SettlementOrphaned = "settlement_orphaned",
        Overdrawn = "overdrawn",
        Endpoint = "endpoint",
        Chain = "chain",
        Settler = "settler",
        IdentityProvider = "identity_provider",
        CheckOverdue = "check_overdue",
        Quarantined = "quarantined",
        SettlementFailed = "settlement_failed",
        RefundApproval = "refund_approval",
        ApprovalOpen = "approval_open",
        InReview = "in_review",
        FundsBlocked = "funds_blocked",
        OutboundInReview = "sending_in_review",
        OutboundOverdue = "sending_overdue",
        OperationOverdue = "operation_overdue",
        Unsettled = "unsettled",
        Overdue = "overdue",
        TransferHeld = "transfer_held",
        TransferUnapplied = "transfer_unapplied",
        TransferSetAside = "transfer_set_aside",
        BreakerOpen = "breaker_open",
        WebhooksDelayed = "webhooks_delayed",
        WebhooksExhausted = "webhooks_exhausted",
        Paused = "paused",
    }
}

/// Data that a kind is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// State in memory.
    Memory,
    Database,
    /// Undelivered events, which all kinds of webhooks share.
    Webhooks,
}

impl AttentionKind {
    /// Data that the kind is read from, its runbook, a description of the problem, and the recommended action.
    const fn facts(self) -> (Source, &'static str, &'static str, &'static str) {
        match self {
            Self::Database => (
                Source::Memory,
                "journal#database-refuses-writes",
                "The database does not answer or is too slow.",
                "Check that the database is up, reachable and not overloaded. Items that only the database knows are \
                not listed until it answers.",
            ),
            Self::JournalHindered => (
                Source::Memory,
                "journal#database-refuses-writes",
                "The database does not accept writes.",
                "Check that the database is up, its disk is not full, and no lock is held. Writes continue \
                automatically.",
            ),
            Self::Node => (
                Source::Database,
                "process#node-has-no-heartbeats",
                "A node sends no heartbeats, was declared gone, or its clock is wrong.",
                "Check the machine and its connection to the database. Another node does its work after a few seconds. Start \
                the node again, or acknowledge the entry if it was removed. A node with a wrong clock takes no requests until \
                the clock is right.",
            ),
            Self::Invariant => (
                Source::Memory,
                "payments#invariant-violated",
                "Writes were stopped because they would have violated an invariant or a rule of the database.",
                "This is a defect; nothing wrong was stored. Report the log lines. Acknowledge the entry when the cause is \
                known.",
            ),
            Self::LedgerImbalance => (
                Source::Memory,
                "ledger#ledger-imbalance",
                "The ledger is inconsistent: a balance, an account or a payment differs from its postings.",
                "Pause the PSP's sending (`payferry pause set`) and read its `/ledger/entries`: the postings are \
                append-only and show the correct state. It is not repaired automatically; contact us.",
            ),
            Self::VaultDifference => (
                Source::Memory,
                "ledger#vault-difference",
                "The on-chain balance of a vault differs from the ledger.",
                "Check the vault's transfers on the chain. If the balance is higher than the ledger, read the blocks \
                again (`payferry reconcile --from-block`). If it is lower, pause sending and look for a transaction \
                that the service did not sign.",
            ),
            Self::ReceivedMoneyOrphaned => (
                Source::Database,
                "chains#money-or-settlement-orphaned",
                "A confirmed payment is open again: the chain dropped its money after it was final by its tier.",
                "The PSP may have delivered already. Inform it, and check whether the transaction is mined again. The entry \
                ends when the payment is confirmed again.",
            ),
            Self::SettlementOrphaned => (
                Source::Database,
                "chains#money-or-settlement-orphaned",
                "The chain dropped a settlement after it was final by its tier.",
                "Nothing is to be done if the settler sends it again, which ends the entry. Check the chain if it does not.",
            ),
            Self::Overdrawn => (
                Source::Database,
                "chains#money-or-settlement-orphaned",
                "More was refunded than is left of the received money, because the chain dropped a part of it.",
                "Check whether the dropped transaction is mined again. Otherwise agree with the PSP who bears the loss, then \
                acknowledge the entry.",
            ),
            Self::Endpoint => (
                Source::Memory,
                "chains#endpoint-is-unusable",
                "An endpoint of the chain is skipped: it is down, slow, behind the chain, or limits requests.",
                "The other endpoints are used. Check the provider, and replace the endpoint if it does not recover.",
            ),
            Self::Chain => (
                Source::Memory,
                "chains#chain-is-degraded",
                "The chain cannot be read or produces no blocks.",
                "Check the chain's endpoints, or wait. No payment expires while the chain produces no blocks.",
            ),
            Self::Settler => (
                Source::Memory,
                "settlement#settler-is-delayed",
                "Settlements on the chain are delayed.",
                "Read the reason. If the account cannot pay for gas, fund it. If fees are above the ceiling, wait \
                until they fall, or raise the chain's `max_fee_gwei`. Operations then continue automatically.",
            ),
            Self::IdentityProvider => (
                Source::Database,
                "identity#identity-provider-fails",
                "The identity provider does not answer, or none is configured and checks are waiting.",
                "Read the reason. Check the provider's status page and the section [identity]. Checks continue \
                automatically.",
            ),
            Self::CheckOverdue => (
                Source::Database,
                "identity#checks-are-overdue",
                "A customer check has waited too long for the identity provider.",
                "Read the reason and check the identity provider. The check is retried automatically.",
            ),
            Self::Quarantined => (
                Source::Memory,
                "payments#quarantined",
                "It failed too often in a short time, or would have violated an invariant, and is stopped. A quarantined \
                customer cannot be changed.",
                "Read the reason, fix the cause, then release it. A violated invariant is a defect: report it.",
            ),
            Self::SettlementFailed => (
                Source::Database,
                "settlement#settlement-failed",
                "The settlement failed with a persistent error; it is retried automatically.",
                "Read the reason: the contract refuses the settlement. Fix the cause, then settle again.",
            ),
            Self::RefundApproval => (
                Source::Database,
                "payments#payment-needs-a-decision",
                "A refund to another address than the payer's is above the PSP's limit and waits for approval.",
                "Check with the PSP that it asked for the refund and knows the address, then approve or reject it. The \
                amount stays reserved.",
            ),
            Self::ApprovalOpen => (
                Source::Database,
                "payments#payment-needs-a-decision",
                "An operator's action waits for the approval of a second operator, or is approved and not carried out.",
                "Check with the proposer why it is needed, then approve or reject it. If it is approved and not carried \
                out, it is repeated automatically: the payment may be quarantined.",
            ),
            Self::InReview => (
                Source::Database,
                "screening#money-in-review-or-blocked",
                "Screening flagged a transfer, or the payer of an authorization, for review; it is screened again automatically.",
                "Check the source of the money and the screening provider, then allow or block it.",
            ),
            Self::FundsBlocked => (
                Source::Database,
                "screening#money-in-review-or-blocked",
                "The payment's wallet holds money that screening blocked.",
                "Decide with compliance where the money goes, and send it back. It is never moved automatically.",
            ),
            Self::OutboundInReview => (
                Source::Database,
                "screening#money-in-review-or-blocked",
                "Screening flagged the address of a payout or withdrawal for review.",
                "Check the address and the screening provider, then allow or block it.",
            ),
            Self::OutboundOverdue => (
                Source::Database,
                "settlement#operations-wait",
                "The payout or withdrawal has been pending for too long.",
                "Check the chain's settler, the pauses of sending and the screening provider. The amount stays \
                reserved.",
            ),
            Self::OperationOverdue => (
                Source::Database,
                "settlement#operations-wait",
                "A refund was not sent for too long, or a settlement was not carried out and no other kind lists it.",
                "Read the reason. Check the chain's settler, its finality and the pauses. If the chain was removed \
                from the configuration, add it again: its operations then continue automatically, each once.",
            ),
            Self::Unsettled => (
                Source::Database,
                "settlement#operations-wait",
                "The payment is confirmed and has not been settled for too long.",
                "Check the chain's settler and the payment's operation.",
            ),
            Self::Overdue => (
                Source::Database,
                "payments#payment-needs-a-decision",
                "The payment is still pending long after its deadline.",
                "Check the payment's chain and its transfers; one may wait for finality or screening.",
            ),
            Self::TransferHeld => (
                Source::Memory,
                "chains#endpoints-disagree",
                "The chain's endpoints do not agree on a transfer of a large payment, or too few of them answer.",
                "Compare the transaction with a block explorer. If it is there, check the endpoint that the reason \
                names; otherwise replace the other one. The check is repeated, and the payment continues automatically.",
            ),
            Self::TransferUnapplied => (
                Source::Database,
                "payments#payments-without-an-actor",
                "A payment has not applied a recorded transfer.",
                "The payment is notified every few seconds. Check the payment's actor.",
            ),
            Self::TransferSetAside => (
                Source::Database,
                "payments#payment-needs-a-decision",
                "The payment's list of transfers is full: these are not listed or counted. The money is in its wallet.",
                "Check who sent so many transfers. Apply the genuine ones (`take_in`); they are then screened and \
                counted.",
            ),
            Self::BreakerOpen => (
                Source::Webhooks,
                "webhooks#deliveries-are-late",
                "The PSP's receiver failed many times in a row; deliveries are paused for a while.",
                "Inform the PSP. The receiver is probed, and deliveries continue automatically; no event is lost.",
            ),
            Self::WebhooksDelayed => (
                Source::Webhooks,
                "webhooks#deliveries-are-late",
                "Events of the PSP have waited too long for delivery.",
                "Read the reason. If no webhook URL is set, ask the PSP to set one (`set_webhook`): the events are \
                then delivered. Until then it has the feed of events. If the signing secret cannot be decrypted, \
                find the master key that sealed it. Otherwise check the PSP's receiver, and inform the PSP if it \
                is slow or failing.",
            ),
            Self::WebhooksExhausted => (
                Source::Webhooks,
                "webhooks#deliveries-are-exhausted",
                "Events of the PSP are exhausted: all delivery attempts failed.",
                "When the receiver works, ask the PSP to redeliver the events or to read the feed of events.",
            ),
            Self::Paused => (
                Source::Memory,
                "process#paused",
                "Paused by the operator.",
                "Lift the pause when its reason no longer applies: `payferry pause lift`, or the Pauses page.",
            ),
        }
    }

    pub(super) const fn source(self) -> Source {
        self.facts().0
    }

    /// Name and heading of its runbook, as in the path of the page.
    pub const fn runbook(self) -> &'static str {
        self.facts().1
    }

    /// Description of the problem.
    pub const fn meaning(self) -> &'static str {
        self.facts().2
    }

    /// Recommended action.
    pub const fn advice(self) -> &'static str {
        self.facts().3
    }

    /// Returns true if an operator may acknowledge an entry. The others wait for a decision or are few.
    pub(super) const fn may_be_acknowledged(self) -> bool {
        !matches!(self, Self::Database | Self::ApprovalOpen | Self::CheckOverdue | Self::TransferSetAside)
    }

    /// Returns true if the kind is read from the database.
    pub(super) fn is_read_from_the_database(self, system: &System) -> bool {
        match self {
            // The state of a provider is in memory. The checks that wait for a missing provider are in the database.
            Self::IdentityProvider => system.compliance().provider().is_none(),
            _ => self.source() != Source::Memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALERTS: &str = include_str!("../../../../ops/alerts.yml");
    /// Kinds that a metric of their own reports, for which the runbook's rule is about that metric.
    const MEASURED: [AttentionKind; 7] = [
        AttentionKind::VaultDifference,
        AttentionKind::Endpoint,
        AttentionKind::Chain,
        AttentionKind::Settler,
        AttentionKind::CheckOverdue,
        AttentionKind::Quarantined,
        AttentionKind::TransferHeld,
    ];

    #[test]
    fn every_kind_has_an_alert_with_its_runbook() {
        let rules: Vec<&str> = ALERTS.split("- alert: ").skip(1).collect();
        for kind in AttentionKind::ALL {
            let runbook = format!("/ops/view/runbooks/{}\"", kind.runbook());
            let of_kind: Vec<&&str> = rules.iter().filter(|rule| rule.contains(&runbook)).collect();
            assert!(!of_kind.is_empty(), "{kind}: no rule has the runbook {runbook}");
            let is_matched = of_kind.iter().any(|rule| {
                let matchers = rule.split("payferry_attention{kind").skip(1).filter_map(|rest| rest.split('"').nth(1));
                matchers.flat_map(|kinds| kinds.split('|')).any(|name| name == kind.as_str())
            });
            assert_eq!(is_matched, !MEASURED.contains(&kind), "{kind}: {of_kind:?}");
        }
    }
}
