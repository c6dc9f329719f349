//! Expected end and events of a payment, by the interface's table and the behaviour of the payer.
//!
//! Pure. Shares no code with the service.

use crate::wire::Amount;
use crate::wire::{EventName, Label, Status};

use super::behaviour::{Behaviour, Intent};

/// The whole, in basis points.
const BPS_WHOLE: i128 = 10_000;

/// Reason of the status `failed` of an expired payment.
pub const EXPIRED_REASON: &str = "expired";

/// Expected event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEvent {
    /// Name.
    pub name: EventName,
    /// Status of the payment at the event.
    pub status: Status,
}

/// Expected end of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEnd {
    /// Status.
    pub status: Status,
    /// Reason of the status `failed`.
    pub failure_reason: Option<&'static str>,
    /// All labels.
    pub labels: &'static [Label],
}

const fn event(name: EventName, status: Status) -> ExpectedEvent {
    ExpectedEvent { name, status }
}

/// Events of a payment that is settled.
pub const SETTLED: &[ExpectedEvent] = &[
    event(EventName::PaymentConfirmed, Status::Confirmed),
    event(EventName::PayinConfirmed, Status::Confirmed),
    event(EventName::PaymentSettled, Status::Settled),
    event(EventName::PayinSettled, Status::Settled),
];
/// Events of a payment that is settled and refunded.
pub const REFUNDED: &[ExpectedEvent] =
    &[SETTLED[0], SETTLED[1], SETTLED[2], SETTLED[3], event(EventName::RefundSent, Status::Settled)];
/// Events of an underpayment.
pub const UNDERPAID: &[ExpectedEvent] = &[
    event(EventName::PaymentMismatched, Status::Mismatched),
    event(EventName::PayinUnderpaid, Status::Mismatched),
    event(EventName::PayinMismatched, Status::Mismatched),
];
/// Events of an overpayment.
pub const OVERPAID: &[ExpectedEvent] =
    &[event(EventName::PaymentMismatched, Status::Mismatched), event(EventName::PayinMismatched, Status::Mismatched)];
/// Events of a payment that fails.
pub const EXPIRED: &[ExpectedEvent] =
    &[event(EventName::PaymentFailed, Status::Failed), event(EventName::PayinFailed, Status::Failed)];
const PAID_LATE: &[ExpectedEvent] = &[EXPIRED[0], EXPIRED[1], OVERPAID[0], OVERPAID[1]];

/// Returns the events of a payment in the order of their `sequence`, from 1.
pub const fn events(behaviour: Behaviour) -> &'static [ExpectedEvent] {
    match behaviour {
        Behaviour::Exact | Behaviour::Authorized | Behaviour::PaidOut | Behaviour::Withdrawn | Behaviour::Customer => {
            SETTLED
        }
        Behaviour::Refunded => REFUNDED,
        Behaviour::Under => UNDERPAID,
        Behaviour::Over => OVERPAID,
        Behaviour::Late => PAID_LATE,
        Behaviour::Never => EXPIRED,
        Behaviour::Held => &[],
    }
}

/// Returns the end of a payment after its payer has acted.
pub const fn ends(behaviour: Behaviour) -> ExpectedEnd {
    let (status, failure_reason, labels): (_, _, &'static [Label]) = match behaviour {
        Behaviour::Exact | Behaviour::Refunded | Behaviour::PaidOut | Behaviour::Withdrawn | Behaviour::Customer => {
            (Status::Settled, None, &[])
        }
        Behaviour::Authorized => (Status::Settled, None, &[Label::Authorized]),
        Behaviour::Under => (Status::Mismatched, None, &[Label::Underpaid]),
        Behaviour::Over => (Status::Mismatched, None, &[Label::Overpaid]),
        Behaviour::Late => (Status::Mismatched, None, &[Label::Late]),
        Behaviour::Never => (Status::Failed, Some(EXPIRED_REASON), &[]),
        Behaviour::Held => (Status::Pending, None, &[]),
    };
    ExpectedEnd { status, failure_reason, labels }
}

