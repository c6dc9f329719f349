//! What a PSP has decided, and what the operator has decided about it.

use std::collections::BTreeMap;

use payferry_domain::money::AMOUNT_MAX;
use payferry_domain::payment::{EventName, OverpaymentPolicy};
use payferry_domain::{Amount, Chain, FeeBps, FinalityPolicy, Tolerance};
use serde::{Deserialize, Serialize};

/// Transfers below this are ignored unless the PSP says otherwise: address poisoning is sent in such amounts.
pub const DUST_FLOOR_DEFAULT: Amount = Amount(1_000);
/// The highest dust floor: what is below is nobody's, so it must not be worth anything.
pub const DUST_FLOOR_MAX: Amount = Amount::from_tokens(1);
/// The most that one send moves unless the configuration says otherwise: as much as the largest payment, so that each can
/// be refunded whole.
pub const SEND_MAX_DEFAULT: Amount = AMOUNT_MAX;
/// The most that a PSP sends in a token on one UTC day, over all chains, unless the configuration says otherwise.
pub const SEND_DAILY_MAX_DEFAULT: Amount = Amount::from_tokens(5_000_000);

/// What a PSP has decided about its payments, and the operator about the PSP; stored as JSON in `psps.settings`. Missing
/// fields have these defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PspPolicies {
    /// The treasury's share of each settlement. The operator's to set.
    pub fee_bps: FeeBps,
    /// How much less than due still pays.
    pub tolerance: Tolerance,
    /// What happens with more than was due.
    pub overpayment: OverpaymentPolicy,
    /// Whether refunds may go to the sender when no address is given.
    pub refund_to_sender: bool,
    /// Whether every payment must name its customer.
    pub require_customer: bool,
    /// Transfers below this are ignored.
    pub dust_floor: Amount,
    /// Which of two names of one happening are sent.
    pub event_families: EventFamilies,
    /// What "final" means, where the PSP has tiers of its own.
    pub finality: BTreeMap<Chain, FinalityPolicy>,
    /// The most that one send moves, where the operator has said so for this PSP.
    pub send_max: Option<Amount>,
    /// The most that it sends in a token on one UTC day, where the operator has said so for this PSP.
    pub send_daily_max: Option<Amount>,
}

impl Default for PspPolicies {
    fn default() -> Self {
        Self {
            fee_bps: FeeBps::DEFAULT,
            tolerance: Tolerance::default(),
            overpayment: OverpaymentPolicy::default(),
            refund_to_sender: false,
            require_customer: false,
            dust_floor: DUST_FLOOR_DEFAULT,
            event_families: EventFamilies::default(),
            finality: BTreeMap::new(),
            send_max: None,
            send_daily_max: None,
        }
    }
}

impl PspPolicies {
    /// What "final" means on a chain: the PSP's tiers, raised to the least that the operator allows at the moment; the
    /// operator's where it has none.
    pub fn finality_on(&self, chain: Chain, configured: FinalityPolicy, least: FinalityPolicy) -> FinalityPolicy {
        self.finality.get(&chain).map_or(configured, |own| own.at_least(least))
    }

    /// The ceilings of its sends: its own, or the configuration's.
    pub fn ceilings(&self, configured: Ceilings) -> Ceilings {
        Ceilings {
            send_max: self.send_max.unwrap_or(configured.send_max),
            send_daily_max: self.send_daily_max.unwrap_or(configured.send_daily_max),
        }
    }
}

/// How much may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// By one send: refund, payout, withdrawal or transfer.
    pub send_max: Amount,
    /// By a PSP in a token on one UTC day, over all chains.
    pub send_daily_max: Amount,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self { send_max: SEND_MAX_DEFAULT, send_daily_max: SEND_DAILY_MAX_DEFAULT }
    }
}

/// `payment.*` and `payin.*` are two names of one happening; which of them are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventFamilies {
    /// Both.
    #[default]
    Both,
    /// `payment.*`.
    Payment,
    /// `payin.*`.
    Payin,
}

impl EventFamilies {
    /// Every choice, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::Both, Self::Payment, Self::Payin];

    /// The name in requests and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Payment => "payment",
            Self::Payin => "payin",
        }
    }

    /// Whether `event` is sent. A name of the other family is left out only where this family tells the same (`is_told`):
    /// what one family alone has a name for is always sent.
    pub fn send(self, event: EventName, is_told: impl Fn(EventName) -> bool) -> bool {
        let left_out = match self {
            Self::Both => return true,
            Self::Payment => "payin.",
            Self::Payin => "payment.",
        };
        !(event.as_str().starts_with(left_out) && counterpart(event).is_some_and(is_told))
    }
}

impl std::str::FromStr for EventFamilies {
    type Err = payferry_domain::money::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "both, payment, payin";
        Self::ALL.into_iter().find(|choice| choice.as_str() == text).ok_or(Self::Err { expected })
    }
}

/// The other family's name of the same happening, if it has one.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use payferry_domain::Finality;

    use super::*;

    #[test]
    fn a_family_is_left_out_only_where_the_other_tells_the_same() {
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
    fn what_was_stored_before_there_were_more_policies_is_read() {
        let before = r#"{"fee_bps":80,"tolerance":{"absolute":50000,"bps":0},"overpayment":"accept"}"#;
        let read: PspPolicies = serde_json::from_str(before).unwrap();
        assert_eq!((read.fee_bps.get(), read.event_families), (80, EventFamilies::Both));
        assert_eq!(read.ceilings(Ceilings::default()), Ceilings::default());
        let mut own = read.clone();
        own.finality.insert(Chain::Base, FinalityPolicy::sandbox());
        own.send_max = Some(Amount(1));
        let stored = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<PspPolicies>(&stored).unwrap(), own);
        assert_eq!(own.ceilings(Ceilings::default()).send_max, Amount(1));
    }

    #[test]
    fn own_tiers_hold_as_far_as_the_operator_allows() {
        let (configured, least) = (FinalityPolicy::sandbox(), FinalityPolicy::flat(Finality::Blocks(2)));
        let mut policies = PspPolicies::default();
        assert_eq!(policies.finality_on(Chain::Base, configured, least), configured);
        policies.finality.insert(Chain::Base, FinalityPolicy::flat(Finality::Blocks(1)));
        let raised = policies.finality_on(Chain::Base, configured, least);
        assert_eq!(raised.required(Amount(1)), Finality::Blocks(2), "raised to the least");
        let least = FinalityPolicy::flat(Finality::Blocks(1));
        assert_eq!(policies.finality_on(Chain::Base, configured, least), least);
    }
}
