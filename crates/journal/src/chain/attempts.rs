//! Signed bytes, stored before they are sent: of open transactions and of old ones.
//!
//! The table has every attempt ever signed, with its whole call data, so every query must use the index.

use std::collections::BTreeMap;

use payferry_domain::{Chain, Hash32, Timestamp};
use payferry_entities::{Database, chain_tx_attempts, chain_txs};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};

/// Maximum number of nonces of one account per statement.
const NONCES_MAX: usize = 512;

/// Attempts by sender and nonce, lowest fee first: each attempt has a higher fee than the previous one.
pub type Attempts = BTreeMap<(String, i64), Vec<chain_tx_attempts::Model>>;

/// Attempts of these transactions.
pub async fn of(database: &Database, chain: Chain, txs: &[chain_txs::Model]) -> Result<Attempts, DbErr> {
    let mut nonces: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for tx in txs {
        nonces.entry(&tx.sender).or_default().push(tx.nonce);
    }
    let mut found = Attempts::new();
    for (sender, nonces) in nonces {
        for some in nonces.chunks(NONCES_MAX) {
            for row in attempts_of(chain, sender, some).all(database.reader()).await? {
                found.entry((row.sender.clone(), row.nonce)).or_default().push(row);
            }
        }
    }
    for attempts in found.values_mut() {
        attempts.sort_by_key(offer);
    }
    Ok(found)
}

/// Fee offer. It orders the attempts, and not their times: a clock may be set back.
fn offer(attempt: &chain_tx_attempts::Model) -> u128 {
    attempt.max_fee_per_gas.parse().unwrap_or_default()
}

/// Uses all three columns of the index, so that no other attempts are read.
fn attempts_of(chain: Chain, sender: &str, nonces: &[i64]) -> Select<chain_tx_attempts::Entity> {
    // Few distinct lengths, so that prepared statements are reused.
    let places = nonces.len().next_power_of_two();
    let nonces = nonces.iter().chain(nonces.last().into_iter().cycle()).take(places).copied();
    chain_tx_attempts::Entity::find()
        .filter(chain_tx_attempts::Column::Chain.eq(chain.as_str()))
        .filter(chain_tx_attempts::Column::Sender.eq(sender))
        .filter(chain_tx_attempts::Column::Nonce.is_in(nonces))
}

/// Hashes of each account's newest attempts, at most `limit`, made since `since`.
pub async fn since(database: &Database, chain: Chain, since: Timestamp, limit: u64) -> Result<Vec<Hash32>, DbErr> {
    let mut found = Vec::new();
    let mut after = String::new();
    while let Some(sender) = next_sender(chain, &after).into_tuple::<Option<String>>().one(database.reader()).await? {
        let Some(sender) = sender else { break };
        let newest = newest_attempts(chain, &sender, limit).into_tuple::<(String, i64)>();
        let newest = newest.all(database.reader()).await?.into_iter();
        found.extend(newest.filter(|(_, created_at)| *created_at >= since.as_millis()).map(|(hash, _)| hash));
        after = sender;
    }
    Ok(found.iter().filter_map(|hash| hash.parse().ok()).collect())
}

/// The next account in the index.
fn next_sender(chain: Chain, after: &str) -> Select<chain_tx_attempts::Entity> {
    chain_tx_attempts::Entity::find()
        .select_only()
        .column_as(chain_tx_attempts::Column::Sender.min(), "sender")
        .filter(chain_tx_attempts::Column::Chain.eq(chain.as_str()))
        .filter(chain_tx_attempts::Column::Sender.gt(after))
}

fn newest_attempts(chain: Chain, sender: &str, limit: u64) -> Select<chain_tx_attempts::Entity> {
    chain_tx_attempts::Entity::find()
        .select_only()
        .columns([chain_tx_attempts::Column::TxHash, chain_tx_attempts::Column::CreatedAt])
        .filter(chain_tx_attempts::Column::Chain.eq(chain.as_str()))
        .filter(chain_tx_attempts::Column::Sender.eq(sender))
        .order_by_desc(chain_tx_attempts::Column::Nonce)
        .limit(limit)
}

