//! Contract events and errors of operations.
#![allow(clippy::unwrap_used)]

use alloy::primitives::Log;

use super::*;

const NUMBER: i64 = 1_000;
const TOKEN: Address = Address([7; 20]);
const RECIPIENT: Address = Address([8; 20]);

fn row(kind: &str, payment: &str, psp: &str) -> operations::Model {
    operations::Model {
        id: "op_1".to_owned(),
        chain: "base".to_owned(),
        number: NUMBER,
        kind: kind.to_owned(),
        payment_id: payment.to_owned(),
        psp_id: psp.to_owned(),
        token_address: TOKEN.to_string(),
        amount: 100,
        psp_amount: 99,
        treasury_fee: 1,
        recipient: (kind != "settle").then(|| RECIPIENT.to_string()),
        status: "submitted".to_owned(),
        chain_tx_id: None,
        tx_hash: None,
        block_number: None,
        failure: None,
        revision: 1,
        attempts: 1,
        not_before: 0,
        created_at: 0,
        updated_at: 0,
    }
}

fn success_of(event: &impl SolEvent) -> Success {
    let log = Log { address: alloy::primitives::Address::ZERO, data: event.encode_log_data() };
    let (number, success) = success(&log).unwrap();
    assert_eq!(number, NUMBER);
    success
}

fn settled(psp_amount: u64, treasury_fee: u64) -> Success {
    success_of(&Payferry::Settled {
        number: U256::from(NUMBER.unsigned_abs()),
        vaultSalt: salt_of("pay_1"),
        pspSalt: salt_of("psp_1"),
        token: alloy_address(TOKEN),
        pspAmount: U256::from(psp_amount),
        treasuryFee: U256::from(treasury_fee),
    })
}

fn sent(from: &str) -> Success {
    success_of(&Payferry::Sent {
        number: U256::from(NUMBER.unsigned_abs()),
        vaultSalt: salt_of(from),
        token: alloy_address(TOKEN),
        to: alloy_address(RECIPIENT),
        amount: U256::from(100),
    })
}

#[test]
fn event_belongs_to_the_operation_with_its_vault_token_and_recipient() {
    let carried = MovedAmounts { amount: 50, psp_amount: 40, treasury_fee: 10 };
    assert_eq!(settled(40, 10).carried_for(&row("settle", "pay_1", "psp_1")), Some(carried));
    let elsewhere = operations::Model { token_address: RECIPIENT.to_string(), ..row("settle", "pay_1", "psp_1") };
    let unreadable = operations::Model { token_address: "?".to_owned(), ..row("settle", "pay_1", "psp_1") };
    let others = [row("settle", "pay_2", "psp_1"), row("settle", "pay_1", "psp_2"), elsewhere, unreadable];
    for other in others.iter().chain([&row("deliver", "pay_1", "psp_1"), &row("send", "pay_1", "psp_1")]) {
        assert_eq!(settled(99, 1).carried_for(other), None, "{other:?}");
    }

    let carried = MovedAmounts { amount: 100, psp_amount: 0, treasury_fee: 0 };
    for (kind, from) in
        [("deliver", "pay_1"), ("send", "pay_1"), ("send_psp", "psp_1"), ("payout", "psp_1"), ("withdrawal", "psp_1")]
    {
        let own = row(kind, "pay_1", "psp_1");
        assert_eq!(sent(from).carried_for(&own), Some(carried), "{kind}");
        let of_more = operations::Model { amount: 500, ..own.clone() };
        let expected = (kind == "deliver").then_some(carried);
        assert_eq!(sent(from).carried_for(&of_more), expected, "{kind}: another amount");
        assert_eq!(sent("pay_2").carried_for(&own), None, "{kind}: another vault");
        let to_another = operations::Model { recipient: Some(TOKEN.to_string()), ..own.clone() };
        assert_eq!(sent(from).carried_for(&to_another), None, "{kind}: another recipient");
        assert_eq!(sent(from).carried_for(&row("settle", "pay_1", "psp_1")), None, "{kind}: no settlement");
    }
}

#[test]
fn only_the_contract_s_error_for_this_number_means_done_before() {
    use alloy::sol_types::SolError;
    let reason = Payferry::AlreadyDone { number: U256::from(NUMBER.unsigned_abs()) }.abi_encode();
    assert!(is_done_before(&reason, NUMBER) && !is_done_before(&reason, NUMBER + 1));
    assert!(!is_done_before(&[], NUMBER) && !is_done_before(&reason[..8], NUMBER));
    assert!(!is_done_before(&Payferry::NothingToMove {}.abi_encode(), NUMBER));
}