/// Describes the state of a payment.
pub fn state<'a>(status: &str, failure_reason: Option<&str>, labels: impl Iterator<Item = &'a str>) -> String {
    let reason = failure_reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let labels: Vec<String> = labels.map(|label| format!(" {label}")).collect();
    format!("{status}{reason}{}", labels.concat())
}

/// Returns the allowed statuses of a payment that was not paid because the payer never learned its address.
pub const fn unpaid(behaviour: Behaviour) -> &'static [Status] {
    if behaviour.expires() { &[Status::Pending, Status::Failed] } else { &[Status::Pending] }
}

/// Returns the received amount at an event with this status, in base units.
pub fn received_units(intent: &Intent, status: Status) -> i64 {
    if status == Status::Failed { 0 } else { intent.paid_amount().map_or(0, Amount::units) }
}

/// Name of the value of [`split`].
pub const SPLIT: &str = "psp_amount and treasury_fee";

/// Returns the treasury's share of a settled amount: the fee of the PSP's settings, rounded down to base units.
pub fn treasury_fee(settled: Amount, fee_bps: u16) -> Amount {
    let units = i128::from(settled.units()) * i128::from(fee_bps) / BPS_WHOLE;
    // A part of a value that fits.
    Amount(i64::try_from(units).unwrap_or(i64::MAX))
}

/// Returns the shares of the PSP and the treasury, as they must be reported.
pub fn split(settled: Amount, fee_bps: u16) -> String {
    let fee = treasury_fee(settled, fee_bps);
    format!("{} and {fee}", settled.saturating_sub(fee))
}

/// Returns the labels at an event with this status.
pub const fn labels(behaviour: Behaviour, status: Status) -> &'static [Label] {
    if matches!(status, Status::Failed) { &[] } else { ends(behaviour).labels }
}

/// Returns the events of a payment in the groups that are announced together. Each group has a status of its own.
pub fn groups(behaviour: Behaviour) -> Vec<&'static [ExpectedEvent]> {
    events(behaviour).chunk_by(|one, next| one.status == next.status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_has_the_final_status() {
        for behaviour in Behaviour::MIXED {
            let last = events(behaviour).last().map(|event| event.status);
            assert_eq!(last, Some(ends(behaviour).status), "{behaviour:?}");
        }
        assert!(events(Behaviour::Held).is_empty());
    }

    #[test]
    fn the_fee_is_rounded_down() {
        for (settled, fee_bps, fee) in
            [(5_000_000, 100, 50_000), (5_010_099, 100, 50_100), (99, 100, 0), (7, 10_000, 7)]
        {
            assert_eq!(treasury_fee(Amount(settled), fee_bps), Amount(fee), "{settled} {fee_bps}");
        }
        assert_eq!(treasury_fee(Amount::MAX, 0), Amount::ZERO);
        assert_eq!(split(Amount(5_000_001), 33), "4.983501 and 0.0165");
    }

    #[test]
    fn late_transfers_count_after_the_expiry_only() {
        let late = Intent::nth(7, Behaviour::Late);
        let received = |status| received_units(&late, status);
        assert_eq!([Status::Failed, Status::Mismatched].map(received), [0, late.amount.units()]);
        assert_eq!(labels(Behaviour::Late, Status::Failed), &[]);
        assert_eq!(labels(Behaviour::Late, Status::Mismatched), &[Label::Late]);
        let under = Intent::nth(7, Behaviour::Under);
        assert_eq!(received_units(&under, Status::Mismatched), under.amount.units() - 1_000_000);
        let sizes = |behaviour| groups(behaviour).iter().map(|group| group.len()).collect::<Vec<_>>();
        assert_eq!(
            [sizes(Behaviour::Late), sizes(Behaviour::Under), sizes(Behaviour::Held)],
            [vec![2, 2], vec![3], vec![]]
        );
    }
}
