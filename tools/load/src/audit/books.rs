//! The service's books, held against the payments of the run: what each payment's postings give, and by how much the PSP's
//! balances grew.
//!
//! Payments are compared one by one, so that nothing that somebody else posts meanwhile matters, and what differs has a name.
//! A balance has none: what it has too much or too little of is laid to the one payment whose share it is, if it is one's.
//! Pure.

use std::collections::HashMap;

use alloy::primitives::Address;
use payferry_testkit::wire::{Amount, Chain, PaymentId, Token};

use payferry_testkit::ledger::{Entry, LedgerReading};

/// Payments that are named where a balance differs by just their share.
const SUSPECTS_MAX: usize = 3;

/// What the ledger gives of one payment, or what it must give, in base units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Posted {
    /// Received from outside.
    pub(super) received: i64,
    /// Of its settlement, to the PSP.
    pub(super) psp: i64,
    /// Of its settlement, to the treasury.
    pub(super) treasury: i64,
}

/// A payment of the run, as it was read back.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedPostings {
    /// In the book.
    pub(super) number: u32,
    pub(super) id: PaymentId,
    pub(super) asset: (Chain, Token),
    /// What its postings must give.
    pub(super) posted: Posted,
}

/// The postings since the run began.
#[derive(Debug, Default)]
pub(super) struct Postings {
    of_payments: HashMap<PaymentId, ((Chain, Address), Posted)>,
    /// What the PSP's vaults gained by all of them, whomever they are about.
    vaults: HashMap<(Chain, Address), i64>,
    of_run: u64,
}

impl Postings {
    /// None yet, of payments in these tokens.
    pub(super) fn of(payments: impl Iterator<Item = (PaymentId, (Chain, Address))>) -> Self {
        let of_payments = payments.map(|(id, asset)| (id, (asset, Posted::default()))).collect();
        Self { of_payments, ..Self::default() }
    }

    /// Adds one.
    pub(super) fn add(&mut self, entry: &Entry) {
        let asset = (entry.chain, entry.token_address);
        let vault = self.vaults.entry(asset).or_default();
        *vault = vault.saturating_add(entry.change_of(&["psp", "in_flight"]));
        let of_payment = entry.subject.parse().ok().and_then(|id: PaymentId| self.of_payments.get_mut(&id));
        let Some((of_asset, posted)) = of_payment else { return };
        self.of_run += 1;
        if *of_asset != asset {
            // Of another token: it is not what the payment needs, and will be missed.
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

/// What one balance grew by, and what the ledger says of it, in base units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grew {
    pub(super) balance: i64,
    pub(super) ledger: i64,
}

/// What came of the comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// What is wrong with payments, by their number in the book.
    pub(super) faults: Vec<(u32, String)>,
    /// What is wrong and cannot be laid to one payment.
    pub(super) unassigned: Vec<String>,
    /// How the balances grew.
    pub(super) balances: HashMap<(Chain, Token), Grew>,
    /// What was not compared, and why.
    pub(super) notes: Vec<String>,
}

/// What can be asked of the service's books.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeper {
    /// It keeps a ledger.
    pub(super) has_ledger: bool,
    /// Nobody but this run moves any money there.
    pub(super) is_alone: bool,
}

