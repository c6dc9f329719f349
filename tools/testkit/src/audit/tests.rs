//! Tests of the comparisons with the chain, the webhooks and the fee settings.

use alloy::primitives::B256;
use chrono::DateTime;
use serde_json::json;
use tokio::time::Instant;

use super::behaviour::Intent;
use super::record::{InitiatedAt, InitiationFailure};
use super::*;

const FEE: Amount = Amount::from_tokens(1);
const FEE_BPS: u16 = 33;
const FIRST: B256 = B256::repeat_byte(1);
const SECOND: B256 = B256::repeat_byte(2);

fn wallet(number: u8) -> Address {
    Address::repeat_byte(number)
}

/// Makes payments with these wallets. According to webhooks, each was settled in [`FIRST`]: 10 to the PSP, and the fee.
fn state(numbers: &[u8]) -> Inner {
    let record = |number: &u8| {
        let intent = Intent { chain: Chain::Base, token: Token::Usdc, ..Intent::nth(0, Behaviour::Exact) };
        let mut record = Record::new(intent, Instant::now(), DateTime::UNIX_EPOCH, FEE_BPS);
        record.made = Some(InitiatedAt { id: PaymentId::generate(), wallet: wallet(*number), at: Instant::now() });
        let (psp_amount, treasury_fee) = (Amount::from_tokens(10), FEE);
        record.reported = Some(ReportedSettlement { psp_amount, treasury_fee, tx_hash: FIRST.to_string() });
        record
    };
    let mut inner = Inner::default();
    inner.records.extend(numbers.iter().map(record));
    inner
}

/// Makes a movement of `tokens` to the vault and the fee to the treasury.
fn moved(tokens: i64, tx_hashes: &[B256]) -> SettledAmounts {
    SettledAmounts { to_vault: Amount::from_tokens(tokens), to_treasury: FEE, tx_hashes: tx_hashes.to_vec() }
}

/// Returns the faults of each payment and the amounts of other payments.
fn held(numbers: &[u8], moved: &[(u8, SettledAmounts)]) -> (Vec<Vec<String>>, HashMap<Token, VaultAmounts>) {
    compared(state(numbers), moved, &HashMap::new())
}

fn compared(
    mut inner: Inner,
    moved: &[(u8, SettledAmounts)],
    listed: &HashMap<u32, ChainSide>,
) -> (Vec<Vec<String>>, HashMap<Token, VaultAmounts>) {
    let moved = moved.iter().map(|(number, moved)| ((Token::Usdc, wallet(*number)), moved.clone()));
    let others = compare_with_chain(&mut inner, Chain::Base, moved.collect(), listed);
    (inner.records.into_iter().map(|record| record.faults).collect(), others)
}

#[test]
fn transfers_that_match_the_webhooks_have_no_fault() {
    let (faults, others) = held(&[1, 2], &[(1, moved(10, &[FIRST])), (2, moved(10, &[FIRST]))]);
    assert_eq!((faults, others), (vec![Vec::new(), Vec::new()], HashMap::new()));
}

#[test]
fn a_wallet_that_paid_the_vault_twice_names_its_payment() {
    let (faults, others) = held(&[1, 2], &[(1, moved(10, &[FIRST])), (2, moved(20, &[FIRST, SECOND]))]);
    let twice = "on-chain, 20.00 went to the PSP's vault and 1.00 to the treasury; webhooks report 10.00 and 1.00";
    assert_eq!((faults, others), (vec![Vec::new(), vec![twice.to_owned()]], HashMap::new()));
}

#[test]
fn missing_transfers_and_other_transactions_name_the_payment() {
    let (faults, _) = held(&[1, 2], &[(2, moved(10, &[SECOND]))]);
    let never = "on-chain, 0.00 went to the PSP's vault and 0.00 to the treasury; webhooks report 10.00 and 1.00";
    let other = format!("was settled on-chain in {SECOND}, webhooks report {FIRST}");
    assert_eq!(faults, [[never.to_owned()], [other]]);
}

#[test]
fn without_webhooks_the_chain_is_compared_with_the_shown_settlement() {
    let untold = || {
        let mut inner = state(&[1, 2, 3]);
        inner.records.iter_mut().for_each(|record| record.reported = None);
        inner
    };
    let settled = |tokens: i64| {
        let psp_amount = Amount::from_tokens(tokens);
        Some(ReportedSettlement { psp_amount, treasury_fee: FEE, tx_hash: FIRST.to_string() })
    };
    let moved = [1, 2].map(|number| (number, moved(10, &[FIRST])));
    let listed = |second: i64| {
        let listed = [(1, settled(10)), (2, settled(second)), (3, None)].into_iter().zip(0..);
        listed
            .map(|((wallet_of, settlement), number)| (number, ChainSide { wallet: wallet(wallet_of), settlement }))
            .collect()
    };
    let (faults, others) = compared(untold(), &moved, &listed(10));
    assert_eq!((faults, others), (vec![Vec::new(), Vec::new(), Vec::new()], HashMap::new()));
    let (faults, _) = compared(untold(), &moved, &listed(9));
    let says = "on-chain, 10.00 went to the PSP's vault and 1.00 to the treasury; the payment shows 9.00 and 1.00";
    assert_eq!(faults, [vec![], vec![says.to_owned()], vec![]]);
}

