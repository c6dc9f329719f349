//! Comparison of the service's ledger and balances with the payments of the run.
//!
//! Postings are compared for each payment, so that postings of others do not matter and a difference names its payment.
//! A balance names no payment: its difference is assigned to the payment whose share is equal to it, if there is
//! exactly one. Pure.

use std::collections::HashMap;

use crate::wire::{Amount, Chain, PaymentId, Token};
use alloy::primitives::Address;

use crate::ledger::{LedgerEntry, LedgerReading};

/// Largest number of payments that are named if a balance differs by their share.
const SUSPECTS_MAX: usize = 3;

/// Amounts that the ledger has, or must have, for one payment, in base units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) received: i64,
    pub(super) psp: i64,
    pub(super) treasury: i64,
}

/// A payment of the run, as it was read back.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedPostings {
    pub(super) number: u32,
    pub(super) id: PaymentId,
    pub(super) asset: (Chain, Token),
    /// Expected sums of its postings.
    pub(super) posted: Posted,
    /// Largest sums, if the payment is late and goes on; otherwise the same.
    pub(super) most: Posted,
}

/// Postings since the run began.
#[derive(Debug, Default)]
pub(super) struct Postings {
    of_payments: HashMap<PaymentId, ((Chain, Address), Posted)>,
    /// Increase of the PSP's vaults by all postings, of any subject.
    vaults: HashMap<(Chain, Address), i64>,
    of_run: u64,
    /// Kind and amount of each posting of an outbound transfer, by its id.
    outbound: HashMap<String, Vec<(String, Amount)>>,
}

/// An outbound transfer of the run that the service accepted.
#[derive(Debug, Clone)]
pub(super) struct ExpectedOutbound {
    pub(super) number: u32,
    pub(super) id: String,
    pub(super) amount: Amount,
    /// True if it may still be on its way.
    pub(super) is_late: bool,
}

/// Postings of an outbound transfer from the vault.
const OUTBOUND_POSTINGS: [&str; 2] = ["reserved", "sent"];

impl Postings {
    /// Makes empty sums for payments in these tokens, and for outbound transfers.
    pub(super) fn of(
        payments: impl Iterator<Item = (PaymentId, (Chain, Address))>,
        outbound: &[ExpectedOutbound],
    ) -> Self {
        let of_payments = payments.map(|(id, asset)| (id, (asset, Posted::default()))).collect();
        let outbound = outbound.iter().map(|outbound| (outbound.id.clone(), Vec::new())).collect();
        Self { of_payments, outbound, ..Self::default() }
    }

    pub(super) fn add(&mut self, entry: &LedgerEntry) {
        let asset = (entry.chain, entry.token_address);
        let vault = self.vaults.entry(asset).or_default();
        *vault = vault.saturating_add(entry.change_of(&["psp", "in_flight"]));
        if let Some(posted) = self.outbound.get_mut(&entry.reference) {
            posted.push((entry.kind.clone(), entry.amount));
        }
        let of_payment = entry.subject.parse().ok().and_then(|id: PaymentId| self.of_payments.get_mut(&id));
        let Some((of_asset, posted)) = of_payment else { return };
        self.of_run += 1;
        if *of_asset != asset {
            // A posting of another token does not count for the payment, so its amount is missing.
            return;
        }
        let (sum, account) = match entry.kind.as_str() {
            "received" | "orphaned" => (&mut posted.received, "payment"),
            "settled" | "settlement_reversed" => (&mut posted.psp, "psp"),
            "fee" | "fee_reversed" => (&mut posted.treasury, "treasury"),
            _ => return,
        };
        *sum = sum.saturating_add(entry.change_of(&[account]));
    }
}

/// Increase of one balance, and the increase according to the ledger, in base units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Increase {
    pub(super) balance: i64,
    pub(super) ledger: i64,
}

/// Results of the comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Faults of payments, by their number in the run.
    pub(super) faults: Vec<(u32, String)>,
    /// Faults that cannot be assigned to one payment.
    pub(super) unassigned: Vec<String>,
    pub(super) balances: HashMap<(Chain, Token), Increase>,
    /// Omitted comparisons, with the reasons.
    pub(super) notes: Vec<String>,
}

