//! Behaviour of payers, the mixture of behaviours, and the intended payments of the load.

use std::fmt;
use std::str::FromStr;

use super::outbound::OutboundKind;
use crate::psp::{AMOUNT_STEP_UNITS, EXPIRES_SECS, PaymentTerms};
use crate::wire::{Amount, Chain, Token};
use serde_with::SerializeDisplay;

/// The whole, in percent.
const WHOLE: u8 = 100;
/// Difference of an underpayment or overpayment.
pub const DIFFERENCE: Amount = Amount::from_tokens(1);
/// Shortest time until expiry that the interface allows.
pub const EXPIRES_SOON_SECS: u32 = 60;
/// Smallest amount of a payout or withdrawal. Each payment adds as many base units as its amount has steps.
const OUTBOUND_LEAST: Amount = Amount::from_tokens(1);
/// Odd factor that spreads consecutive numbers over all values.
const SPREAD: u32 = 0x9e37_79b9;
/// Time until expiry of held payments: the longest that the interface allows.
pub const EXPIRES_HELD_SECS: u32 = 86_400;

crate::names! {
    /// Behaviour of the payer of a payment.
    Behaviour, "a behaviour" {
        /// Pays the amount due.
        Exact = "exact",
        /// Pays too little.
        Under = "under",
        /// Pays too much.
        Over = "over",
        /// Pays after the payment has expired.
        Late = "late",
        /// Does not pay. The payment expires.
        Never = "never",
        /// Signs an authorization of the amount due, which the service collects.
        Authorized = "authorized",
        /// Pays the amount due. The PSP refunds all or half of it after the settlement.
        Refunded = "refunded",
        /// Pays the amount due. The PSP pays a part of it out to a customer after the settlement.
        PaidOut = "paid_out",
        /// Pays the amount due. The PSP withdraws a part of it after the settlement.
        Withdrawn = "withdrawn",
        /// As `PaidOut`, to a customer of its own: the PSP registers one when the payment is due, finds the customer by search
        /// and has the customer verified.
        Customer = "customer",
        /// Does not pay. The payment stays live during the load.
        Held = "held",
    }
}

impl Behaviour {
    /// Behaviours of a mixture.
    pub const MIXED: [Self; 10] = [
        Self::Exact,
        Self::Under,
        Self::Over,
        Self::Late,
        Self::Never,
        Self::Authorized,
        Self::Refunded,
        Self::PaidOut,
        Self::Withdrawn,
        Self::Customer,
    ];

    /// Returns true if the payment is meant to expire during the run.
    pub const fn expires(self) -> bool {
        matches!(self, Self::Late | Self::Never)
    }

    /// Returns the outbound transfer that the PSP requests after the settlement, if any.
    pub const fn outbound(self) -> Option<OutboundKind> {
        match self {
            Self::Refunded => Some(OutboundKind::Refund),
            Self::PaidOut | Self::Customer => Some(OutboundKind::Payout),
            Self::Withdrawn => Some(OutboundKind::Withdrawal),
            _ => None,
        }
    }
}

/// Percentages of the behaviours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay)]
pub struct Mix {
    percent: [u8; Behaviour::MIXED.len()],
}

impl Mix {
    /// Returns the percentage of one behaviour.
    pub fn percent(&self, behaviour: Behaviour) -> u8 {
        self.percent.get(behaviour as usize).copied().unwrap_or(0)
    }

