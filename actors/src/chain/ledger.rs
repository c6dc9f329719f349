//! The settler's queries: operations that wait, transactions that are not final, signed bytes.

use std::collections::{BTreeMap, HashMap};

use payferry_domain::{Address, Amount, Chain, Finality, FinalityPolicy, Hash32, Timestamp};
use payferry_entities::{Database, chain_tx_attempts, chain_txs, operations, payments, sendings};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;

use super::operations::{Role, is_sending};
use super::rows::row_number;

/// Most mined operations looked at in one pass.
const MINED_MAX: u64 = 5_000;
/// Most transactions looked at in one pass.
const OPEN_TXS_MAX: u64 = 1_000;

/// Operations of this role that may be batched now, in the order of their numbers.
pub(super) async fn queued(
    database: &Database,
    chain: Chain,
    role: Role,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<operations::Model>, DbErr> {
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.eq("queued"))
        .filter(operations::Column::Kind.is_in(role.kinds().iter().copied()))
        .filter(operations::Column::NotBefore.lte(now.as_millis()))
        .order_by_asc(operations::Column::Number)
        .limit(limit as u64)
        .all(database.reader())
        .await
}

/// Operations with this status, in the order of their numbers.
pub(super) async fn with_status(
    database: &Database,
    chain: Chain,
    status: &str,
) -> Result<Vec<operations::Model>, DbErr> {
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.eq(status))
        .order_by_asc(operations::Column::Number)
        .limit(MINED_MAX)
        .all(database.reader())
        .await
}

/// Operations that these transactions carry.
pub(super) async fn carried(database: &Database, txs: &[i64]) -> Result<Vec<operations::Model>, DbErr> {
    operations::Entity::find()
        .filter(operations::Column::ChainTxId.is_in(txs.iter().copied()))
        .order_by_asc(operations::Column::Number)
        .all(database.reader())
        .await
}

/// Operations that these mined transactions carry and that are neither mined nor failed yet: the contract refused them.
pub(super) async fn carried_undecided(database: &Database, txs: &[i64]) -> Result<Vec<operations::Model>, DbErr> {
    if txs.is_empty() {
        return Ok(Vec::new());
    }
    operations::Entity::find()
        .filter(operations::Column::ChainTxId.is_in(txs.iter().copied()))
        .filter(operations::Column::Status.eq("submitted"))
        .order_by_asc(operations::Column::Number)
        .all(database.reader())
        .await
}

/// Transactions that are not final, by nonce: submitted, mined, and those of the newest reverted ones that may still be
/// taken back.
pub(super) async fn open_txs(
    database: &Database,
    chain: Chain,
    finalized: Option<u64>,
) -> Result<Vec<chain_txs::Model>, DbErr> {
    let of_chain = || chain_txs::Entity::find().filter(chain_txs::Column::Chain.eq(chain.as_str()));
    let mut txs = of_chain()
        .filter(chain_txs::Column::Status.is_in(["submitted", "mined"]))
        .order_by_asc(chain_txs::Column::Nonce)
        .limit(OPEN_TXS_MAX)
        .all(database.reader())
        .await?;
    if let Some(finalized) = finalized {
        let reverted = of_chain()
            .filter(chain_txs::Column::Status.eq("reverted"))
            .filter(chain_txs::Column::BlockNumber.gt(row_number(finalized)))
            .order_by_desc(chain_txs::Column::BlockNumber)
            .limit(OPEN_TXS_MAX)
            .all(database.reader())
            .await?;
        txs.extend(reverted);
        txs.sort_by_key(|tx| tx.nonce);
    }
    Ok(txs)
}

/// How many transactions of the account wait to be mined.
pub(super) async fn unmined(database: &Database, chain: Chain, sender: Address) -> Result<u64, DbErr> {
    chain_txs::Entity::find()
        .filter(chain_txs::Column::Chain.eq(chain.as_str()))
        .filter(chain_txs::Column::Status.eq("submitted"))
        .filter(chain_txs::Column::Sender.eq(sender.to_string()))
        .count(database.reader())
        .await
}

/// How many operations wait for a transaction.
pub(super) async fn queued_len(database: &Database, chain: Chain) -> Result<u64, DbErr> {
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.eq("queued"))
        .count(database.reader())
        .await
}