/// Properties of the service that the comparison relies on.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedgerTraits {
    pub(super) has_ledger: bool,
    /// Only this run moves money.
    pub(super) is_alone: bool,
}

/// Compares postings and balances with the expected ones. `contracts` are those of the tokens.
pub(super) fn compare(
    owed: &[ExpectedPostings],
    postings: &Postings,
    [before, now]: [&LedgerReading; 2],
    contracts: &HashMap<(Chain, Token), Address>,
    traits: LedgerTraits,
) -> Compared {
    let mut compared = Compared::default();
    if postings.of_run == 0 && owed.iter().any(|owed| owed.posted != Posted::default()) {
        let none = "The service's ledger has no entry of this run: ledger and balances were not compared.";
        let reported = if traits.has_ledger { &mut compared.unassigned } else { &mut compared.notes };
        reported.push(none.to_owned());
        return compared;
    }
    for ExpectedPostings { number, id, posted: wanted, most, .. } in owed {
        let found = postings.of_payments.get(id).map_or_else(Posted::default, |(_, posted)| *posted);
        for (what, found, wanted, most) in [
            ("as received", found.received, wanted.received, most.received),
            ("to the PSP", found.psp, wanted.psp, most.psp),
            ("to the treasury", found.treasury, wanted.treasury, most.treasury),
        ] {
            if found != wanted && found != most {
                let fault = format!("the ledger has {} {what}, not {}", Amount(found), Amount(wanted));
                compared.faults.push((*number, fault));
            }
        }
    }
    let (Some(before), Some(now)) = (&before.balances, &now.balances) else {
        let restless = "of this PSP moved all the time: its balances were not compared.";
        if traits.is_alone {
            compared.unassigned.push(format!("No payer pays any more, but money {restless}"));
        } else {
            compared.notes.push(format!("Money {restless}"));
        }
        return compared;
    };
    for (asset, contract) in contracts {
        let of = |balances: &HashMap<(Chain, Token), i64>| balances.get(asset).copied().unwrap_or_default();
        let ledger = postings.vaults.get(&(asset.0, *contract)).copied().unwrap_or_default();
        let grew = Increase { balance: of(now).saturating_sub(of(before)), ledger };
        compared.balances.insert(*asset, grew);
        if grew.balance != grew.ledger {
            let (token, chain, balance, ledger) = (asset.1, asset.0, Amount(grew.balance), Amount(grew.ledger));
            let differs = format!("the balance of {token} on {chain} grew by {balance}, its postings sum to {ledger}");
            assign(&mut compared, owed, *asset, grew, differs);
        }
    }
    compared
}

/// Compares the postings of outbound transfers: each must be reserved and sent once. Returns the faults of their payments.
pub(super) fn compare_outbound(owed: &[ExpectedOutbound], postings: &Postings) -> Vec<(u32, String)> {
    if postings.of_run == 0 {
        // The ledger was not compared.
        return Vec::new();
    }
    let fault = |ExpectedOutbound { number, id, amount, is_late }: &ExpectedOutbound| {
        let wanted = OUTBOUND_POSTINGS.map(|kind| (kind.to_owned(), *amount));
        let found = postings.outbound.get(id).map_or(&[][..], Vec::as_slice);
        let is_behind = *is_late && wanted.starts_with(found);
        (found != wanted && !is_behind).then(|| {
            let words = |posted: &[(String, Amount)]| {
                posted.iter().map(|(kind, amount)| format!("{kind} {amount}")).collect::<Vec<_>>().join(", ")
            };
            (*number, format!("the ledger has `{}` of {id}, not `{}`", words(found), words(&wanted)))
        })
    };
    owed.iter().filter_map(fault).collect()
}

