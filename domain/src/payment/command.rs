//! Commands to a payment: facts and requests. Facts never fail; requests of people can be rejected.

use serde::{Deserialize, Serialize};

use super::authorization::{AuthorizationEnd, AuthorizationOrder};
use super::event::Event;
use super::money_out::{Funds, Requester};
use super::payer_request::AddressProof;
use super::transfer::{BlockRef, ObservedTransfer, TransferKey, Verdict};
use crate::chain::{Address, Chain, Finality, Hash32};
use crate::ids::{OperationId, RefundId, RefundRequestId};
use crate::ledger::Asset;
use crate::money::Amount;
use crate::time::Timestamp;

/// One outage of a chain, unique per chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutageId(pub u64);

/// A command to a payment.
///
/// The facts (`ObserveTransfer` to `OrphanSettlement`, except those marked as requests) may arrive repeatedly, late,
/// and in any order. An outdated or known fact changes nothing.
///
/// Stored with the transition that it caused, as `{"cancel": ...}` or `"cancel"`, to decide it again with later rules: a new
/// field needs a default that stands for the old rule.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Command {
    /// The chain watcher's row about a transfer: seen or orphaned.
    ObserveTransfer(ObservedTransfer),
    /// List transfers that were set aside because the list was full. (Request of the operator.)
    TakeIn {
        /// The watcher's rows about these transfers, each transfer once.
        observed: Vec<ObservedTransfer>,
    },
    /// The blocks of these transfers have reached a finality. Everything that one advance of a chain made final is one
    /// command.
    FinaliseTransfers(Vec<TransferFinality>),
    /// A screening result, or (with `verdict.by_operator`) the decision of a person on a review.
    ScreenTransfer {
        /// Key of the transfer.
        key: TransferKey,
        /// Verdict.
        verdict: Verdict,
    },
    /// The watcher has read a block of the payment's chain with this timestamp. Blocks of other chains are never
    /// reported.
    PassDeadline {
        /// Timestamp of the block.
        chain_time: Timestamp,
    },
    /// The payer chooses the chain. (Request.)
    ChooseChain {
        /// One of the offered chains.
        chain: Chain,
    },
    /// The payment's chain had an outage.
    MoveDeadline {
        /// Id of the outage. An outage is applied once; the same outage with a later `to` replaces the earlier one.
        outage: OutageId,
        /// Time of the last block before the outage.
        from: Timestamp,
        /// Time of the first block after the outage.
        to: Timestamp,
    },
    /// Cancel the payment. (Request of the PSP.)
    Cancel,
    /// Accept the funds that were received. (Request of the PSP.)
    Accept {
        /// Amount that the PSP expects to have been received; the command is rejected if the amount differs.
        expected_received: Option<Amount>,
    },
    /// Refund the payment. (Request of a person.)
    RequestRefund(Box<RefundOrder>),
    /// Ask for a refund. (Request of a payer.)
    AskRefund(Box<RefundAsk>),
    /// Decline the request of a payer for a refund. To approve it, `RequestRefund` with the id of its refund. (Request of the
    /// PSP.)
    DeclineRefundRequest {
        /// Id of the request.
        request_id: RefundRequestId,
    },
    /// Approve or reject a refund above the limit. (Request of the operator.)
    DecideRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// True to send the refund, false to fail it.
        approve: bool,
    },
    /// A screening result for the address of a refund, or (with `verdict.by_operator`) the decision of a person on a
    /// review.
    ScreenRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// Verdict.
        verdict: Verdict,
    },
    /// The outbound transfer of a refund is final.
    CompleteRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// The transaction.
        tx_hash: Hash32,
    },
    /// A refund will definitely not be sent. Includes refunds that were final before they were orphaned.
    FailRefund {
        /// Id of the refund.
        refund_id: RefundId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Reason, as text.
        reason: String,
    },
    /// Retry a failed settlement. (Request of a person, unless `by` is the schedule.)
    RetrySettlement {
        /// Requester.
        by: Requester,
    },
    /// The settlement is mined and has the required finality.
    CompleteSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// Incremented with every outcome that the settler's row records (completed, failed, orphaned, completed
        /// again). A fact that is not newer than the last applied revision changes nothing. Starts at 1.
        revision: u32,
        /// Amount that the chain reports as settled. It can differ from the amount queued last: an older transaction
        /// may have carried an amount from before a reorganisation.
        amount: Amount,
        /// The transaction.
        tx_hash: Hash32,
        /// Time of the block.
        block_time: Timestamp,
    },
    /// The settlement reverted for a permanent reason.
    FailSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Reason, for operators.
        reason: String,
    },
    /// Accept an authorization whose signature was verified. (Request of the payer.)
    Authorize(AuthorizationOrder),
    /// A screening result for the payer of an authorization, or (with `verdict.by_operator`) the decision of a person on
    /// a review.
    ScreenAuthorization {
        /// Operation that collects it.
        operation: OperationId,
        /// Verdict.
        verdict: Verdict,
    },
    /// An authorization is collected, in a block with the required finality.
    CompleteAuthorization {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// Where it was collected.
        block: CollectedBlock,
    },
    /// An authorization will not be collected.
    FailAuthorization {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
        /// How it ended.
        end: AuthorizationEnd,
        /// Details, for people.
        detail: String,
    },
    /// The final block that collected an authorization is no longer in the chain; the settler submits it again.
    OrphanAuthorization {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
    },
    /// A final settlement is no longer in the chain; the settler broadcasts it again.
    OrphanSettlement {
        /// Id of the operation.
        operation: OperationId,
        /// As in `CompleteSettlement`.
        revision: u32,
    },
}

