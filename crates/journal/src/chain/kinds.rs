//! Kinds of operations, as `operations.kind` names them.

use payferry_entities::operations;

/// Which role of the contract carries an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Settlements.
    Settle,
    /// Outbound transfers.
    Send,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Settle, Self::Send];

    /// Values of `operations.kind` that it carries out.
    pub const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Settle => &["settle"],
            Self::Send => &["deliver", "send", "send_psp", "payout", "withdrawal"],
        }
    }
}

/// Whether it is a payout's or a withdrawal's.
pub fn is_outbound(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "withdrawal")
}

/// Whether a customer is paid by it, who must be cleared when it is signed.
pub fn pays_customer(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "deliver")
}
