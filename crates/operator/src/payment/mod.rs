//! All data of one payment: its row, history, operations and actor.

pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod replay;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use payferry_actors::System;
use payferry_actors::system::PaymentView;
use payferry_domain::payment::{Event, Payment, TransferKey};
use payferry_domain::{Chain, Hash32, PaymentId, Timestamp};
use payferry_entities::{StoreError, chain_tx_attempts, chain_txs, operations, payment_transitions, psps, transfers};
use payferry_journal::webhooks::log::{self, LogEntry};
use payferry_runtime::observe::{ActorKind, Incident};
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, ExprTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::decisions::aside::{self, SetAsideLine};
use crate::decisions::query as decisions;
use crate::decisions::query::Possible;

/// Maximum number of transitions, the latest. A payment normally has a few.
pub const TRANSITIONS_MAX: u64 = 500;
/// Maximum number of transactions that one query reads.
const HASHES_AT_ONCE: usize = 500;
/// Maximum number of operations, the first.
pub const OPERATIONS_MAX: u64 = 100;
/// Maximum number of incidents of one actor, the latest.
pub const INCIDENTS_MAX: usize = 50;
/// Number of logical shards.
const LOGICAL_SHARDS: usize = 256;

/// All data of one payment.
#[derive(Debug, Clone)]
pub struct PaymentFacts {
    /// State in its row.
    pub payment: Payment,
    pub psp_name: String,
    /// Shard that supervises it.
    pub shard: Option<usize>,
    /// Its actor, if it is running or quarantined.
    pub actor: Option<PaymentView>,
    /// Its history, oldest first; at most the last [`TRANSITIONS_MAX`].
    pub transitions: Vec<TransitionView>,
    /// Newest revision of the watcher's row of each listed transfer. Transfers without a row are absent.
    pub row_revisions: HashMap<TransferKey, i64>,
    /// Webhooks about it.
    pub deliveries: Vec<LogEntry>,
    /// On-chain operations of its money, with their transactions.
    pub operations: Vec<Operation>,
    /// Failures of its actor, newest first.
    pub incidents: Vec<Incident>,
    /// Transfers in its wallet that are not listed because the list is full.
    pub set_aside: Vec<SetAsideLine>,
    pub can: Vec<Possible>,
}

/// One commit of a payment.
#[derive(Debug, Clone)]
pub struct TransitionView {
    /// Version of the payment after the commit.
    pub version: u32,
    /// Time of the commit, by the service's clock.
    pub at: Timestamp,
    /// Events of the commit. Empty if a newer version of the service wrote it.
    pub events: Vec<Event>,
}

/// Transfer out of a vault.
#[derive(Debug, Clone)]
pub struct Operation {
    pub row: operations::Model,
    pub transaction: Option<TransactionView>,
}

/// Transaction that the service signed.
#[derive(Debug, Clone)]
pub struct TransactionView {
    pub row: chain_txs::Model,
    /// Its signatures, oldest first.
    pub attempts: Vec<chain_tx_attempts::Model>,
}

/// Reads a payment. `None` if the id is unknown.
pub async fn payment(system: &System, id: PaymentId) -> Result<Option<PaymentFacts>, StoreError> {
    let database = system.database();
    let Some(payment) = payferry_journal::payments::load(database, id).await? else { return Ok(None) };
    let psp_id = payment.terms.psp_id;
    let psp = psps::Entity::find_by_id(psp_id.to_string()).one(database.reader()).await?;
    let actor = system.observe_payment(id).await;
    let text = id.to_string();
    let public_id = payment.terms.public_id();
    let set_aside = aside::of_payment(system, id).await?;
    Ok(Some(PaymentFacts {
        psp_name: psp.map(|psp| psp.name).unwrap_or_default(),
        can: decisions::possible_of_all(system, &payment, &set_aside, system.clock().now()),
        set_aside,
        shard: shard_of(system, id),
        actor,
        transitions: transitions(system, &text).await?,
        row_revisions: row_revisions(system, &payment).await?,
        deliveries: log::deliveries_of(database, psp_id, &public_id, log::Slice::ALL_OF_A_PAYMENT).await?.1,
        operations: operations_of(system, &text).await?,
        incidents: incidents_of(system, ActorKind::Payment, &text),
        payment,
    }))
}

