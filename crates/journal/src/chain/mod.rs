//! Rows of chains: blocks that were read, transfers, operations, transactions and their signed bytes.

pub mod attempts;
pub mod cursor;
pub mod queue;
pub mod recipients;
pub mod rows;
pub mod unknown_sent;

use payferry_entities::operations;

/// Kind of batch that executes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Settlements.
    Settle,
    /// Authorizations of payers. The settler's signer submits them, and a pause of settlements pauses them.
    Collect,
    /// Outbound transfers.
    Send,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Settle, Self::Collect, Self::Send];

    /// Values of `operations.kind` that the role executes.
    pub const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Settle => &["settle"],
            Self::Collect => &["collect", "deposit"],
            Self::Send => &["deliver", "send", "send_psp", "payout", "withdrawal"],
        }
    }
}

/// Returns true if the operation belongs to a payout or withdrawal.
pub fn is_outbound(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "withdrawal")
}

/// Returns true if the operation pays a customer, who must be cleared when it is signed.
pub fn pays_customer(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "deliver")
}
