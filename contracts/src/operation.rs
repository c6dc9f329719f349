//! Kinds of operations, and the largest signature.

/// Kind of an operation. The contract's once-only guard is keyed by (kind, ULID), so a settlement never uses up the id of
/// an outbound transfer. The contract knows only [`OperationKind::Settlement`]; the others are the service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// By `settle`; refused by `send`.
    Settlement = 0,
    /// To the payer, from a payment's or a PSP's vault.
    Refund = 1,
    /// To a payee of a PSP.
    Payout = 2,
    /// To the PSP itself.
    Withdrawal = 3,
    /// Of tokens that no payment explains.
    Recovery = 4,
}

impl OperationKind {
    /// Returns the number on the chain.
    ///
    /// ```
    /// use payferry_contracts::OperationKind;
    /// assert_eq!(OperationKind::Payout.number(), 2);
    /// assert_eq!(OperationKind::of(2), Some(OperationKind::Payout));
    /// assert_eq!(OperationKind::of(9), None);
    /// ```
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind of a number on the chain, or `None` if it is unknown.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Settlement),
            1 => Some(Self::Refund),
            2 => Some(Self::Payout),
            3 => Some(Self::Withdrawal),
            4 => Some(Self::Recovery),
            _ => None,
        }
    }
}

/// Length of the longest signature that `collect` submits, in bytes. A longer one fails its whole group.
pub const SIGNATURE_BYTES_MAX: usize = 4096;
