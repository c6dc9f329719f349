//! Outbound transfers and the ledger in the whole tree: crashes and limits.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_actors::OrderError;
use payferry_contracts::Payferry;
use payferry_domain::outbound::{OutboundId, OutboundStatus, OutboundTransfer};
use payferry_domain::{Address, Amount, Chain, CommandError, WithdrawalId};
use payferry_entities::balances;
use payferry_evm::L1Data;
use payferry_evm::wallet::alloy_address;
use payferry_runtime::observe::ActorKind;
use sea_orm::EntityTrait;

use super::refund;
use crate::env::{Coin, Env, Options, until_some};

pub const TOKEN: i64 = 1_000_000;
pub const TREASURER: Address = Address([0xbe; 20]);

/// Settles payments of 10 tokens each, of which 9.9 go to the PSP.
pub async fn settle_payments(env: &Env, count: usize) {
    let paid = env.initiate_and_pay(count).await;
    env.until_settled(&paid).await;
}

pub async fn order(env: &Env, tokens: &str) -> Result<OutboundTransfer, OrderError> {
    order_to(env, tokens, TREASURER).await
}

pub async fn order_to(env: &Env, tokens: &str, to: Address) -> Result<OutboundTransfer, OrderError> {
    let id = OutboundId::Withdrawal(WithdrawalId::generate());
    env.order(id, tokens.parse().unwrap(), Chain::Base, None, to).await
}

pub async fn until_outbound(
    env: &Env,
    id: OutboundId,
    what: &str,
    wanted: impl Fn(&OutboundTransfer) -> bool,
) -> OutboundTransfer {
    let loaded = async || Some(env.load_outbound(id).await).filter(&wanted);
    let state = async || format!("{:#?} {:#?}", env.load_outbound(id).await, env.system().observe());
    until_some(what, loaded, state).await
}

pub async fn ended(env: &Env, id: OutboundId) -> OutboundTransfer {
    until_outbound(env, id, "ended", |outbound| !outbound.is_live()).await
}

/// Asserts that all of these were sent.
pub async fn all_sent(env: &Env, ordered: &[OutboundId]) {
    for id in ordered {
        assert_eq!(ended(env, *id).await.status, OutboundStatus::Sent);
    }
}

/// Asserts that every withdrawal has one operation, and that all of them succeeded.
pub async fn each_was_sent_once(env: &Env, count: usize) {
    let sent = env.operations_of_kind("withdrawal").await;
    assert_eq!(sent.len(), count);
    assert!(sent.iter().all(|row| row.status.as_str() == "succeeded"), "{sent:#?}");
    assert_eq!(env.balance(TREASURER).await, i64::try_from(count).unwrap() * TOKEN);
}

/// Available and reserved balance.
pub async fn balance(env: &Env) -> (i64, i64) {
    let rows = balances::Entity::find().all(env.database.reader()).await.unwrap();
    assert_eq!(rows.len(), 1);
    (rows[0].available, rows[0].reserved)
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_are_sent_once_when_actors_die() {
    let env = Env::new().await;
    settle_payments(&env, 3).await;
    let kinds = [
        ActorKind::OutboundSupervisor,
        ActorKind::Settler,
        ActorKind::Screening,
        ActorKind::Watcher,
        ActorKind::WebhookSender,
    ];
    let mut ordered = Vec::new();
    for round in 0..15_u64 {
        env.system().inject_crash(kinds[usize::try_from(round).unwrap() % kinds.len()]);
        ordered.push(order(&env, "1").await.unwrap().id());
        tokio::time::sleep(Duration::from_millis(9 * (round % 6))).await;
    }
    all_sent(&env, &ordered).await;
    assert_eq!(balance(&env).await, (3 * 9_900_000 - 15 * TOKEN, 0));
    assert_eq!(env.holdings().await.0, 3 * 9_900_000 - 15 * TOKEN);
    each_was_sent_once(&env, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_in_progress_continue_after_an_abrupt_end() {
    let mut env = Env::new().await;
    settle_payments(&env, 1).await;
    let mut ordered = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            ordered.push(order(&env, "1").await.unwrap().id());
        }
        env.restart(false).await;
    }
    all_sent(&env, &ordered).await;
    assert_eq!(env.balance(TREASURER).await, 9 * TOKEN);
    assert_eq!(balance(&env).await, (900_000, 0));
    assert!(matches!(order(&env, "1").await, Err(OrderError::InsufficientBalance)));
}

/// Starts with a contract whose limit allows a transfer of at most 2 USDC.
async fn limited(options: Options) -> Env {
    let mut env = Env::unstarted(options).await;
    let (contract, token) = (env.chain().spec.contract, alloy_address(env.chain().coin(Coin::Usdc)));
    let limit = Payferry::setLimitCall { token, limit: U256::from(4 * TOKEN) };
    env.chain().call_as_owner(contract, limit.abi_encode()).await;
    env.start().await;
    env
}

async fn is_above_the_limit(env: &Env) -> bool {
    matches!(order(env, "2.000001").await, Err(OrderError::AboveSendLimit(max)) if max == Amount::from_tokens(2))
}

/// The chain has no contract that returns the charge.
#[tokio::test(flavor = "multi_thread")]
async fn the_contracts_limit_applies_while_the_l1_charge_cannot_be_read() {
    let env = limited(Options::default().tweaked(|spec| spec.l1_data = L1Data::OpStack)).await;
    env.until("the limit applies", async || is_above_the_limit(&env).await).await;
    assert_eq!(env.system().chain_view(Chain::Base).unwrap().l1_fee_wei, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_above_half_of_the_contracts_limit_is_refused() {
    let env = limited(Options::default()).await;
    settle_payments(&env, 1).await;
    let most = Amount::from_tokens(2);
    env.until("the limit applies", async || is_above_the_limit(&env).await).await;
    let underpaid = env.underpaid("4").await.id();
    let above = env.system().command(underpaid, refund("2.000001"), None).await.unwrap_err();
    assert!(matches!(above, CommandError::AboveSendLimit(max) if max == most), "{above:?}");
    assert_eq!(ended(&env, order(&env, "2").await.unwrap().id()).await.status, OutboundStatus::Sent);
}