/// Rows of transactions by their number.
pub(super) async fn txs_by_id(database: &Database, ids: &[i64]) -> Result<HashMap<i64, chain_txs::Model>, DbErr> {
    let rows = chain_txs::Entity::find()
        .filter(chain_txs::Column::Id.is_in(ids.iter().copied()))
        .all(database.reader())
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// The account's nonce after the last one that was given out here; `None` if none was.
pub(super) async fn next_nonce(database: &Database, chain: Chain, sender: Address) -> Result<Option<i64>, DbErr> {
    let last = chain_txs::Entity::find()
        .filter(chain_txs::Column::Chain.eq(chain.as_str()))
        .filter(chain_txs::Column::Sender.eq(sender.to_string()))
        .order_by_desc(chain_txs::Column::Nonce)
        .one(database.reader())
        .await?;
    Ok(last.map(|tx| tx.nonce.saturating_add(1)))
}

/// Signed bytes by sender and nonce, the first attempt first.
pub(super) type Attempts = BTreeMap<(String, i64), Vec<chain_tx_attempts::Model>>;

/// The attempts of these transactions.
pub(super) async fn attempts(database: &Database, chain: Chain, txs: &[chain_txs::Model]) -> Result<Attempts, DbErr> {
    let mut found = Attempts::new();
    let Some(lowest) = txs.iter().map(|tx| tx.nonce).min() else { return Ok(found) };
    let rows = chain_tx_attempts::Entity::find()
        .filter(chain_tx_attempts::Column::Chain.eq(chain.as_str()))
        .filter(chain_tx_attempts::Column::Nonce.gte(lowest))
        .order_by_asc(chain_tx_attempts::Column::CreatedAt)
        .all(database.reader())
        .await?;
    for row in rows {
        found.entry((row.sender.clone(), row.nonce)).or_default().push(row);
    }
    Ok(found)
}

/// The hashes of the newest attempts of any transaction, of those made since then.
pub(super) async fn attempts_since(
    database: &Database,
    chain: Chain,
    since: Timestamp,
    limit: u64,
) -> Result<Vec<Hash32>, DbErr> {
    let rows = chain_tx_attempts::Entity::find()
        .filter(chain_tx_attempts::Column::Chain.eq(chain.as_str()))
        .filter(chain_tx_attempts::Column::CreatedAt.gte(since.as_millis()))
        .order_by_desc(chain_tx_attempts::Column::CreatedAt)
        .limit(limit)
        .all(database.reader())
        .await?;
    Ok(rows.iter().filter_map(|row| row.tx_hash.parse().ok()).collect())
}

/// The hashes of a transaction's attempts.
pub(super) fn hashes(attempts: &Attempts, tx: &chain_txs::Model) -> Vec<Hash32> {
    let attempts = attempts.get(&(tx.sender.clone(), tx.nonce));
    attempts.into_iter().flatten().filter_map(|attempt| attempt.tx_hash.parse().ok()).collect()
}

/// The finality that each payment's terms ask for the amount moved. Terms that cannot be read ask for the most.
pub(super) async fn tiers(
    database: &Database,
    rows: &[&operations::Model],
) -> Result<HashMap<String, Finality>, DbErr> {
    #[derive(Deserialize)]
    struct State {
        #[serde(alias = "order")]
        terms: Terms,
    }
    #[derive(Deserialize)]
    struct Terms {
        finality: FinalityPolicy,
    }
    let ids: Vec<&str> = rows.iter().map(|row| row.payment_id.as_str()).collect();
    let mut policies: HashMap<String, (String, FinalityPolicy)> = HashMap::new();
    for ids in ids.chunks(500) {
        let mut found: Vec<(String, String, String)> = payments::Entity::find()
            .select_only()
            .columns([payments::Column::Id, payments::Column::Chain, payments::Column::State])
            .filter(payments::Column::Id.is_in(ids.iter().copied()))
            .into_tuple()
            .all(database.reader())
            .await?;
        if rows.iter().any(|row| is_sending(row)) {
            let sendings = sendings::Entity::find()
                .select_only()
                .columns([sendings::Column::Id, sendings::Column::Chain, sendings::Column::State])
                .filter(sendings::Column::Id.is_in(ids.iter().copied()))
                .into_tuple::<(String, String, String)>();
            found.extend(sendings.all(database.reader()).await?);
        }
        for (id, chain, state) in found {
            if let Ok(state) = serde_json::from_str::<State>(&state) {
                policies.insert(id, (chain, state.terms.finality));
            }
        }
    }
    let tier = |row: &&operations::Model| {
        // Terms speak of their own chain; money that was recovered from another waits for the most there.
        let policy = policies.get(&row.payment_id).filter(|(chain, _)| *chain == row.chain).map(|(_, policy)| policy);
        let tier = policy.map_or(Finality::Finalized, |policy| policy.required(Amount::from_units(row.amount)));
        (row.id.clone(), tier)
    };
    Ok(rows.iter().map(tier).collect())
}
