//! A customer as compliance sees it.

use serde::{Deserialize, Serialize};

use super::words::{CheckPurpose, CustomerKind, Documents, KycStatus};
use crate::ids::{CheckId, CustomerId, PspId};
use crate::time::Timestamp;

/// The check that counts at the moment; another's result changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which.
    pub id: CheckId,
    /// What for.
    pub purpose: CheckPurpose,
    /// The revision of the customer that it was asked for.
    pub revision: u32,
}

/// A customer's compliance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// Which.
    pub id: CustomerId,
    /// Whose.
    pub psp_id: PspId,
    /// Person or company.
    pub kind: CustomerKind,
    /// How far verification has come.
    pub kyc_status: KycStatus,
    /// While an update is screened: the status that it returns to if nothing speaks against it.
    pub before_update: Option<KycStatus>,
    /// Whether it can be linked to anything new. Once false, false for ever.
    pub is_active: bool,
    /// When the terms of service were accepted.
    pub tos_accepted_at: Option<Timestamp>,
    /// What was handed in.
    pub documents: Documents,
    /// The check under way.
    pub check: Option<Check>,
    /// Why it was rejected, if it was.
    pub rejection_reasons: Vec<String>,
    /// Of the data that is screened: one more with each phone number or wallet.
    pub revision: u32,
    /// Of the whole: one more with each change, for compare and swap.
    pub version: i64,
}

impl Customer {
    /// A customer that was just created, at version 1.
    pub fn new(id: CustomerId, psp_id: PspId, kind: CustomerKind) -> Self {
        Self {
            id,
            psp_id,
            kind,
            kyc_status: KycStatus::Pending,
            before_update: None,
            is_active: true,
            tos_accepted_at: None,
            documents: Documents::NONE,
            check: None,
            rejection_reasons: Vec::new(),
            revision: 1,
            version: 1,
        }
    }

    /// Whether it may transact.
    pub fn is_cleared(&self) -> bool {
        self.is_active && self.kyc_status.is_cleared()
    }
}
