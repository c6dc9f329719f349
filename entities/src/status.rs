//! Statuses of rows: the columns, the queries and the answers use the same enums.

use payferry_domain::named;
use sea_orm::DeriveValueType;

named! {
    /// Status of an operation.
    #[derive(Default, DeriveValueType)]
    #[sea_orm(value_type = "String")]
    OperationStatus, "queued, submitted, mined, succeeded, failed, cancelled" {
        /// Waits for a transaction.
        #[default]
        Queued = "queued",
        /// In a signed transaction that is not mined.
        Submitted = "submitted",
        /// Carried out in a block that can still be orphaned.
        Mined = "mined",
        /// Carried out, and applied by its owner.
        Succeeded = "succeeded",
        /// Failed for good.
        Failed = "failed",
        /// Not wanted any more.
        Cancelled = "cancelled",
    }
}

impl OperationStatus {
    /// Returns true if a block has carried out the operation.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Mined | Self::Succeeded)
    }
}

named! {
    /// Status of a transaction of the operator account.
    #[derive(Default, DeriveValueType)]
    #[sea_orm(value_type = "String")]
    ChainTxStatus, "submitted, mined, final, reverted, cancelled" {
        /// Signed, and not mined.
        #[default]
        Submitted = "submitted",
        /// In a block that is not final.
        Mined = "mined",
        /// In a final block.
        Final = "final",
        /// In a block, without effect.
        Reverted = "reverted",
        /// Another transaction has used its nonce.
        Cancelled = "cancelled",
    }
}

named! {
    /// Status of a delivery.
    #[derive(Default, DeriveValueType)]
    #[sea_orm(value_type = "String")]
    DeliveryStatus, "queued, failed, delivered, exhausted, cancelled" {
        /// Waits for its first attempt.
        #[default]
        Queued = "queued",
        /// Waits for a retry.
        Failed = "failed",
        /// The endpoint has accepted it.
        Delivered = "delivered",
        /// All attempts failed.
        Exhausted = "exhausted",
        /// Its endpoint was deleted.
        Cancelled = "cancelled",
    }
}

impl DeliveryStatus {
    /// Returns true if the delivery waits for an attempt.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Failed)
    }
}

named! {
    /// Status of an endpoint.
    #[derive(Default, DeriveValueType)]
    #[sea_orm(value_type = "String")]
    EndpointStatus, "enabled, disabled, deleted" {
        /// Its deliveries are sent.
        #[default]
        Enabled = "enabled",
        /// Its deliveries wait until it is enabled.
        Disabled = "disabled",
        /// Its deliveries are being cancelled.
        Deleted = "deleted",
    }
}

named! {
    /// Status of a check of a customer.
    #[derive(Default, DeriveValueType)]
    #[sea_orm(value_type = "String")]
    CheckStatus, "queued, open, passed, failed, lapsed, superseded" {
        /// Not started at the provider.
        #[default]
        Queued = "queued",
        /// Started at the provider.
        Open = "open",
        /// Ended with the verdict `approved`.
        Passed = "passed",
        /// Ended with the verdict `rejected`.
        Failed = "failed",
        /// Ended without a verdict.
        Lapsed = "lapsed",
        /// Replaced, or not needed any more.
        Superseded = "superseded",
    }
}

impl CheckStatus {
    /// Returns true if the check waits for the provider.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::Open)
    }
}