/// Assigns a difference to the payment whose share is equal to it, or names the candidates.
fn assign(compared: &mut Compared, owed: &[ExpectedPostings], asset: (Chain, Token), grew: Increase, differs: String) {
    let difference = grew.balance.saturating_sub(grew.ledger).saturating_abs();
    let mut suspects = owed.iter().filter(|owed| owed.asset == asset && owed.posted.psp == difference);
    let named: Vec<&ExpectedPostings> = suspects.by_ref().take(SUSPECTS_MAX).collect();
    match named.as_slice() {
        [] => compared.unassigned.push(differs),
        [one] => compared.faults.push((one.number, format!("{differs}: the difference is its share"))),
        several => {
            let ids: Vec<String> = several.iter().map(|owed| owed.id.to_string()).collect();
            let more = if suspects.next().is_some() { " and others" } else { "" };
            compared.unassigned.push(format!("{differs}: the difference is the share of {}{more}", ids.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASSET: (Chain, Token) = (Chain::Base, Token::Usdc);
    const CONTRACT: Address = Address::repeat_byte(7);

    /// A sandbox that others use and that has no ledger.
    const FOREIGN: LedgerTraits = LedgerTraits { has_ledger: false, is_alone: false };

    fn owed(number: u32, psp: i64) -> ExpectedPostings {
        let posted = Posted { received: psp + 5, psp, treasury: 5 };
        ExpectedPostings { number, id: PaymentId::generate(), asset: ASSET, posted, most: posted }
    }

    fn entry(subject: &str, kind: &str, accounts: [&str; 2], units: i64) -> LedgerEntry {
        let entry = json!({
            "position": 1, "subject": subject, "kind": kind, "debit": accounts[0], "credit": accounts[1],
            "amount": Amount(units).to_string(), "chain": "base", "token_address": CONTRACT.to_string(),
        });
        serde_json::from_value(entry).unwrap()
    }

    /// Returns the postings of settled payments.
    fn entries(owed: &[ExpectedPostings]) -> Vec<LedgerEntry> {
        let of_one = |owed: &ExpectedPostings| {
            let (id, Posted { received, psp, treasury }) = (owed.id.to_string(), owed.posted);
            [
                entry(&id, "received", ["external", "payment"], received),
                entry(&id, "settled", ["payment", "psp"], psp),
                entry(&id, "fee", ["payment", "treasury"], treasury),
            ]
        };
        owed.iter().flat_map(of_one).collect()
    }

    fn stand(units: i64) -> LedgerReading {
        LedgerReading { balances: Some([(ASSET, units)].into()), ..LedgerReading::default() }
    }

    /// Compares with a balance that increased by `grew`.
    fn compared(owed: &[ExpectedPostings], entries: &[LedgerEntry], grew: i64) -> Compared {
        let mut postings = Postings::of(owed.iter().map(|owed| (owed.id, (ASSET.0, CONTRACT))), &[]);
        for entry in entries {
            postings.add(entry);
        }
        let stands = [&stand(1_000), &stand(1_000 + grew)];
        compare(owed, &postings, stands, &[(ASSET, CONTRACT)].into(), FOREIGN)
    }

    #[test]
    fn correct_ledger_has_no_fault_despite_foreign_postings() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        // Another payment, a payout of the same PSP, and a settlement that was reversed and posted again.
        entries.push(entry("pay_other", "settled", ["payment", "psp"], 50));
        entries.push(entry("po_other", "reserved", ["psp", "in_flight"], 30));
        entries.push(entry("po_other", "sent", ["in_flight", "external"], 30));
        let id = owed[0].id.to_string();
        entries.push(entry(&id, "settlement_reversed", ["psp", "payment"], 100));
        entries.push(entry(&id, "settled", ["payment", "psp"], 100));
        let compared = compared(&owed, &entries, 100 + 200 + 50 - 30);
        assert_eq!((compared.faults, compared.unassigned, compared.notes), (vec![], vec![], vec![]));
        assert_eq!(compared.balances[&ASSET], Increase { balance: 320, ledger: 320 });
    }

    #[test]
    fn an_outbound_transfer_is_posted_once() {
        let id = "rf_1".to_owned();
        let order = |is_late| [ExpectedOutbound { number: 7, id: id.clone(), amount: Amount(30), is_late }];
        let [reserved, sent] = [(["psp", "in_flight"], "reserved"), (["in_flight", "external"], "sent")]
            .map(|(accounts, kind)| LedgerEntry { reference: id.clone(), ..entry("pay_1", kind, accounts, 30) });
        for (entries, is_late, found) in [
            (vec![&reserved, &sent], false, None),
            (vec![&reserved], true, None),
            (vec![&reserved], false, Some("`reserved 0.00003`")),
            (vec![&reserved, &sent, &sent], true, Some("`reserved 0.00003, sent 0.00003, sent 0.00003`")),
        ] {
            let mut postings = Postings { of_run: 1, ..Postings::of(std::iter::empty(), &order(is_late)) };
            for entry in entries {
                postings.add(entry);
            }
            let faults = compare_outbound(&order(is_late), &postings);
            let wanted = |found| (7, format!("the ledger has {found} of rf_1, not `reserved 0.00003, sent 0.00003`"));
            assert_eq!(faults, found.map(wanted).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_duplicate_posting_is_a_fault_of_its_payment() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        entries.push(entries[4].clone());
        let compared = compared(&owed, &entries, 500);
        let wanted = "the ledger has 0.0004 to the PSP, not 0.0002".to_owned();
        assert_eq!((compared.faults, compared.unassigned), (vec![(1, wanted)], vec![]));
    }

    #[test]
    fn missing_postings_are_faults_of_their_payments() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        entries[0].token_address = Address::repeat_byte(8);
        entries.remove(5);
        let compared = compared(&owed, &entries, 300);
        let wanted = [
            (0, "the ledger has 0.00 as received, not 0.000105".to_owned()),
            (1, "the ledger has 0.00 to the treasury, not 0.000005".to_owned()),
        ];
        assert_eq!((compared.faults.as_slice(), compared.unassigned), (wanted.as_slice(), vec![]));
    }

    #[test]
    fn a_wrong_balance_is_assigned_to_the_payment_with_that_share() {
        let owed = [owed(0, 100), owed(1, 200), owed(2, 300), owed(3, 300)];
        let entries = entries(&owed);
        for (grew, number) in [(900 + 100, 0), (900 - 200, 1)] {
            let compared = compared(&owed, &entries, grew);
            let [(found, fault)] = compared.faults.as_slice() else { panic!("{compared:?}") };
            assert_eq!(*found, number);
            assert!(fault.starts_with("the balance of USDC on base grew by 0.00"), "{fault}");
            assert!(fault.ends_with("its postings sum to 0.0009: the difference is its share"), "{fault}");
            assert!(compared.unassigned.is_empty(), "{compared:?}");
        }
        // Two payments are candidates.
        let either = compared(&owed, &entries, 900 + 300);
        assert!(either.faults.is_empty(), "{either:?}");
        assert!(either.unassigned[0].ends_with(&format!("the share of {}, {}", owed[2].id, owed[3].id)), "{either:?}");
        // No payment is a candidate.
        let nobody = compared(&owed, &entries, 900 + 1);
        assert_eq!(nobody.unassigned, ["the balance of USDC on base grew by 0.000901, its postings sum to 0.0009"]);
    }

    #[test]
    fn reports_omitted_comparisons() {
        let owed = [owed(0, 100)];
        let none = compared(&owed, &[], 0);
        assert!(none.faults.is_empty() && none.unassigned.is_empty() && none.balances.is_empty(), "{none:?}");
        assert!(none.notes[0].contains("no entry of this run"), "{none:?}");
        // No payments and no postings.
        let nothing = compared(&[], &[], 0);
        assert!(nothing.notes.is_empty() && nothing.balances.len() == 1, "{nothing:?}");
        let restless = nothing_compared(&[], FOREIGN);
        assert!(restless.notes[0].contains("its balances were not compared"), "{restless:?}");
        assert!(restless.unassigned.is_empty(), "{restless:?}");
    }

    /// Compares without postings, and with balances that changed all the time.
    fn nothing_compared(owed: &[ExpectedPostings], traits: LedgerTraits) -> Compared {
        let contracts = [(ASSET, CONTRACT)].into();
        compare(owed, &Postings::default(), [&stand(0), &LedgerReading::default()], &contracts, traits)
    }

    #[test]
    fn a_missing_ledger_and_moving_balances_are_faults() {
        let lost = nothing_compared(&[owed(0, 100)], LedgerTraits { has_ledger: true, is_alone: false });
        assert!(lost.notes.is_empty() && lost.unassigned[0].contains("no entry of this run"), "{lost:?}");
        let restless = nothing_compared(&[], LedgerTraits { has_ledger: true, is_alone: true });
        assert!(restless.notes.is_empty() && restless.unassigned[0].contains("No payer pays any more"), "{restless:?}");
    }
}
