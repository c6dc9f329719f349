//! Policies of a PSP: its own decisions, and those of the operator about it.

use std::collections::BTreeMap;

use payferry_domain::payment::{EventName, OverpaymentPolicy, PayerRefunds};
use payferry_domain::{Amount, Chain, FeeBps, FinalityPolicy, Tolerance, named};
use serde::{Deserialize, Serialize};

use super::checkout::Checkout;

/// Default dust floor. Address poisoning uses such small amounts.
pub const DUST_FLOOR_DEFAULT: Amount = Amount(1_000);
/// Maximum dust floor. Amounts below the floor are not credited to anyone, so they must be negligible.
pub const DUST_FLOOR_MAX: Amount = Amount::from_tokens(1);
/// Default limit of one outbound transfer.
pub const SEND_MAX_DEFAULT: Amount = Amount::from_tokens(10_000);
/// Default limit of a PSP's payouts and withdrawals per token and UTC day, over all chains.
pub const SEND_DAILY_MAX_DEFAULT: Amount = Amount::from_tokens(50_000);
/// Default limit of a PSP's refunds to other addresses than the payer's, per token and UTC day, over all chains.
pub const REFUND_ELSEWHERE_DAILY_MAX_DEFAULT: Amount = Amount::from_tokens(1_000);

/// Default surplus that is excess instead of an overpayment: the greater of 0.01 and 10 basis points.
pub const OVERPAYMENT_TOLERANCE_DEFAULT: Tolerance = Tolerance { absolute: Amount::from_units(10_000), bps: 10 };

/// Decisions of a PSP about its payments, and of the operator about the PSP. Stored as JSON in `psps.settings`. Missing
/// fields have these defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PspPolicies {
    /// The treasury's share of each settlement. Set by the operator.
    pub fee_bps: FeeBps,
    /// Shortfall that is accepted as full payment.
    pub tolerance: Tolerance,
    /// Surplus that is excess instead of an overpayment.
    pub overpayment_tolerance: Tolerance,
    /// Handling of overpayments.
    pub overpayment: OverpaymentPolicy,
    /// True if refunds without an address may go to the sender.
    pub refund_to_sender: bool,
    /// Handling of requests of payers for a refund.
    pub payer_refunds: PayerRefunds,
    /// True if every payment must name its customer.
    pub require_customer: bool,
    /// Dust floor: transfers below it are ignored.
    pub dust_floor: Amount,
    /// Event families to send, if an event has two names.
    pub event_families: EventFamilies,
    /// Required finality per chain, if the PSP has its own tiers.
    pub finality: BTreeMap<Chain, FinalityPolicy>,
    /// Limit of one outbound transfer, if the operator set one for this PSP.
    pub send_max: Option<Amount>,
    /// Daily limit per token and UTC day, if the operator set one for this PSP.
    pub send_daily_max: Option<Amount>,
    /// Daily limit of refunds to other addresses than the payer's, if the operator set one for this PSP.
    pub refund_elsewhere_daily_max: Option<Amount>,
    /// Appearance of the payer's page.
    pub checkout: Checkout,
}

impl Default for PspPolicies {
    fn default() -> Self {
        Self {
            fee_bps: FeeBps::DEFAULT,
            tolerance: Tolerance::default(),
            overpayment_tolerance: OVERPAYMENT_TOLERANCE_DEFAULT,
            overpayment: OverpaymentPolicy::default(),
            refund_to_sender: false,
            payer_refunds: PayerRefunds::default(),
            require_customer: false,
            dust_floor: DUST_FLOOR_DEFAULT,
            event_families: EventFamilies::default(),
            finality: BTreeMap::new(),
            send_max: None,
            send_daily_max: None,
            refund_elsewhere_daily_max: None,
            checkout: Checkout::default(),
        }
    }
}

impl PspPolicies {
    /// Returns the finality policy on a chain: the PSP's tiers, raised to the minimum that the operator currently
    /// allows, or the operator's policy if the PSP has none.
    pub fn finality_on(&self, chain: Chain, configured: FinalityPolicy, least: FinalityPolicy) -> FinalityPolicy {
        self.finality.get(&chain).map_or(configured, |own| own.at_least(least))
    }

    /// Returns the limits of outbound transfers: the PSP's own, or those of the configuration.
    pub fn ceilings(&self, configured: Ceilings) -> Ceilings {
        Ceilings {
            send_max: self.send_max.unwrap_or(configured.send_max),
            send_daily_max: self.send_daily_max.unwrap_or(configured.send_daily_max),
            refund_elsewhere_daily_max: self
                .refund_elsewhere_daily_max
                .unwrap_or(configured.refund_elsewhere_daily_max),
        }
    }
}

