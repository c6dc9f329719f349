//! What a payment of the load must end as, and which events it must announce: the interface's table, read off what the
//! payer did.
//!
//! Pure, and its own: it shares nothing with the code that decides in the service.

use payferry_testkit::wire::Amount;
use payferry_testkit::wire::{EventName, FailureReason, Label, Status};

use super::behaviour::{Behaviour, Intent};

/// Basis points of the whole.
const BPS_WHOLE: i128 = 10_000;

/// One event that must be announced, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEvent {
    /// Its name.
    pub name: EventName,
    /// The payment's status then.
    pub status: Status,
}

/// How a payment must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEnd {
    /// Its status.
    pub status: Status,
    /// Why it failed.
    pub failure_reason: Option<FailureReason>,
    /// Its labels, all of them.
    pub labels: &'static [Label],
}

const fn event(name: EventName, status: Status) -> ExpectedEvent {
    ExpectedEvent { name, status }
}

const SETTLED: &[ExpectedEvent] = &[
    event(EventName::PaymentConfirmed, Status::Confirmed),
    event(EventName::PayinConfirmed, Status::Confirmed),
    event(EventName::PaymentSettled, Status::Settled),
    event(EventName::PayinSettled, Status::Settled),
];
const UNDERPAID: &[ExpectedEvent] = &[
    event(EventName::PaymentMismatched, Status::Mismatched),
    event(EventName::PayinUnderpaid, Status::Mismatched),
    event(EventName::PayinMismatched, Status::Mismatched),
];
const OVERPAID: &[ExpectedEvent] =
    &[event(EventName::PaymentMismatched, Status::Mismatched), event(EventName::PayinMismatched, Status::Mismatched)];
const EXPIRED: &[ExpectedEvent] =
    &[event(EventName::PaymentFailed, Status::Failed), event(EventName::PayinFailed, Status::Failed)];
const PAID_LATE: &[ExpectedEvent] = &[
    event(EventName::PaymentFailed, Status::Failed),
    event(EventName::PayinFailed, Status::Failed),
    event(EventName::PaymentMismatched, Status::Mismatched),
    event(EventName::PayinMismatched, Status::Mismatched),
];

/// The events of a payment, in the order of their `sequence`, from 1.
pub const fn events(behaviour: Behaviour) -> &'static [ExpectedEvent] {
    match behaviour {
        Behaviour::Exact => SETTLED,
        Behaviour::Under => UNDERPAID,
        Behaviour::Over => OVERPAID,
        Behaviour::Late => PAID_LATE,
        Behaviour::Never => EXPIRED,
        Behaviour::Held => &[],
    }
}

/// How a payment ends whose payer has done what he does.
pub const fn ends(behaviour: Behaviour) -> ExpectedEnd {
    let (status, failure_reason, labels): (_, _, &'static [Label]) = match behaviour {
        Behaviour::Exact => (Status::Settled, None, &[]),
        Behaviour::Under => (Status::Mismatched, None, &[Label::Underpaid]),
        Behaviour::Over => (Status::Mismatched, None, &[Label::Overpaid]),
        Behaviour::Late => (Status::Mismatched, None, &[Label::Late]),
        Behaviour::Never => (Status::Failed, Some(FailureReason::Expired), &[]),
        Behaviour::Held => (Status::Pending, None, &[]),
    };
    ExpectedEnd { status, failure_reason, labels }
}

/// The statuses of which a payment must have one that nobody paid, nobody having been told where to.
pub const fn unpaid(behaviour: Behaviour) -> &'static [Status] {
    if behaviour.expires() { &[Status::Pending, Status::Failed] } else { &[Status::Pending] }
}

/// What must be counted as received when the event of this place (from 0) is announced.
pub fn received_units(intent: &Intent, place: usize) -> i64 {
    let expired_first = intent.behaviour == Behaviour::Late && place < EXPIRED.len();
    if expired_first { 0 } else { intent.paid_amount().map_or(0, Amount::units) }
}

/// What [`split`] is of, in words.
pub const SPLIT: &str = "psp_amount and treasury_fee";

/// What the treasury must get of a settled amount: the fee of the PSP's settings, in base units rounded down.
pub fn treasury_fee(settled: Amount, fee_bps: u16) -> Amount {
    let units = i128::from(settled.units()) * i128::from(fee_bps) / BPS_WHOLE;
    // A part of what fits.
    Amount(i64::try_from(units).unwrap_or(i64::MAX))
}

/// The PSP's share and the treasury's, as they must be told.
pub fn split(settled: Amount, fee_bps: u16) -> String {
    let fee = treasury_fee(settled, fee_bps);
    format!("{} and {fee}", settled.saturating_sub(fee))
}

/// The labels that must stand in the event of this place.
pub fn labels(behaviour: Behaviour, place: usize) -> &'static [Label] {
    if behaviour == Behaviour::Late && place < EXPIRED.len() { &[] } else { ends(behaviour).labels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_tells_how_a_payment_ends() {
        for behaviour in Behaviour::MIXED {
            let last = events(behaviour).last().map(|event| event.status);
            assert_eq!(last, Some(ends(behaviour).status), "{behaviour:?}");
        }
        assert!(events(Behaviour::Held).is_empty());
    }

    #[test]
    fn the_treasury_gets_its_fee_rounded_down() {
        for (settled, fee_bps, fee) in
            [(5_000_000, 100, 50_000), (5_010_099, 100, 50_100), (99, 100, 0), (7, 10_000, 7)]
        {
            assert_eq!(treasury_fee(Amount(settled), fee_bps), Amount(fee), "{settled} {fee_bps}");
        }
        assert_eq!(treasury_fee(Amount::MAX, 0), Amount::ZERO);
        assert_eq!(split(Amount(5_000_001), 33), "4.983501 and 0.0165");
    }

    #[test]
    fn late_money_counts_only_after_the_expiry_was_told() {
        let late = Intent::nth(7, Behaviour::Late);
        let received: Vec<i64> = (0..4).map(|place| received_units(&late, place)).collect();
        assert_eq!(received, [0, 0, late.amount.units(), late.amount.units()]);
        assert_eq!(labels(Behaviour::Late, 1), &[]);
        assert_eq!(labels(Behaviour::Late, 2), &[Label::Late]);
        let under = Intent::nth(7, Behaviour::Under);
        assert_eq!(received_units(&under, 0), under.amount.units() - 1_000_000);
    }
}