/// Reads by the keys of the listed transfers, because anyone may have sent any number of others to the wallet.
async fn row_revisions(system: &System, payment: &Payment) -> Result<HashMap<TransferKey, i64>, DbErr> {
    let mut hashes: BTreeMap<Chain, BTreeSet<Hash32>> = BTreeMap::new();
    for transfer in &payment.transfers {
        hashes.entry(transfer.key.chain).or_default().insert(transfer.key.tx_hash);
    }
    let mut revisions = HashMap::new();
    for (chain, hashes) in hashes {
        let hashes: Vec<String> = hashes.iter().map(Hash32::to_string).collect();
        for some in hashes.chunks(HASHES_AT_ONCE) {
            let rows = transfers::Entity::find()
                .filter(transfers::Column::Chain.eq(chain.as_str()))
                .filter(transfers::Column::TxHash.is_in(some))
                .all(system.database().reader())
                .await?;
            revisions.extend(rows.into_iter().filter_map(|row| {
                let (block_hash, tx_hash) = (row.block_hash.parse().ok()?, row.tx_hash.parse().ok()?);
                let log_index = u32::try_from(row.log_index).ok()?;
                Some((TransferKey { chain, block_hash, tx_hash, log_index }, row.revision))
            }));
        }
    }
    Ok(revisions)
}

/// Failures of one actor, newest first.
pub(crate) fn incidents_of(system: &System, kind: ActorKind, name: &str) -> Vec<Incident> {
    system.log().latest_of(kind, name, INCIDENTS_MAX)
}

/// Shard of a payment. `None` while there are no shards.
pub fn shard_of(system: &System, id: PaymentId) -> Option<usize> {
    let shards = shards(system);
    (shards > 0).then(|| usize::from(id.shard()) / (LOGICAL_SHARDS / shards))
}

pub fn shards(system: &System) -> usize {
    system.tree().root.children.iter().filter(|node| node.kind == ActorKind::Shard).count()
}

async fn transitions(system: &System, payment_id: &str) -> Result<Vec<TransitionView>, DbErr> {
    let rows = payment_transitions::Entity::find()
        .filter(payment_transitions::Column::PaymentId.eq(payment_id))
        .order_by_desc(payment_transitions::Column::Version)
        .limit(TRANSITIONS_MAX)
        .all(system.database().reader())
        .await?;
    let transition = |row: payment_transitions::Model| TransitionView {
        version: u32::try_from(row.version).unwrap_or(u32::MAX),
        at: Timestamp(row.at),
        events: serde_json::from_str(&row.events).unwrap_or_default(),
    };
    Ok(rows.into_iter().rev().map(transition).collect())
}

/// Operations of a payment, payout or withdrawal, with their transactions.
pub(super) async fn operations_of(system: &System, payment_id: &str) -> Result<Vec<Operation>, DbErr> {
    let reader = system.database().reader();
    let rows = operations::Entity::find()
        .filter(operations::Column::PaymentId.eq(payment_id))
        .order_by_asc(operations::Column::CreatedAt)
        .limit(OPERATIONS_MAX)
        .all(reader)
        .await?;
    let ids = rows.iter().filter_map(|row| row.chain_tx_id);
    let carrying = chain_txs::Entity::find().filter(chain_txs::Column::Id.is_in(ids)).all(reader).await?;
    let mut signed = Condition::any();
    for tx in &carrying {
        let same = chain_tx_attempts::Column::Chain
            .eq(&tx.chain)
            .and(chain_tx_attempts::Column::Sender.eq(&tx.sender))
            .and(chain_tx_attempts::Column::Nonce.eq(tx.nonce));
        signed = signed.add(same);
    }
    let attempts = if carrying.is_empty() {
        Vec::new()
    } else {
        let found = chain_tx_attempts::Entity::find().filter(signed);
        found.order_by_asc(chain_tx_attempts::Column::CreatedAt).all(reader).await?
    };
    let transaction = |row: chain_txs::Model| {
        let same = |attempt: &&chain_tx_attempts::Model| {
            (&attempt.chain, &attempt.sender, attempt.nonce) == (&row.chain, &row.sender, row.nonce)
        };
        let attempts = attempts.iter().filter(same).cloned().collect();
        (row.id, TransactionView { row, attempts })
    };
    let by_id: HashMap<i64, TransactionView> = carrying.into_iter().map(transaction).collect();
    let operation = |row: operations::Model| {
        // One transaction may carry many operations.
        let transaction = row.chain_tx_id.and_then(|id| by_id.get(&id).cloned());
        Operation { row, transaction }
    };
    Ok(rows.into_iter().map(operation).collect())
}