/// Hashes of a transaction's attempts.
pub fn hashes(attempts: &Attempts, tx: &chain_txs::Model) -> Vec<Hash32> {
    let attempts = attempts.get(&(tx.sender.clone(), tx.nonce));
    attempts.into_iter().flatten().filter_map(|attempt| attempt.tx_hash.parse().ok()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use payferry_entities::ChainTxStatus;
    use payferry_harness::database::query_plan;
    use sea_orm::{DbBackend, IntoActiveModel, QueryTrait};

    use super::*;
    use crate::writer::tests::{Env, attempt_of, chain_tx};

    pub(in crate::chain) const OLD: &str = "0x00000000000000000000000000000000000000aa";
    const NEW: &str = "0x00000000000000000000000000000000000000bb";
    /// Number of attempts of the previous account.
    const BEFORE: i64 = 2_000;

    fn attempt(sender: &str, nonce: i64) -> chain_tx_attempts::Model {
        let place = if sender == NEW { nonce + BEFORE } else { nonce };
        let (tx_hash, sender) = (format!("0x{place:064x}"), sender.to_owned());
        chain_tx_attempts::Model { tx_hash, sender, created_at: place, ..attempt_of(nonce) }
    }

    pub(in crate::chain) fn tx(sender: &str, nonce: i64, status: ChainTxStatus) -> chain_txs::Model {
        chain_txs::Model {
            id: nonce + 1,
            sender: sender.to_owned(),
            input: "0x1234".to_owned(),
            status,
            block_number: Some(nonce),
            ..chain_tx(nonce)
        }
    }

    /// Creates a database in which one account has signed many transactions and another one has replaced it.
    async fn replaced() -> Env {
        let env = Env::new().await;
        let old = (0..BEFORE).map(|nonce| attempt(OLD, nonce));
        let all: Vec<_> = old.chain([attempt(NEW, 0)]).map(IntoActiveModel::into_active_model).collect();
        for some in all.chunks(500) {
            chain_tx_attempts::Entity::insert_many(some.to_vec()).exec(env.database.writer()).await.unwrap();
        }
        env
    }

    #[tokio::test]
    async fn attempts_are_ordered_by_fee_although_the_clock_was_set_back() {
        let Env { database, .. } = &replaced().await;
        // Higher fees, signed before the first attempt by the clock.
        let higher = ["9", "10"].map(|fee| chain_tx_attempts::Model {
            tx_hash: format!("0xbeef{fee}"),
            max_fee_per_gas: fee.to_owned(),
            created_at: -fee.parse::<i64>().unwrap(),
            ..attempt(NEW, 0)
        });
        let higher = higher.map(IntoActiveModel::into_active_model);
        chain_tx_attempts::Entity::insert_many(higher).exec(database.writer()).await.unwrap();
        let found = of(database, Chain::Base, &[tx(NEW, 0, ChainTxStatus::Submitted)]).await.unwrap();
        let offers = found.values().flatten().map(|attempt| attempt.max_fee_per_gas.as_str());
        assert_eq!(offers.collect::<Vec<_>>(), ["1", "9", "10"]);
    }

    async fn plan(database: &Database, query: Select<chain_tx_attempts::Entity>) -> String {
        query_plan(database.reader(), query.build(DbBackend::Sqlite)).await.join("; ")
    }

    #[tokio::test]
    async fn attempts_of_a_previous_account_are_not_read_for_a_new_one() {
        let Env { database, .. } = &replaced().await;
        let found = of(database, Chain::Base, &[tx(NEW, 0, ChainTxStatus::Submitted)]).await.unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [((NEW.to_owned(), 0), vec![attempt(NEW, 0)])]);
        let both = [
            tx(OLD, 7, ChainTxStatus::Submitted),
            tx(NEW, 0, ChainTxStatus::Submitted),
            tx(OLD, 9, ChainTxStatus::Mined),
            tx(OLD, BEFORE, ChainTxStatus::Mined),
        ];
        let found = of(database, Chain::Base, &both).await.unwrap();
        let keys: Vec<_> = found.keys().map(|(sender, nonce)| (sender.as_str(), *nonce)).collect();
        assert_eq!(keys, [(OLD, 7), (OLD, 9), (NEW, 0)]);
        assert!(of(database, Chain::Base, &[]).await.unwrap().is_empty());
        if database.backend() == DbBackend::Sqlite {
            let plan = plan(database, attempts_of(Chain::Base, NEW, &[0, 1, 2])).await;
            assert!(plan.contains("chain_tx_attempts_chain_sender_nonce (chain=? AND sender=? AND nonce=?)"), "{plan}");
        }
    }

    #[tokio::test]
    async fn newest_attempts_of_each_account_are_found_by_index() {
        let Env { database, .. } = &replaced().await;
        let hash = |sender, nonce| attempt(sender, nonce).tx_hash.parse::<Hash32>().unwrap();
        let found = since(database, Chain::Base, Timestamp(BEFORE - 2), 10).await.unwrap();
        assert_eq!(found, [hash(OLD, BEFORE - 1), hash(OLD, BEFORE - 2), hash(NEW, 0)]);
        let found = since(database, Chain::Base, Timestamp(0), 3).await.unwrap();
        assert_eq!(found.len(), 4, "the last three of one account, and all of the other");
        assert!(since(database, Chain::Polygon, Timestamp(0), 3).await.unwrap().is_empty());
        if database.backend() == DbBackend::Sqlite {
            let next = plan(database, next_sender(Chain::Base, OLD)).await;
            assert!(next.contains("chain_tx_attempts_chain_sender_nonce (chain=? AND sender>?)"), "{next}");
            let newest = plan(database, newest_attempts(Chain::Base, OLD, 3)).await;
            assert!(newest.contains("chain_tx_attempts_chain_sender_nonce (chain=? AND sender=?)"), "{newest}");
            assert!(!newest.contains("TEMP B-TREE"), "{newest}");
        }
    }
}