/// Holds the postings and the balances against what is owed. `contracts` are those of the tokens.
pub(super) fn compare(
    owed: &[ExpectedPostings],
    postings: &Postings,
    [before, now]: [&LedgerReading; 2],
    contracts: &HashMap<(Chain, Token), Address>,
    keeper: Keeper,
) -> Compared {
    let mut compared = Compared::default();
    if postings.of_run == 0 && owed.iter().any(|owed| owed.posted != Posted::default()) {
        let none = "The service's ledger has not one entry of this run: ledger and balances were not compared.";
        let told = if keeper.has_ledger { &mut compared.unassigned } else { &mut compared.notes };
        told.push(none.to_owned());
        return compared;
    }
    for ExpectedPostings { number, id, posted: wanted, .. } in owed {
        let found = postings.of_payments.get(id).map_or_else(Posted::default, |(_, posted)| *posted);
        for (what, found, wanted) in [
            ("as received", found.received, wanted.received),
            ("to the PSP", found.psp, wanted.psp),
            ("to the treasury", found.treasury, wanted.treasury),
        ] {
            if found != wanted {
                let fault = format!("the ledger has {} of it {what}, not {}", Amount(found), Amount(wanted));
                compared.faults.push((*number, fault));
            }
        }
    }
    let (Some(before), Some(now)) = (&before.balances, &now.balances) else {
        let restless = "of this PSP was moved all the time: its balances were not compared.";
        if keeper.is_alone {
            compared.unassigned.push(format!("Nobody pays any more, and money {restless}"));
        } else {
            compared.notes.push(format!("Money {restless}"));
        }
        return compared;
    };
    for (asset, contract) in contracts {
        let of = |balances: &HashMap<(Chain, Token), i64>| balances.get(asset).copied().unwrap_or_default();
        let ledger = postings.vaults.get(&(asset.0, *contract)).copied().unwrap_or_default();
        let grew = Grew { balance: of(now).saturating_sub(of(before)), ledger };
        compared.balances.insert(*asset, grew);
        if grew.balance != grew.ledger {
            let differs = format!(
                "the balance of {} on {} grew by {}, by its postings {}",
                asset.1,
                asset.0,
                Amount(grew.balance),
                Amount(grew.ledger)
            );
            lay(&mut compared, owed, *asset, grew, differs);
        }
    }
    compared
}

