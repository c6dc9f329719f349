//! Applies events to a customer.

use super::event::Event;
use super::state::{Check, Customer};
use super::words::KycStatus;

/// Returns the customer after `event`. It never fails: it accepts every event in every state.
#[must_use]
pub fn evolve(mut customer: Customer, event: &Event) -> Customer {
    match event {
        Event::TermsAccepted { at } => customer.tos_accepted_at = Some(*at),
        Event::DocumentsAdded { documents } => customer.documents = customer.documents.and(*documents),
        Event::CheckQueued { check, purpose, revision } => {
            customer.check = Some(Check { id: *check, purpose: *purpose, revision: *revision });
        }
        Event::CheckSuperseded { check }
        | Event::CheckLapsed { check }
        | Event::CheckPassed { check }
        | Event::CheckFailed { check } => {
            customer.check = customer.check.filter(|current| current.id != *check);
        }
        Event::Reopened => settle(&mut customer, KycStatus::Pending, &[]),
        Event::Restored { kyc_status } => {
            customer.kyc_status = *kyc_status;
            customer.before_update = None;
        }
        Event::Approved => settle(&mut customer, KycStatus::Approved, &[]),
        Event::Rejected { reasons } => settle(&mut customer, KycStatus::Rejected, reasons),
        Event::PhoneChanged | Event::WalletReplaced => customer.revision += 1,
        Event::UpdateBegun => {
            customer.before_update.get_or_insert(customer.kyc_status);
            customer.kyc_status = KycStatus::PendingUpdate;
        }
        Event::DetailsSet => {}
        Event::Deactivated => customer.is_active = false,
    }
    customer
}

fn settle(customer: &mut Customer, kyc_status: KycStatus, reasons: &[String]) {
    customer.kyc_status = kyc_status;
    customer.before_update = None;
    customer.rejection_reasons = reasons.to_vec();
}