    /// Returns the behaviours of a hundred payments, evenly interleaved.
    pub fn pattern(&self) -> Vec<Behaviour> {
        // Each behaviour gains its share at every step. The one with the largest debt is next.
        let mut owed = [0_i32; Behaviour::MIXED.len()];
        let mut pattern = Vec::with_capacity(usize::from(WHOLE));
        for _ in 0..WHOLE {
            let mut next = 0;
            for index in 0..owed.len() {
                owed[index] += i32::from(self.percent[index]);
                if owed[index] > owed[next] {
                    next = index;
                }
            }
            owed[next] -= i32::from(WHOLE);
            pattern.push(Behaviour::MIXED[next]);
        }
        pattern
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `exact=90,under=4,over=3,late=2,never=1`. Absent behaviours have 0 percent. The sum must be 100.
    fn from_str(text: &str) -> Result<Self, String> {
        let names = Behaviour::MIXED.map(Behaviour::as_str).join(", ");
        let mut percent = [None; Behaviour::MIXED.len()];
        for part in text.split(',') {
            let (name, share) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not written as name=percent, such as exact=90"))?;
            let index = Behaviour::MIXED.iter().position(|known| known.as_str() == name.trim());
            let index = index.ok_or_else(|| format!("`{}` is unknown; known are {names}", name.trim()))?;
            let share = share.trim().parse::<u8>().ok().filter(|share| *share <= WHOLE);
            let share = share.ok_or_else(|| format!("`{part}` has no whole percentage from 0 to 100"))?;
            if percent[index].replace(share).is_some() {
                return Err(format!("`{}` is named twice", name.trim()));
            }
        }
        let percent = percent.map(Option::unwrap_or_default);
        let sum: u32 = percent.iter().map(|share| u32::from(*share)).sum();
        if sum != u32::from(WHOLE) {
            return Err(format!("the percentages add up to {sum}, not to 100"));
        }
        Ok(Self { percent })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = Behaviour::MIXED
            .iter()
            .filter(|behaviour| self.percent(**behaviour) > 0)
            .map(|behaviour| format!("{}={}", behaviour.as_str(), self.percent(*behaviour)))
            .collect();
        f.write_str(&parts.join(","))
    }
}

/// Intended payment of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// Behaviour of its payer.
    pub behaviour: Behaviour,
    /// Chain.
    pub chain: Chain,
    /// Token.
    pub token: Token,
    /// Amount due.
    pub amount: Amount,
}

impl Intent {
    /// Returns payment `number`: spread over all chains and tokens, each with a different amount. Authorizations are in
    /// USDC, because the other token does not support them.
    pub fn nth(number: u32, behaviour: Behaviour) -> Self {
        let PaymentTerms { chain, token, amount, .. } = PaymentTerms::nth(number);
        let token = if behaviour == Behaviour::Authorized { Token::Usdc } else { token };
        Self { behaviour, chain, token, amount }
    }

    /// Returns this payment with a chain and a token among those that the service has (at least one).
    pub fn among(self, assets: &[(Chain, Token)], number: u32) -> Self {
        let is_in = |asset: &&(Chain, Token)| self.behaviour != Behaviour::Authorized || asset.1 == Token::Usdc;
        if assets.contains(&(self.chain, self.token)) {
            return self;
        }
        let suitable: Vec<_> = assets.iter().filter(is_in).collect();
        let chosen = suitable.get(number as usize % suitable.len().max(1)).copied();
        chosen.map_or(self, |(chain, token)| Self { chain: *chain, token: *token, ..self })
    }

    /// Returns the terms of its initiation.
    pub const fn terms(&self) -> PaymentTerms {
        let Self { chain, token, amount, .. } = *self;
        PaymentTerms { chain, token, amount, expires_secs: self.expires_secs() }
    }

    /// Returns the amount that its payer sends, if any.
    pub fn paid_amount(&self) -> Option<Amount> {
        match self.behaviour {
            Behaviour::Exact
            | Behaviour::Late
            | Behaviour::Authorized
            | Behaviour::Refunded
            | Behaviour::PaidOut
            | Behaviour::Withdrawn
            | Behaviour::Customer => Some(self.amount),
            Behaviour::Under => Some(self.amount.saturating_sub(DIFFERENCE)),
            Behaviour::Over => Some(self.amount.saturating_add(DIFFERENCE)),
            Behaviour::Never | Behaviour::Held => None,
        }
    }

    /// Returns the time until it expires, in seconds.
    pub const fn expires_secs(&self) -> u32 {
        match self.behaviour {
            Behaviour::Late | Behaviour::Never => EXPIRES_SOON_SECS,
            Behaviour::Held => EXPIRES_HELD_SECS,
            Behaviour::Exact
            | Behaviour::Under
            | Behaviour::Over
            | Behaviour::Authorized
            | Behaviour::Refunded
            | Behaviour::PaidOut
            | Behaviour::Withdrawn
            | Behaviour::Customer => EXPIRES_SECS,
        }
    }

