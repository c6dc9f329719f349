//! What left a payment's wallet, held against what webhooks told.

use alloy::primitives::B256;
use tokio::time::Instant;

use super::super::behaviour::Intent;
use super::super::record::{MadeAt, ToldSettlement};
use super::*;

const FEE: Amount = Amount::from_tokens(1);
const FIRST: B256 = B256::repeat_byte(1);
const SECOND: B256 = B256::repeat_byte(2);

/// A wallet of its own for each number.
fn wallet(number: u8) -> Address {
    Address::repeat_byte(number)
}

/// The payments of these numbers, of which webhooks told that they were settled in [`FIRST`] to 10 and the fee.
fn book(numbers: &[u8]) -> Inner {
    let record = |number: &u8| {
        let intent = Intent { chain: Chain::Base, token: Token::Usdc, ..Intent::nth(0, Behaviour::Exact) };
        let mut record = Record::new(intent, Instant::now());
        record.made = Some(MadeAt { id: PaymentId::generate(), wallet: wallet(*number), at: Instant::now() });
        let (psp_amount, treasury_fee) = (Amount::from_tokens(10), FEE);
        record.told = Some(ToldSettlement { psp_amount, treasury_fee, tx_hash: FIRST.to_string() });
        record
    };
    let mut inner = Inner::default();
    inner.records.extend(numbers.iter().map(record));
    inner
}

/// So many tokens to the vault, and the fee.
fn moved(tokens: i64, tx_hashes: &[B256]) -> Moved {
    Moved { to_vault: Amount::from_tokens(tokens), to_treasury: FEE, tx_hashes: tx_hashes.to_vec() }
}

/// The faults of each payment, and what strangers moved.
fn held(numbers: &[u8], moved: &[(u8, Moved)]) -> (Vec<Vec<String>>, HashMap<Token, Holds>) {
    let mut inner = book(numbers);
    let moved = moved.iter().map(|(number, moved)| ((Token::Usdc, wallet(*number)), moved.clone()));
    let strangers = held_against(&mut inner, Chain::Base, moved.collect());
    (inner.records.into_iter().map(|record| record.faults).collect(), strangers)
}

#[test]
fn what_left_a_wallet_as_it_was_told_is_passed() {
    let (faults, strangers) = held(&[1, 2], &[(1, moved(10, &[FIRST])), (2, moved(10, &[FIRST]))]);
    assert_eq!((faults, strangers), (vec![Vec::new(), Vec::new()], HashMap::new()));
}

#[test]
fn a_wallet_that_paid_the_vault_twice_names_its_payment() {
    let (faults, strangers) = held(&[1, 2], &[(1, moved(10, &[FIRST])), (2, moved(20, &[FIRST, SECOND]))]);
    let twice = "on-chain, 20.00 went to the PSP's vault and 1.00 to the treasury; webhooks tell of 10.00 and 1.00";
    assert_eq!((faults, strangers), (vec![Vec::new(), vec![twice.to_owned()]], HashMap::new()));
}

#[test]
fn money_that_never_left_its_wallet_or_left_it_in_another_transaction_names_the_payment() {
    let (faults, _) = held(&[1, 2], &[(2, moved(10, &[SECOND]))]);
    let never = "on-chain, 0.00 went to the PSP's vault and 0.00 to the treasury; webhooks tell of 10.00 and 1.00";
    let other = format!("was settled on-chain in {SECOND}, webhooks tell of {FIRST}");
    assert_eq!(faults, [[never.to_owned()], [other]]);
}

#[test]
fn what_a_stranger_moved_is_told_apart_from_a_payments_own() {
    let from_stranger = moved(7, &[SECOND]);
    let (faults, strangers) = held(&[1], &[(1, moved(10, &[FIRST])), (9, from_stranger.clone()), (8, from_stranger)]);
    let both = Holds { vault: Amount::from_tokens(14), treasury: Amount::from_tokens(2) };
    assert_eq!((faults, strangers), (vec![Vec::new()], HashMap::from([(Token::Usdc, both)])));
}
