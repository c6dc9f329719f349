//! Pure domain model of Payferry, without I/O.
//!
//! - Basic types: ids, money, chains, time.
//! - The payment aggregate as four functions: `decide`, `evolve`, `react`, and `resume`, which returns the effects that
//!   are still due after a restart. Outbound transfers (`outbound`) and the compliance of a customer have the same
//!   structure.
//! - Numbered invariants.
//!
//! Not here: databases, HTTP, runtimes, chain clients, clocks. The caller passes the time as data. The only impure
//! function is `generate()` of an id, and decisions never call it.

pub mod chain;
mod command_error;
pub mod customer;
pub mod ids;
pub mod invariants;
pub mod ledger;
pub mod money;
pub mod named;
pub mod outbound;
pub mod payment;
pub mod time;
pub mod webhook;

pub use chain::{Address, Chain, Finality, FinalityPolicy, FinalityProgress, Hash32};
pub use command_error::{CommandError, InitiateError, OrderError, TransitionError};
pub use ids::{
    ApprovalId, BulkJobId, CheckId, CustomerId, DeliveryId, DocumentId, EndpointId, EventId, KeyId, KeyScope,
    MerchantId, NodeId, OperationId, PaymentId, PayoutId, PspId, RefundId, RefundRequestId, TransferId, WithdrawalId,
};
pub use ledger::{Account, Asset, Posting, PostingKind};
pub use money::{Amount, FeeBps, Split, Token, Tolerance, split_fee};
pub use time::{Timestamp, TimestampError};
