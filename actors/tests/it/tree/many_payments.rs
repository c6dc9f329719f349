//! Many concurrent payments in one tree.

use std::time::Duration;

use futures::StreamExt as _;
use payferry_actors::reconcile;
use payferry_domain::payment::{Command, DUST_LISTED_MAX, Rejection, Status, WHOLES_LISTED_MAX};
use payferry_domain::{Amount, CommandError};
use payferry_entities::{chain_cursors, payment_transitions, payments, transfers};
use payferry_evm::ChainClient;
use payferry_journal::payments::SET_ASIDE;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};

use crate::env::{Coin, Env};

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_concurrent_payments_settle_with_events_in_order() {
    let env = Env::new().await;
    let paid: Vec<_> = futures::stream::iter(0..300)
        .map(|_| async { env.initiate_and_pay(1).await.remove(0) })
        .buffer_unordered(50)
        .collect()
        .await;
    env.until_settled(&paid).await;
    env.assert_settled(300).await;
    env.check_feed(&paid).await;
    env.until_payments_live(0).await;
    assert_eq!(env.system().observe().payments_spawned, 300, "one actor each");
}

/// Longer than a payment needs for so many transfers, or the watcher for a rescan.
const PATIENCE: Duration = Duration::from_mins(4);
/// More transfers than a payment can list.
const FLOOD: usize = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn dust_flood_neither_grows_a_payment_nor_delays_others() {
    let env = Env::new().await;
    let (flooded, other) = (env.initiate("10").await, env.initiate("10").await);
    let (chain, to) = (env.chain(), vec![flooded.terms.wallet; FLOOD]);
    chain.mint(chain.coin(Coin::Usdc), &to, 1).await;
    env.pay(&other, "10").await;
    env.until_status(other.id(), Status::Settled).await;

    let database = env.system().database();
    let id = flooded.id().to_string();
    let taken_note_of = async || {
        let rows = transfers::Entity::find().filter(transfers::Column::PaymentId.eq(&id));
        let applied = rows.filter(transfers::Column::AppliedVersion.gt(0)).count(database.reader()).await.unwrap();
        usize::try_from(applied).unwrap() == FLOOD
    };
    env.until_within(PATIENCE, "all are applied", taken_note_of).await;
    let transitions = payment_transitions::Entity::find().filter(payment_transitions::Column::PaymentId.eq(&id));
    assert_eq!(transitions.count(database.reader()).await.unwrap(), 1 + DUST_LISTED_MAX as u64);
    env.pay(&flooded, "10").await;
    let settled = env.until_status(flooded.id(), Status::Settled).await;
    assert_eq!(settled.transfers.len(), DUST_LISTED_MAX + 1);
    let row = payments::Entity::find_by_id(&id).one(database.reader()).await.unwrap().unwrap();
    assert!(row.state.len() < 20_000, "{}", row.state.len());
    env.assert_settled(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_beyond_the_list_are_set_aside_and_can_be_listed() {
    let env = Env::new().await;
    let payment = env.initiate_and_settle().await;
    for _ in 0..WHOLES_LISTED_MAX + 2 {
        env.pay(&payment, "10").await;
    }
    let excess = Amount::from_tokens(10 * (i64::try_from(WHOLES_LISTED_MAX).unwrap() - 1));
    let database = env.system().database();
    let are_applied = async || env.load(payment.id()).await.excess_received() >= excess && env.unapplied().await == 0;
    env.until_within(PATIENCE, "all are applied", are_applied).await;
    assert_eq!(env.load(payment.id()).await.transfers.len(), WHOLES_LISTED_MAX);
    let aside = transfers::Entity::find().filter(transfers::Column::AppliedVersion.eq(SET_ASIDE));
    assert_eq!(aside.count(database.reader()).await.unwrap(), 3);

    // The wallet holds more than the ledger says, and the reconciliation knows the reason.
    let spec = env.system().chains().spec(payment.terms.chain).unwrap().clone();
    let chains = [(spec, ChainClient::new(env.chain().devchain.transport()))];
    let reconciled = async || {
        let options = reconcile::Options { pause: Duration::from_millis(50), ..Default::default() };
        let report = reconcile::reconcile(database, &chains, &env.options.clock, options, |_| {}).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        report.set_aside
    };
    assert_eq!(reconciled().await, 1);

    // A rescan that reads these blocks later would find the transfer on the chain and restore it.
    let rows = transfers::Entity::find().all(database.reader()).await.unwrap();
    let last_block = rows.iter().map(|row| row.block_number).max().unwrap();
    let is_rescanned = async || {
        let cursor = chain_cursors::Entity::find().one(database.reader()).await.unwrap().unwrap();
        cursor.second_look_from > last_block
    };
    env.until_within(PATIENCE, &format!("block {last_block} is rescanned"), is_rescanned).await;

    // The operator's view is outdated: one transfer was reorged in the meantime, which was reported, and is mined
    // again.
    let seen = env.system().set_aside(payment.id(), 100).await.unwrap();
    let one = transfers::Column::TxHash.eq(seen[0].key.tx_hash.to_string());
    let change = async |presence: &str, known: i64| {
        transfers::Entity::update_many()
            .col_expr(transfers::Column::Presence, Expr::value(presence))
            .col_expr(transfers::Column::Revision, Expr::col(transfers::Column::Revision).add(1))
            .col_expr(transfers::Column::AppliedRevision, Expr::col(transfers::Column::AppliedRevision).add(known))
            .filter(one.clone())
            .exec(database.writer())
            .await
            .unwrap();
    };
    change("orphaned", 1).await;
    let listed = env.system().command(payment.id(), Command::TakeIn { observed: seen }, None).await.unwrap();
    assert_eq!(listed.transfers.len(), WHOLES_LISTED_MAX + 2, "the orphaned transfer is not listed");
    change("present", 0).await;
    let is_reported = async || env.unapplied().await == 0;
    env.until_within(Duration::from_mins(1), "the sweep reports it", is_reported).await;

    // The operator lists it, and then it is refundable like every excess.
    let observed = env.system().set_aside(payment.id(), 100).await.unwrap();
    assert_eq!(observed.len(), 1);
    let take_in = Command::TakeIn { observed };
    let listed = env.system().command(payment.id(), take_in.clone(), None).await.unwrap();
    assert_eq!(listed.transfers.len(), WHOLES_LISTED_MAX + 3);
    let all = Amount(excess.units() + 30_000_000);
    let counted = env.until_payment(payment.id(), "it counts", |payment| payment.excess_received() == all).await;
    assert_eq!(counted.status, Status::Settled);
    assert_eq!(reconciled().await, 0);
    assert!(env.system().set_aside(payment.id(), 100).await.unwrap().is_empty());
    let again = env.system().command(payment.id(), take_in, None).await;
    assert!(matches!(again, Err(CommandError::Rejected(Rejection::NothingSetAside))), "{again:?}");
}