/// Limits of outbound transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Limit of one payout, withdrawal, or transfer. A refund above it to another address than the payer's waits for
    /// approval.
    pub send_max: Amount,
    /// Limit of a PSP's payouts and withdrawals per token and UTC day, over all chains.
    pub send_daily_max: Amount,
    /// Limit of a PSP's refunds to other addresses than the payer's, per token and UTC day, over all chains. A refund
    /// above it waits for approval.
    pub refund_elsewhere_daily_max: Amount,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            send_max: SEND_MAX_DEFAULT,
            send_daily_max: SEND_DAILY_MAX_DEFAULT,
            refund_elsewhere_daily_max: REFUND_ELSEWHERE_DAILY_MAX_DEFAULT,
        }
    }
}

named! {
    /// Event families to send. `payment.*` and `payin.*` are two names for the same events.
    #[derive(Default)]
    EventFamilies, "both, payment, payin" {
        /// Both.
        #[default]
        Both = "both",
        /// `payment.*`.
        Payment = "payment",
        /// `payin.*`.
        Payin = "payin",
    }
}

impl EventFamilies {
    /// Returns true if `event` is sent. An event of the other family is omitted only if this family announces the same
    /// (`is_told`). An event with a name in only one family is always sent.
    pub fn send(self, event: EventName, is_told: impl Fn(EventName) -> bool) -> bool {
        let left_out = match self {
            Self::Both => return true,
            Self::Payment => "payin.",
            Self::Payin => "payment.",
        };
        !(event.as_str().starts_with(left_out) && counterpart(event).is_some_and(is_told))
    }
}

/// Returns the name of the same event in the other family, if any.
const fn counterpart(event: EventName) -> Option<EventName> {
    use EventName as Name;
    Some(match event {
        Name::PaymentConfirmed => Name::PayinConfirmed,
        Name::PaymentSettled => Name::PayinSettled,
        Name::PaymentMismatched => Name::PayinMismatched,
        Name::PaymentFailed => Name::PayinFailed,
        Name::PayinConfirmed => Name::PaymentConfirmed,
        Name::PayinSettled => Name::PaymentSettled,
        Name::PayinMismatched | Name::PayinUnderpaid => Name::PaymentMismatched,
        Name::PayinFailed => Name::PaymentFailed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use payferry_domain::Finality;

    use super::*;

    #[test]
    fn a_family_is_omitted_only_if_the_other_announces_the_same() {
        use EventName as Name;
        let sent = |families: EventFamilies, told: &[Name]| -> Vec<Name> {
            told.iter().copied().filter(|name| families.send(*name, |other| told.contains(&other))).collect()
        };
        let underpaid = [Name::PaymentMismatched, Name::PayinUnderpaid, Name::PayinMismatched];
        assert_eq!(sent(EventFamilies::Both, &underpaid), underpaid);
        assert_eq!(sent(EventFamilies::Payment, &underpaid), [Name::PaymentMismatched]);
        assert_eq!(sent(EventFamilies::Payin, &underpaid), [Name::PayinUnderpaid, Name::PayinMismatched]);
        for only_name in [Name::PayinSettlementFailed, Name::PaymentReorged, Name::PaymentMismatched, Name::RefundSent]
        {
            for families in EventFamilies::ALL {
                assert_eq!(sent(families, &[only_name]), [only_name], "{families:?}");
            }
        }
    }

    #[test]
    fn reads_settings_stored_before_newer_policies() {
        let before = r#"{"fee_bps":80,"tolerance":{"absolute":50000,"bps":0},"overpayment":"accept"}"#;
        let read: PspPolicies = serde_json::from_str(before).unwrap();
        assert_eq!((read.fee_bps.get(), read.event_families), (80, EventFamilies::Both));
        assert_eq!(read.overpayment_tolerance, OVERPAYMENT_TOLERANCE_DEFAULT);
        assert_eq!(read.ceilings(Ceilings::default()), Ceilings::default());
        let mut own = read.clone();
        own.finality.insert(Chain::Base, FinalityPolicy::sandbox());
        own.send_max = Some(Amount(1));
        let stored = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<PspPolicies>(&stored).unwrap(), own);
        assert_eq!(own.ceilings(Ceilings::default()).send_max, Amount(1));
    }

    #[test]
    fn own_tiers_apply_within_the_operator_limits() {
        let (configured, least) = (FinalityPolicy::sandbox(), FinalityPolicy::flat(Finality::Blocks(2)));
        let mut policies = PspPolicies::default();
        assert_eq!(policies.finality_on(Chain::Base, configured, least), configured);
        policies.finality.insert(Chain::Base, FinalityPolicy::flat(Finality::Blocks(1)));
        let raised = policies.finality_on(Chain::Base, configured, least);
        assert_eq!(raised.required(Amount(1)), Finality::Blocks(2), "raised to the minimum");
        let least = FinalityPolicy::flat(Finality::Blocks(1));
        assert_eq!(policies.finality_on(Chain::Base, configured, least), least);
    }
}