/// Lays a difference to the payment whose share it is, or names those whose it may be.
fn lay(compared: &mut Compared, owed: &[ExpectedPostings], asset: (Chain, Token), grew: Grew, differs: String) {
    let difference = grew.balance.saturating_sub(grew.ledger).saturating_abs();
    let mut suspects = owed.iter().filter(|owed| owed.asset == asset && owed.posted.psp == difference);
    let named: Vec<&ExpectedPostings> = suspects.by_ref().take(SUSPECTS_MAX).collect();
    match named.as_slice() {
        [] => compared.unassigned.push(differs),
        [one] => compared.faults.push((one.number, format!("{differs}: a difference of just its share"))),
        several => {
            let ids: Vec<String> = several.iter().map(|owed| owed.id.to_string()).collect();
            let more = if suspects.next().is_some() { " and others" } else { "" };
            compared.unassigned.push(format!("{differs}: a difference of just the share of {}{more}", ids.join(", ")));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASSET: (Chain, Token) = (Chain::Base, Token::Usdc);
    const CONTRACT: Address = Address::repeat_byte(7);

    /// A sandbox that others use, too, and that keeps no ledger.
    const FOREIGN: Keeper = Keeper { has_ledger: false, is_alone: false };

    fn owed(number: u32, psp: i64) -> ExpectedPostings {
        let posted = Posted { received: psp + 5, psp, treasury: 5 };
        ExpectedPostings { number, id: PaymentId::generate(), asset: ASSET, posted }
    }

    fn entry(subject: &str, kind: &str, accounts: [&str; 2], units: i64) -> Entry {
        let entry = json!({
            "position": 1, "subject": subject, "kind": kind, "debit": accounts[0], "credit": accounts[1],
            "amount": Amount(units).to_string(), "chain": "base", "token_address": CONTRACT.to_string(),
        });
        serde_json::from_value(entry).unwrap()
    }

    /// What the ledger says of settled payments.
    fn entries(owed: &[ExpectedPostings]) -> Vec<Entry> {
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

    /// With a balance that grew by so much.
    fn compared(owed: &[ExpectedPostings], entries: &[Entry], grew: i64) -> Compared {
        let mut postings = Postings::of(owed.iter().map(|owed| (owed.id, (ASSET.0, CONTRACT))));
        for entry in entries {
            postings.add(entry);
        }
        let stands = [&stand(1_000), &stand(1_000 + grew)];
        compare(owed, &postings, stands, &[(ASSET, CONTRACT)].into(), FOREIGN)
    }

    #[test]
    fn books_that_are_right_are_passed_whatever_others_do() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        // Somebody else's payment, a payout of the same PSP, and what the chain took back and gave again.
        entries.push(entry("pay_other", "settled", ["payment", "psp"], 50));
        entries.push(entry("po_other", "reserved", ["psp", "in_flight"], 30));
        entries.push(entry("po_other", "sent", ["in_flight", "external"], 30));
        let id = owed[0].id.to_string();
        entries.push(entry(&id, "settlement_reversed", ["psp", "payment"], 100));
        entries.push(entry(&id, "settled", ["payment", "psp"], 100));
        let compared = compared(&owed, &entries, 100 + 200 + 50 - 30);
        assert_eq!((compared.faults, compared.unassigned, compared.notes), (vec![], vec![], vec![]));
        assert_eq!(compared.balances[&ASSET], Grew { balance: 320, ledger: 320 });
    }

    #[test]
    fn a_posting_too_many_is_laid_to_its_payment() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        entries.push(entries[4].clone());
        let compared = compared(&owed, &entries, 500);
        let wanted = "the ledger has 0.0004 of it to the PSP, not 0.0002".to_owned();
        assert_eq!((compared.faults, compared.unassigned), (vec![(1, wanted)], vec![]));
    }

    #[test]
    fn postings_that_are_missing_or_of_another_token_are_laid_to_their_payment() {
        let owed = [owed(0, 100), owed(1, 200)];
        let mut entries = entries(&owed);
        entries[0].token_address = Address::repeat_byte(8);
        entries.remove(5);
        let compared = compared(&owed, &entries, 300);
        let wanted = [
            (0, "the ledger has 0.00 of it as received, not 0.000105".to_owned()),
            (1, "the ledger has 0.00 of it to the treasury, not 0.000005".to_owned()),
        ];
        assert_eq!((compared.faults.as_slice(), compared.unassigned), (wanted.as_slice(), vec![]));
    }

    #[test]
    fn a_balance_that_is_not_its_postings_is_laid_to_whose_share_is_the_difference() {
        let owed = [owed(0, 100), owed(1, 200), owed(2, 300), owed(3, 300)];
        let entries = entries(&owed);
        for (grew, number) in [(900 + 100, 0), (900 - 200, 1)] {
            let compared = compared(&owed, &entries, grew);
            let [(found, fault)] = compared.faults.as_slice() else { panic!("{compared:?}") };
            assert_eq!(*found, number);
            assert!(fault.starts_with("the balance of USDC on base grew by 0.00"), "{fault}");
            assert!(fault.ends_with("by its postings 0.0009: a difference of just its share"), "{fault}");
            assert!(compared.unassigned.is_empty(), "{compared:?}");
        }
        // It may be either's.
        let either = compared(&owed, &entries, 900 + 300);
        assert!(either.faults.is_empty(), "{either:?}");
        assert!(either.unassigned[0].ends_with(&format!("the share of {}, {}", owed[2].id, owed[3].id)), "{either:?}");
        // It is nobody's.
        let nobody = compared(&owed, &entries, 900 + 1);
        assert_eq!(nobody.unassigned, ["the balance of USDC on base grew by 0.000901, by its postings 0.0009"]);
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let owed = [owed(0, 100)];
        let none = compared(&owed, &[], 0);
        assert!(none.faults.is_empty() && none.unassigned.is_empty() && none.balances.is_empty(), "{none:?}");
        assert!(none.notes[0].contains("not one entry of this run"), "{none:?}");
        // Nothing is owed, nothing is posted.
        let nothing = compared(&[], &[], 0);
        assert!(nothing.notes.is_empty() && nothing.balances.len() == 1, "{nothing:?}");
        let restless = nothing_compared(&[], FOREIGN);
        assert!(restless.notes[0].contains("its balances were not compared"), "{restless:?}");
        assert!(restless.unassigned.is_empty(), "{restless:?}");
    }

    /// With no postings, and balances that were never at rest.
    fn nothing_compared(owed: &[ExpectedPostings], keeper: Keeper) -> Compared {
        let contracts = [(ASSET, CONTRACT)].into();
        compare(owed, &Postings::default(), [&stand(0), &LedgerReading::default()], &contracts, keeper)
    }

    #[test]
    fn books_that_must_be_there_and_at_rest_and_are_not_are_wrong() {
        let lost = nothing_compared(&[owed(0, 100)], Keeper { has_ledger: true, is_alone: false });
        assert!(lost.notes.is_empty() && lost.unassigned[0].contains("not one entry of this run"), "{lost:?}");
        let restless = nothing_compared(&[], Keeper { has_ledger: true, is_alone: true });
        assert!(restless.notes.is_empty() && restless.unassigned[0].contains("Nobody pays any more"), "{restless:?}");
    }
}