#[test]
fn outgoing_transfers_of_the_vault_are_no_difference() {
    let holds = |vault: i64, treasury: i64| VaultAmounts { vault: Amount(vault), treasury: Amount(treasury) };
    let holding =
        |now, left| holding(Chain::Base, Token::Usdc, [holds(500, 50), now], [holds(90, 9), holds(10, 1), left]);
    // More left the vault than arrived.
    let paid_out = holding(holds(400, 60), holds(200, 0));
    assert!(paid_out.equal, "{paid_out:?}");
    assert_eq!((paid_out.vault_grew.as_str(), paid_out.vault_expected.as_str()), ("-0.0001", "-0.0001"));
    assert!(!holding(holds(400, 60), holds(0, 0)).equal);
}

#[test]
fn transfers_of_other_payments_are_separate() {
    let from_other = moved(7, &[SECOND]);
    let (faults, others) = held(&[1], &[(1, moved(10, &[FIRST])), (9, from_other.clone()), (8, from_other)]);
    let both = VaultAmounts { vault: Amount::from_tokens(14), treasury: Amount::from_tokens(2) };
    assert_eq!((faults, others), (vec![Vec::new()], HashMap::from([(Token::Usdc, both)])));
}

/// Makes a payment of 5.00 that was paid in [`FIRST`], and its view with these shares of the settlement.
fn settled(psp_amount: &str, treasury_fee: &str) -> (Record, AuditedPayment) {
    let mut record = state(&[1]).records.remove(0);
    record.reported = None;
    record.set_sent(FIRST, Instant::now());
    let (amount, made) = (record.intent.amount.to_string(), record.made.expect("it was made"));
    let shown = json!({
        "payment_id": made.id.to_string(),
        "status": "settled",
        "reference": null,
        "amount": amount,
        "amount_received": amount,
        "excess_received": "0.00",
        "currency": "USDC",
        "chain": "base",
        "intermediary_wallet": made.wallet.to_string(),
        "labels": [],
        "failure_reason": null,
        "transfers": [{"tx_hash": FIRST.to_string(), "amount": amount, "status": "final", "counted": true}],
        "settlement": {
            "status": "settled", "amount": amount, "psp_amount": psp_amount, "treasury_fee": treasury_fee,
            "tx_hash": SECOND.to_string(),
        },
    });
    (record, serde_json::from_value(shown).expect("a payment"))
}

#[test]
fn a_payment_with_an_unknown_address_must_not_be_paid() {
    let (mut record, mut shown) = settled("4.9835", "0.0165");
    record.made = None;
    record.not_made = Some(InitiationFailure { kind: "initiate: no answer in time".to_owned(), may_be_there: true });
    let says = [
        "shows status `settled`, not `pending`",
        "shows amount_received `5.00`, not `0.00`",
        "shows a settlement `one`, not `none`",
    ];
    assert_eq!(differences(&record, &shown), says);
    shown =
        AuditedPayment { status: "pending".to_owned(), amount_received: "0.00".to_owned(), settlement: None, ..shown };
    assert_eq!(differences(&record, &shown), Vec::<String>::new());
    let expired = AuditedPayment { status: "failed".to_owned(), ..shown };
    assert_eq!(differences(&record, &expired), ["shows status `failed`, not `pending`"]);
    record.intent.behaviour = Behaviour::Never;
    assert_eq!(differences(&record, &expired), Vec::<String>::new());
}

#[test]
fn an_authorized_payment_shows_its_collection_as_transfer_and_settlement() {
    let authorized = |collection: B256| {
        let (mut record, mut shown) = settled("4.9835", "0.0165");
        record.intent.behaviour = Behaviour::Authorized;
        (record.sent, record.authorized) = (None, Some(Instant::now()));
        shown.labels = vec!["AUTHORIZED".to_owned()];
        shown.transfers[0].tx_hash = collection.to_string();
        differences(&record, &shown)
    };
    assert_eq!(authorized(SECOND), Vec::<String>::new());
    let says = format!("shows transfers `{FIRST} of 5.00, final, counted`, not `{SECOND} of 5.00, final, counted`");
    assert_eq!(authorized(FIRST), [says]);
}

#[test]
fn a_settlement_is_compared_with_the_fee_of_the_settings() {
    let (record, right) = settled("4.9835", "0.0165");
    assert_eq!(differences(&record, &right), Vec::<String>::new());
    // The sum is right, but one base unit of the treasury went to the PSP.
    let (record, moved) = settled("4.983501", "0.016499");
    let says = "shows psp_amount and treasury_fee `4.983501 and 0.016499`, not `4.9835 and 0.0165`";
    assert_eq!(differences(&record, &moved), [says]);
    // The expected postings follow the fee settings, not the shares that the payment shows.
    let must_be = Posted { received: 5_000_000, psp: 4_983_500, treasury: 16_500 };
    assert_eq!((posted(&record, &right), posted(&record, &moved)), (must_be, must_be));
}

#[test]
fn late_payments_explain_at_most_their_own_amounts() {
    let amounts = |vault, treasury| VaultAmounts { vault: Amount(vault), treasury: Amount(treasury) };
    let late = amounts(100, 3);
    let is_within = |now| {
        holding(Chain::Base, Token::Usdc, [amounts(50, 1), now], [amounts(10, 1), amounts(0, 0), amounts(0, 0)])
            .is_within(&late)
    };
    assert!(is_within(amounts(60, 2)) && is_within(amounts(160, 5)));
    for wrong in [amounts(161, 5), amounts(160, 6), amounts(59, 2), amounts(60, 1), amounts(0, 0)] {
        assert!(!is_within(wrong), "{wrong:?}");
    }
}
