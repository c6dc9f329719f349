//! Ledger checks after every test step: each account holds the balance that the state of the payment requires.

use super::*;
use crate::ledger::{Account, Holdings, Posting};

/// Returns the balance of an account after these postings.
pub(super) fn balance(postings: &[Posting], account: Account, asset: Asset) -> i64 {
    postings.iter().filter(|posting| posting.asset == asset).map(|posting| posting.change_of(account)).sum()
}

/// Returns the balance that the state requires.
fn expected(payment: &Payment, account: Account, asset: Asset) -> i64 {
    let refunds = |source: Vault, state: RefundState| {
        let wanted =
            |r: &&Refund| r.source == source && r.state == state && r.asset.unwrap_or(payment.asset()) == asset;
        payment.refunds.iter().filter(wanted).map(|refund| refund.amount.units()).sum::<i64>()
    };
    let transfers = |status: TransferStatus| {
        let held = |t: &&Transfer| t.status == status && payment.asset_of(t) == asset && t.amount.units() > 0;
        payment.transfers.iter().filter(held).map(|transfer| transfer.amount.units()).sum::<i64>()
    };
    let settlement = payment.settlement.as_deref().filter(|s| s.state == SettlementState::Settled);
    let settled = settlement.filter(|_| asset == payment.asset());
    let is_pay_in = payment.terms.purpose.is_pay_in();
    let share = |of: fn(&Settlement) -> Amount| settled.filter(|_| is_pay_in).map_or(0, |s| of(s).units());
    match account {
        Account::Payment => {
            let settled = settled.map_or(0, |settlement| settlement.amount.units());
            transfers(TransferStatus::Final) - settled - refunds(Vault::Payment, RefundState::Sent)
        }
        Account::Suspense => transfers(TransferStatus::Ignored),
        Account::InFlight => refunds(Vault::Psp, RefundState::Pending),
        Account::Treasury => share(|s| s.treasury_fee),
        Account::Psp => {
            let gone = refunds(Vault::Psp, RefundState::Pending) + refunds(Vault::Psp, RefundState::Sent);
            share(|s| s.psp_amount) - gone
        }
        Account::External => -Account::ALL
            .into_iter()
            .filter(|account| *account != Account::External)
            .map(|account| expected(payment, account, asset))
            .sum::<i64>(),
    }
}

/// Checks every account of every token that the payment received.
#[track_caller]
pub(super) fn check(payment: &Payment, postings: &[Posting]) {
    assert!(postings.iter().all(|posting| posting.amount > Amount::ZERO && posting.debit != posting.credit));
    assert_eq!(postings.iter().collect::<Holdings>(), payment.holdings(), "{payment:?}");
    let assets = payment.transfers.iter().map(|transfer| payment.asset_of(transfer)).chain([payment.asset()]);
    for asset in assets {
        for account in Account::ALL {
            let (is, should) = (balance(postings, account, asset), expected(payment, account, asset));
            assert_eq!(is, should, "{account} in {asset:?}: {payment:?}\n{postings:#?}");
            assert_eq!(payment.holdings().on(asset, account), should, "{account} in {asset:?}: {payment:?}");
        }
    }
}

#[test]
fn a_settled_payment_has_three_postings() {
    let story = paid().settled(1);
    let rows: Vec<_> =
        story.posted.iter().map(|p| (p.kind.as_str(), p.debit, p.credit, p.amount.to_string())).collect();
    assert_eq!(
        rows,
        [
            ("received", Account::External, Account::Payment, "10.00".to_owned()),
            ("settled", Account::Payment, Account::Psp, "9.90".to_owned()),
            ("fee", Account::Payment, Account::Treasury, "0.10".to_owned()),
        ]
    );
}

#[test]
fn orphaned_funds_and_settlements_are_reversed() {
    let story = paid().settled(1).settlement_orphaned(2).when(tx(1).rev(2).gone().seen());
    assert_eq!(balance(&story.posted, Account::Psp, story.payment.asset()), 0);
    assert_eq!(balance(&story.posted, Account::External, story.payment.asset()), 0);
    let kinds: Vec<_> = story.posted.iter().map(|posting| posting.kind.as_str()).collect();
    assert_eq!(kinds, ["received", "settled", "fee", "settlement_reversed", "fee_reversed", "orphaned"]);
}

#[test]
fn dust_and_misdirected_funds_are_posted() {
    let story = given(terms()).when(tx(1).of("0.0005").seen()).arrives(tx(2).of("3").on(Chain::Polygon));
    assert_eq!(balance(&story.posted, Account::Suspense, story.payment.asset()), 500);
    let polygon = Asset { chain: Chain::Polygon, address: USDC };
    assert_eq!(balance(&story.posted, Account::Payment, polygon), 3_000_000);
    let gone = story.when(tx(1).of("0.0005").rev(2).gone().seen());
    assert_eq!(balance(&gone.posted, Account::Suspense, gone.payment.asset()), 0);
}