/// Finality that the block of a transfer has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferFinality {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Revision of the transfer; ignored unless it is the current revision.
    pub revision: u32,
    /// Finality that was reached; ignored if it is lower than the required finality.
    pub reached: Finality,
}

/// Position of a collected authorization in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedBlock {
    /// The transaction.
    pub tx_hash: Hash32,
    /// Hash of its block.
    pub block_hash: Hash32,
    /// Its block.
    pub block: BlockRef,
    /// Index of the `Collected` log in the block.
    pub log_index: u32,
}

/// A refund to accept.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefundOrder {
    /// Id for the new refund.
    pub id: RefundId,
    /// Amount; if absent, everything that can be refunded.
    pub amount: Option<Amount>,
    /// Recipient address; if absent, the sender, if the PSP allows it.
    pub to: Option<Address>,
    /// Funds to refund. Only the operator may use `Blocked`.
    pub funds: Funds,
    /// Token and chain. Set only for misdirected and blocked funds.
    pub asset: Option<Asset>,
    /// Requester.
    pub by: Requester,
    /// The sender of the funds, if the chain says that it is a plain account: a refund to it has no limit.
    pub plain: Option<Address>,
    /// True if the refund is above a limit, so that the operator must approve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Reference from the PSP. Not stored with the command: the event has it.
    #[serde(skip)]
    pub reference: Option<String>,
    /// JSON object from the PSP, returned in events. Not stored with the command: the event has it.
    #[serde(skip)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

impl RefundOrder {
    /// An order to refund everything that was received, to an address that follows from the payment.
    pub fn new(id: RefundId, by: Requester) -> Self {
        Self {
            id,
            amount: None,
            to: None,
            funds: Funds::Received,
            asset: None,
            by,
            plain: None,
            hold: false,
            reference: None,
            metadata: None,
        }
    }
}

/// A request of a payer for a refund, whose signature was verified if it has one.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefundAsk {
    /// Id for the new request.
    pub id: RefundRequestId,
    /// Amount.
    pub amount: Amount,
    /// Recipient address. With a signature, the account that signed and sent the funds.
    pub to: Address,
    /// Token and chain, if they differ from the payment's.
    pub asset: Option<Asset>,
    /// Evidence about the address.
    pub proof: AddressProof,
    /// True to carry out a signed request at once, by the policy of the PSP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
    /// As in `RefundOrder`.
    pub plain: Option<Address>,
    /// As in `RefundOrder`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Note to the PSP. Not stored with the command: the event has it.
    #[serde(skip)]
    pub note: Option<String>,
}

impl Command {
    /// Returns the name, as in the database.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Completes a stored command with the parts that only the events that it caused have.
    #[must_use]
    pub fn completed_from(mut self, events: &[Event]) -> Self {
        if let Self::RequestRefund(order) = &mut self {
            let refund = events.iter().find_map(|event| match event {
                Event::RefundRequested { refund, .. } if refund.id == order.id => Some(refund),
                _ => None,
            });
            if let Some(refund) = refund {
                order.reference.clone_from(&refund.reference);
                order.metadata.clone_from(&refund.metadata);
            }
        }
        if let Self::AskRefund(ask) = &mut self {
            ask.note = events.iter().find_map(|event| match event {
                Event::RefundAsked { request } => request.note.clone(),
                _ => None,
            });
        }
        self
    }

    /// Returns the request for the same refund, to be approved by the operator. `None` for other commands.
    pub fn held(&self) -> Option<Self> {
        match self {
            Self::RequestRefund(order) if !order.hold => {
                Some(Self::RequestRefund(Box::new(RefundOrder { hold: true, ..(**order).clone() })))
            }
            Self::AskRefund(ask) if ask.at_once && !ask.hold => {
                Some(Self::AskRefund(Box::new(RefundAsk { hold: true, ..(**ask).clone() })))
            }
            _ => None,
        }
    }
}