    /// Returns the amount that leaves the PSP's vault again, if any. The amounts of the payments decide which refunds are
    /// in part, so that they do not follow the pattern of the mixture.
    pub fn outbound_amount(&self) -> Option<Amount> {
        let Amount(units) = self.amount;
        let number = u32::try_from(units / AMOUNT_STEP_UNITS).unwrap_or(0);
        self.behaviour.outbound().map(|kind| match kind {
            OutboundKind::Refund if number.wrapping_mul(SPREAD) >> 31 == 0 => self.amount,
            OutboundKind::Refund => Amount(units / 2),
            // Far below the daily limit, and different for each payment.
            OutboundKind::Payout | OutboundKind::Withdrawal => OUTBOUND_LEAST.saturating_add(Amount(i64::from(number))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_mixtures() {
        let mix: Mix = "exact=90,under=4,over=3,late=2,never=1".parse().unwrap();
        assert_eq!(mix.percent, [90, 4, 3, 2, 1, 0, 0, 0, 0, 0]);
        assert_eq!(mix.to_string(), "exact=90,under=4,over=3,late=2,never=1");
        assert_eq!("never=40, exact=60".parse::<Mix>().unwrap().to_string(), "exact=60,never=40");
        assert_eq!("authorized=50,exact=50".parse::<Mix>().unwrap().to_string(), "exact=50,authorized=50");
        for (bad, says) in [
            ("exact=90", "add up to 90"),
            ("exact=90,never=20", "add up to 110"),
            ("exact=50,exact=50", "twice"),
            (
                "exact=90,early=10",
                "`early` is unknown; known are exact, under, over, late, never, authorized, refunded, paid_out, withdrawn, customer",
            ),
            ("exact=90,held=10", "unknown"),
            ("exact=101", "whole percentage"),
            ("exact=-1", "whole percentage"),
            ("exact", "name=percent"),
            ("", "name=percent"),
        ] {
            let refused = bad.parse::<Mix>().unwrap_err();
            assert!(refused.contains(says), "{bad}: {refused}");
        }
    }

    #[test]
    fn a_pattern_is_evenly_interleaved() {
        let mix: Mix =
            "exact=49,under=20,over=10,late=9,never=1,authorized=4,refunded=3,paid_out=2,withdrawn=1,customer=1"
                .parse()
                .unwrap();
        let pattern = mix.pattern();
        for behaviour in Behaviour::MIXED {
            let count = pattern.iter().filter(|one| **one == behaviour).count();
            assert_eq!(count, usize::from(mix.percent(behaviour)), "{behaviour:?}");
        }
        let first_half = pattern[..50].iter().filter(|one| **one == Behaviour::Exact).count();
        assert!((23..=27).contains(&first_half), "{first_half}");
        assert!(["exact=100", "never=100"].iter().all(|mix| mix.parse::<Mix>().unwrap().pattern().len() == 100));
    }

    #[test]
    fn refunds_are_complete_or_in_part_in_every_pattern() {
        for step in 1..7 {
            let refunded = (0..100).map(|place| Intent::nth(place * step, Behaviour::Refunded));
            let complete = refunded.filter(|intent| intent.outbound_amount() == Some(intent.amount)).count();
            assert!((30..=70).contains(&complete), "{step}: {complete}");
        }
        assert_eq!(Intent::nth(0, Behaviour::Exact).outbound_amount(), None);
    }

    #[test]
    fn payers_pay_by_their_behaviour() {
        let under = Intent::nth(0, Behaviour::Under);
        assert_eq!(
            (under.amount.to_string(), under.paid_amount().unwrap().to_string()),
            ("5.00".into(), "4.00".into())
        );
        assert_eq!(Intent::nth(3, Behaviour::Never).paid_amount(), None);
        let only = [(Chain::Polygon, Token::Usdt), (Chain::Polygon, Token::Usdc)];
        let there: Vec<_> = (0..4).map(|number| Intent::nth(number, Behaviour::Exact).among(&only, number)).collect();
        assert!(there.iter().all(|intent| only.contains(&(intent.chain, intent.token))), "{there:?}");
        let signed = Intent::nth(0, Behaviour::Authorized).among(&only, 0);
        assert_eq!((signed.chain, signed.token), only[1]);
        let [by_transfer, signed] = [Behaviour::Exact, Behaviour::Authorized].map(|payer| Intent::nth(3, payer));
        assert_eq!((by_transfer.token, signed.token), (Token::Usdt, Token::Usdc));
        assert_eq!(signed.paid_amount(), by_transfer.paid_amount());
    }
}
