//! The domain of Payferry: pure, no input or output.
//!
//! Owns the words (ids, money, chains, time) and the payment aggregate as three functions, `decide`, `evolve`
//! and `react`, with `resume` for what is still owed after a restart, and the numbered invariants; and a customer's
//! compliance in the same manner.
//!
//! Deliberately absent: databases, HTTP, runtimes, chain clients, clocks. Time comes in as data; the one impurity
//! is the `generate()` of an id, which decisions never call.

pub mod chain;
mod command;
pub mod customer;
pub mod ids;
pub mod invariants;
pub mod ledger;
pub mod money;
mod named;
pub mod payment;
pub mod sending;
pub mod time;

pub use chain::{Address, Chain, Finality, FinalityPolicy, Hash32};
pub use command::CommandError;
pub use ids::{
    CheckId, CustomerId, DeliveryId, DocumentId, EventId, KeyId, MerchantId, OperationId, PaymentId, PayoutId, PspId,
    RefundId, TransferId, WithdrawalId,
};
pub use ledger::{Account, Asset, Posting, PostingKind};
pub use money::{Amount, FeeBps, Split, Token, Tolerance, split_fee};
pub use time::Timestamp;
