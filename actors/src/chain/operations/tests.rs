//! Contract events and errors of operations.
#![allow(clippy::unwrap_used)]

use payferry_domain::FeeBps;
use payferry_evm::wallet::Vaults;

use super::*;

const CONTRACT: Address = Address([6; 20]);
const TOKEN: Address = Address([7; 20]);
const RECIPIENT: Address = Address([8; 20]);
const ID: u128 = 1_000;

fn payment(id: u128) -> PaymentId {
    PaymentId::from_ulid(id.into())
}

fn psp(id: u128) -> PspId {
    PspId::from_ulid(id.into())
}

fn row(kind: &str, of: u128, by: u128) -> operations::Model {
    operations::Model {
        id: OperationId::from_ulid(ID.into()).to_string(),
        chain: "base".to_owned(),
        kind: kind.to_owned(),
        payment_id: payment(of).to_string(),
        psp_id: psp(by).to_string(),
        max_fee_bps: 100,
        token_address: TOKEN.to_string(),
        amount: 100,
        psp_amount: 99,
        treasury_fee: 1,
        recipient: (kind != "settle").then(|| RECIPIENT.to_string()),
        ..operations::Model::default()
    }
}

fn success_of(event: &impl SolEvent) -> Success {
    let inner = alloy::primitives::Log { address: alloy_address(CONTRACT), data: event.encode_log_data() };
    success(&Log { inner, ..Log::default() }).unwrap().1
}

fn payment_vault(id: u128) -> Account {
    alloy_address(Vaults::new(CONTRACT).of_payment(payment(id), psp(1), FeeBps::DEFAULT))
}

fn psp_vault() -> Account {
    alloy_address(Vaults::new(CONTRACT).of_psp(psp(1)))
}

fn settled(psp_amount: u64, treasury_fee: u64) -> Success {
    success_of(&Payferry::Settled {
        id: ID,
        vault: payment_vault(1),
        pspVault: psp_vault(),
        token: alloy_address(TOKEN),
        pspAmount: U256::from(psp_amount),
        treasuryFee: U256::from(treasury_fee),
    })
}

fn sent(kind: OperationKind, vault: Account) -> Success {
    success_of(&Payferry::Sent {
        id: ID,
        kind: kind.number(),
        vault,
        token: alloy_address(TOKEN),
        to: alloy_address(RECIPIENT),
        amount: U256::from(100),
    })
}

#[test]
fn event_belongs_to_the_operation_with_its_kind_id_vault_token_and_recipient() {
    let carried = MovedAmounts { amount: 50, psp_amount: 40, treasury_fee: 10, log_index: None };
    let own = row("settle", 1, 1);
    assert_eq!(settled(40, 10).carried_for(&own, CONTRACT), Some(carried));
    let others = [
        row("settle", 2, 1),
        row("settle", 1, 2),
        row("deliver", 1, 1),
        row("send", 1, 1),
        operations::Model { max_fee_bps: 99, ..own.clone() },
        operations::Model { id: OperationId::from_ulid((ID + 1).into()).to_string(), ..own.clone() },
        operations::Model { token_address: RECIPIENT.to_string(), ..own.clone() },
        operations::Model { token_address: "?".to_owned(), ..own.clone() },
    ];
    for other in &others {
        assert_eq!(settled(99, 1).carried_for(other, CONTRACT), None, "{other:?}");
    }
    assert_eq!(settled(99, 1).carried_for(&own, TOKEN), None, "another contract");

    let carried = MovedAmounts { amount: 100, ..MovedAmounts::default() };
    let (wallet, vault) = (payment_vault(1), psp_vault());
    for (kind, number, from) in [
        ("deliver", OperationKind::Payout, wallet),
        ("send", OperationKind::Refund, wallet),
        ("send_psp", OperationKind::Refund, vault),
        ("payout", OperationKind::Payout, vault),
        ("withdrawal", OperationKind::Withdrawal, vault),
    ] {
        let own = row(kind, 1, 1);
        let is_own = |success: Success, row: &operations::Model| success.carried_for(row, CONTRACT) == Some(carried);
        assert!(is_own(sent(number, from), &own), "{kind}");
        let of_more = operations::Model { amount: 500, ..own.clone() };
        assert_eq!(is_own(sent(number, from), &of_more), kind == "deliver", "{kind}: another amount");
        assert!(!is_own(sent(number, payment_vault(2)), &own), "{kind}: another vault");
        assert!(!is_own(sent(OperationKind::Recovery, from), &own), "{kind}: another kind");
        let to_another = operations::Model { recipient: Some(TOKEN.to_string()), ..own.clone() };
        assert!(!is_own(sent(number, from), &to_another), "{kind}: another recipient");
        assert!(!is_own(sent(number, from), &row("settle", 1, 1)), "{kind}: no settlement");
    }
}

#[test]
fn only_the_contract_s_error_for_this_operation_means_done_before() {
    use alloy::sol_types::SolError;
    let key = OperationKey::settlement(ID);
    let reason = Payferry::AlreadyDone { kind: key.kind, id: key.id }.abi_encode();
    assert!(is_done_before(&reason, key) && !is_done_before(&reason, OperationKey::settlement(ID + 1)));
    assert!(!is_done_before(&reason, OperationKey { kind: 1, ..key }));
    assert!(!is_done_before(&[], key) && !is_done_before(&reason[..8], key));
    assert!(!is_done_before(&Payferry::NothingToMove {}.abi_encode(), key));
}
