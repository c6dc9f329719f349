//! The settler's queries: queued operations, and transactions that are not final. `attempts` has the signed bytes.

use std::collections::HashMap;

use payferry_domain::{Address, Amount, Chain, Finality, FinalityPolicy, Timestamp};
use payferry_entities::{
    ChainTxStatus, Database, OperationStatus, authorizations, chain_txs, operations, payments, query_all, sendings,
};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, ExprTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select,
};
use serde::Deserialize;

use super::rows::row_number;
use super::{Role, is_outbound};

/// Maximum number of mined or failed operations per pass; the next pass continues after them.
const OPERATIONS_PAGE: u64 = 5_000;
/// Maximum number of unmined transactions per pass: far above the limit per account.
const SUBMITTED_TXS_MAX: u64 = 1_000;
/// Maximum number of mined transactions per pass; the next pass continues after them.
const MINED_TXS_PAGE: u64 = 1_000;
/// Maximum number of reverted transactions per pass, newest first.
const REVERTED_TXS_MAX: u64 = 1_000;

/// Position in a list that may be longer than one pass. It wraps around at the end, so that long waits at the front
/// hide nothing behind them.
#[derive(Clone, Debug)]
pub struct QueuePage<P> {
    after: Option<P>,
}

impl<P> Default for QueuePage<P> {
    fn default() -> Self {
        Self { after: None }
    }
}

impl<P> QueuePage<P> {
    /// True if the next pass starts at the beginning of the list.
    pub fn is_first(&self) -> bool {
        self.after.is_none()
    }

    /// Continues after these rows if there may be more.
    fn turn<T>(&mut self, rows: &[T], limit: u64, place: impl Fn(&T) -> P) {
        self.after = rows.last().filter(|_| rows.len() as u64 >= limit).map(place);
    }
}

/// Numbers of rows that a pass may have to read. Most passes need none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenWork {
    /// Operations that wait for a transaction.
    pub queued: u64,
    /// Operations that have failed.
    pub failed: u64,
    /// Operations that are mined and not applied by their payments.
    pub mined: u64,
    /// Unmined transactions.
    pub submitted_txs: u64,
    /// Mined transactions that are not final.
    pub mined_txs: u64,
    /// Transactions that reverted in a block that may still be orphaned.
    pub reverted_txs: u64,
}

impl OpenWork {
    /// Counts the rows of a chain. Blocks up to `finalized` cannot be orphaned.
    pub async fn count(database: &Database, chain: Chain, finalized: u64) -> Result<Self, DbErr> {
        use OperationStatus::{Failed, Mined, Queued};
        let (submitted, mined, reverted) = (ChainTxStatus::Submitted, ChainTxStatus::Mined, ChainTxStatus::Reverted);
        let sql = format!(
            "SELECT 'operation' AS kind, status, COUNT(*) AS number FROM operations \
             WHERE chain = $1 AND status IN ('{Queued}', '{Failed}', '{Mined}') GROUP BY status \
             UNION ALL SELECT 'tx' AS kind, status, COUNT(*) AS number FROM chain_txs \
             WHERE chain = $1 AND status IN ('{submitted}', '{mined}') GROUP BY status \
             UNION ALL SELECT 'tx' AS kind, status, COUNT(*) AS number FROM chain_txs \
             WHERE chain = $1 AND status = '{reverted}' AND block_number > $2 GROUP BY status"
        );
        let mut counts: HashMap<(String, String), i64> = HashMap::new();
        for row in query_all(database.reader(), &sql, [chain.as_str().into(), row_number(finalized).into()]).await? {
            counts.insert((row.try_get_by_index(0)?, row.try_get_by_index(1)?), row.try_get_by_index(2)?);
        }
        let of = |kind: &str, status: &str| {
            counts.get(&(kind.to_owned(), status.to_owned())).map_or(0, |count| count.unsigned_abs())
        };
        Ok(Self {
            queued: of("operation", Queued.as_str()),
            failed: of("operation", Failed.as_str()),
            mined: of("operation", Mined.as_str()),
            submitted_txs: of("tx", submitted.as_str()),
            mined_txs: of("tx", mined.as_str()),
            reverted_txs: of("tx", reverted.as_str()),
        })
    }

    /// True if a pass may change the status of operations.
    pub const fn has_txs(&self) -> bool {
        self.submitted_txs + self.mined_txs + self.reverted_txs > 0
    }
}

/// Position of an operation: creation time and id.
pub type OperationPosition = (i64, String);

fn operations_with(chain: Chain, status: OperationStatus) -> Select<operations::Entity> {
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.eq(status))
}

/// Operations of this role that can be batched now, oldest first, without those of these tokens.
pub async fn queued(
    database: &Database,
    chain: Chain,
    role: Role,
    without_tokens: &[String],
    now: Timestamp,
    limit: usize,
) -> Result<Vec<operations::Model>, DbErr> {
    operations_with(chain, OperationStatus::Queued)
        .filter(operations::Column::Kind.is_in(role.kinds().iter().copied()))
        .filter(operations::Column::NotBefore.lte(now.as_millis()))
        .filter(operations::Column::TokenAddress.is_not_in(without_tokens))
        .order_by_asc(operations::Column::CreatedAt)
        .order_by_asc(operations::Column::Id)
        .limit(limit as u64)
        .all(database.reader())
        .await
}

/// Page of the operations with this status, oldest first.
pub async fn with_status(
    database: &Database,
    chain: Chain,
    status: OperationStatus,
    page: &mut QueuePage<OperationPosition>,
) -> Result<Vec<operations::Model>, DbErr> {
    paged(database, operations_with(chain, status), page).await
}

async fn paged(
    database: &Database,
    mut query: Select<operations::Entity>,
    page: &mut QueuePage<OperationPosition>,
) -> Result<Vec<operations::Model>, DbErr> {
    use operations::Column::{CreatedAt, Id};
    if let Some((created_at, id)) = &page.after {
        let after = CreatedAt.gt(*created_at).or(CreatedAt.eq(*created_at).and(Id.gt(id.as_str())));
        query = query.filter(after);
    }
    let query = query.order_by_asc(CreatedAt).order_by_asc(Id).limit(OPERATIONS_PAGE);
    let rows = query.all(database.reader()).await?;
    page.turn(&rows, OPERATIONS_PAGE, |row| (row.created_at, row.id.clone()));
    Ok(rows)
}

/// Statuses of an operation without an outcome. With a revision above 1, it may have had one.
pub const UNDONE: [OperationStatus; 2] = [OperationStatus::Queued, OperationStatus::Submitted];

/// Page of the operations that were queued or sent again, oldest first: a reorganisation may have undone their outcome. The
/// payment may have any status: a settlement can complete before its funds are final again.
pub async fn undone(
    database: &Database,
    chain: Chain,
    page: &mut QueuePage<OperationPosition>,
) -> Result<Vec<operations::Model>, DbErr> {
    let undone = operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.is_in(UNDONE))
        .filter(operations::Column::Revision.gt(1));
    paged(database, undone, page).await
}

/// Operations of these payments and outbound transfers on the chain that are not cancelled or applied.
pub async fn of_subjects(
    database: &Database,
    chain: Chain,
    subjects: &[String],
) -> Result<Vec<operations::Model>, DbErr> {
    use OperationStatus::{Cancelled, Succeeded};
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::PaymentId.is_in(subjects))
        .filter(operations::Column::Status.is_not_in([Cancelled, Succeeded]))
        .all(database.reader())
        .await
}

/// Authorizations in transactions that are not final.
pub async fn authorizations_in_txs(database: &Database, chain: Chain) -> Result<Vec<operations::Model>, DbErr> {
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.is_in([OperationStatus::Submitted, OperationStatus::Mined]))
        .filter(operations::Column::Kind.is_in(Role::Collect.kinds().iter().copied()))
        .order_by_asc(operations::Column::CreatedAt)
        .limit(OPERATIONS_PAGE)
        .all(database.reader())
        .await
}

/// Signatures of the authorizations that these operations collect, by operation.
pub async fn signatures(
    database: &Database,
    rows: &[operations::Model],
) -> Result<HashMap<String, authorizations::Model>, DbErr> {
    let ids = rows.iter().map(|row| row.id.as_str());
    let query = authorizations::Entity::find().filter(authorizations::Column::OperationId.is_in(ids));
    let found = query.all(database.reader()).await?;
    Ok(found.into_iter().map(|signed| (signed.operation_id.clone(), signed)).collect())
}

/// Operations in these transactions.
pub async fn carried(database: &Database, txs: &[i64]) -> Result<Vec<operations::Model>, DbErr> {
    in_txs(txs).all(database.reader()).await
}

fn in_txs(txs: &[i64]) -> Select<operations::Entity> {
    operations::Entity::find()
        .filter(operations::Column::ChainTxId.is_in(txs.iter().copied()))
        .order_by_asc(operations::Column::Id)
}

/// Operations in these mined transactions that are neither mined nor failed yet: the contract rejected them.
pub async fn carried_undecided(database: &Database, txs: &[i64]) -> Result<Vec<operations::Model>, DbErr> {
    if txs.is_empty() {
        return Ok(Vec::new());
    }
    in_txs(txs).filter(operations::Column::Status.eq(OperationStatus::Submitted)).all(database.reader()).await
}

/// Operations with these ids, or with these nonces of authorizations, that are in no transaction now: queued, failed or
/// cancelled.
pub async fn idle(
    database: &Database,
    chain: Chain,
    ids: &[String],
    nonces: &[String],
) -> Result<Vec<operations::Model>, DbErr> {
    use OperationStatus::{Cancelled, Failed, Queued};
    if ids.is_empty() && nonces.is_empty() {
        return Ok(Vec::new());
    }
    operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .filter(operations::Column::Status.is_in([Queued, Failed, Cancelled]))
        .filter(operations::Column::Id.is_in(ids).or(operations::Column::Nonce.is_in(nonces)))
        .all(database.reader())
        .await
}

fn txs(chain: Chain, status: ChainTxStatus) -> Select<chain_txs::Entity> {
    chain_txs::Entity::find()
        .filter(chain_txs::Column::Chain.eq(chain.as_str()))
        .filter(chain_txs::Column::Status.eq(status))
}

/// Unmined transactions, by nonce.
pub async fn submitted_txs(database: &Database, chain: Chain) -> Result<Vec<chain_txs::Model>, DbErr> {
    let query = txs(chain, ChainTxStatus::Submitted).order_by_asc(chain_txs::Column::Nonce).limit(SUBMITTED_TXS_MAX);
    query.all(database.reader()).await
}

/// Page of the mined transactions that are not final, oldest first. Without the call data, which is long and only
/// needed for signing.
pub async fn mined_txs(
    database: &Database,
    chain: Chain,
    page: &mut QueuePage<i64>,
) -> Result<Vec<chain_txs::Model>, DbErr> {
    let query = without_input(
        txs(chain, ChainTxStatus::Mined).filter(chain_txs::Column::Id.gt(page.after.unwrap_or(i64::MIN))),
    );
    let query = query.order_by_asc(chain_txs::Column::Id).limit(MINED_TXS_PAGE);
    let rows = query.all(database.reader()).await?;
    page.turn(&rows, MINED_TXS_PAGE, |row| row.id);
    Ok(rows)
}

/// Newest transactions that reverted in a block that may still be orphaned. Without the call data.
pub async fn reverted_txs(database: &Database, chain: Chain, finalized: u64) -> Result<Vec<chain_txs::Model>, DbErr> {
    let query = without_input(
        txs(chain, ChainTxStatus::Reverted).filter(chain_txs::Column::BlockNumber.gt(row_number(finalized))),
    );
    let query = query.order_by_desc(chain_txs::Column::BlockNumber).limit(REVERTED_TXS_MAX);
    query.all(database.reader()).await
}

fn without_input(query: Select<chain_txs::Entity>) -> Select<chain_txs::Entity> {
    use chain_txs::Column;
    query
        .select_only()
        .columns([Column::Id, Column::Chain, Column::Sender, Column::Nonce, Column::ToAddress])
        .columns([Column::GasLimit, Column::Status, Column::TxHash, Column::BlockNumber, Column::BlockHash])
        .columns([Column::CreatedAt, Column::UpdatedAt])
        .expr_as(Expr::val(""), "input")
}

/// Number of unmined transactions of the account.
pub async fn unmined(database: &Database, chain: Chain, sender: Address) -> Result<u64, DbErr> {
    txs(chain, ChainTxStatus::Submitted)
        .filter(chain_txs::Column::Sender.eq(sender.to_string()))
        .count(database.reader())
        .await
}

/// Transactions by row id.
pub async fn txs_by_id(database: &Database, ids: &[i64]) -> Result<HashMap<i64, chain_txs::Model>, DbErr> {
    let rows = chain_txs::Entity::find()
        .filter(chain_txs::Column::Id.is_in(ids.iter().copied()))
        .all(database.reader())
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Nonce after the account's last one assigned here; `None` if there is none.
pub async fn next_nonce(database: &Database, chain: Chain, sender: Address) -> Result<Option<i64>, DbErr> {
    let last = chain_txs::Entity::find()
        .filter(chain_txs::Column::Chain.eq(chain.as_str()))
        .filter(chain_txs::Column::Sender.eq(sender.to_string()))
        .order_by_desc(chain_txs::Column::Nonce)
        .one(database.reader())
        .await?;
    Ok(last.map(|tx| tx.nonce.saturating_add(1)))
}

/// Transactions of the account with nonces from `from` to below `end`, by nonce. Unassigned nonces are absent. Without
/// the call data.
pub async fn txs_by_nonce(
    database: &Database,
    chain: Chain,
    sender: &str,
    from: i64,
    end: i64,
) -> Result<HashMap<i64, chain_txs::Model>, DbErr> {
    let query = chain_txs::Entity::find()
        .filter(chain_txs::Column::Chain.eq(chain.as_str()))
        .filter(chain_txs::Column::Sender.eq(sender))
        .filter(chain_txs::Column::Nonce.gte(from))
        .filter(chain_txs::Column::Nonce.lt(end));
    let rows = without_input(query).all(database.reader()).await?;
    Ok(rows.into_iter().map(|row| (row.nonce, row)).collect())
}

/// Finality that each payment's terms require for the amount moved. Unreadable terms require the highest.
pub async fn tiers(database: &Database, rows: &[&operations::Model]) -> Result<HashMap<String, Finality>, DbErr> {
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
        if rows.iter().any(|row| is_outbound(row)) {
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
        // Terms apply to their own chain; funds recovered from another chain require the highest finality there.
        let policy = policies.get(&row.payment_id).filter(|(chain, _)| *chain == row.chain).map(|(_, policy)| policy);
        let tier = policy.map_or(Finality::Finalized, |policy| policy.required(Amount::from_units(row.amount)));
        (row.id.clone(), tier)
    };
    Ok(rows.iter().map(tier).collect())
}

#[cfg(test)]
mod tests {
    use sea_orm::IntoActiveModel;

    use super::*;
    use crate::chain::attempts::{self, tests::OLD};
    use crate::writer::tests::Env;

    fn tx(nonce: i64, status: ChainTxStatus) -> chain_txs::Model {
        attempts::tests::tx(OLD, nonce, status)
    }

    #[tokio::test]
    async fn mined_transactions_are_paged_and_hide_no_submitted_one() {
        let Env { database, .. } = &Env::new().await;
        let rows = (0..1_001)
            .map(|nonce| tx(nonce, ChainTxStatus::Mined))
            .chain([tx(1_001, ChainTxStatus::Submitted), tx(1_002, ChainTxStatus::Reverted)]);
        let rows: Vec<_> = rows.map(IntoActiveModel::into_active_model).collect();
        for some in rows.chunks(250) {
            chain_txs::Entity::insert_many(some.to_vec()).exec(database.writer()).await.unwrap();
        }
        let short = |nonce, status| chain_txs::Model { input: String::new(), ..tx(nonce, status) };

        assert_eq!(submitted_txs(database, Chain::Base).await.unwrap(), [tx(1_001, ChainTxStatus::Submitted)]);
        let open = OpenWork { mined_txs: 1_001, submitted_txs: 1, ..OpenWork::default() };
        let count = async |chain, finalized| OpenWork::count(database, chain, finalized).await.unwrap();
        assert_eq!(count(Chain::Base, 1_002).await, open);
        assert_eq!(count(Chain::Base, 1_001).await, OpenWork { reverted_txs: 1, ..open });
        assert_eq!(count(Chain::Polygon, 0).await, OpenWork::default());
        let mut page = QueuePage::default();
        let first = mined_txs(database, Chain::Base, &mut page).await.unwrap();
        assert_eq!((first.len(), &first[0], page.is_first()), (1_000, &short(0, ChainTxStatus::Mined), false));
        assert_eq!(mined_txs(database, Chain::Base, &mut page).await.unwrap(), [short(1_000, ChainTxStatus::Mined)]);
        assert!(page.is_first(), "from the start again");
        assert_eq!(mined_txs(database, Chain::Base, &mut page).await.unwrap(), first);
        assert!(mined_txs(database, Chain::Polygon, &mut QueuePage::default()).await.unwrap().is_empty());

        assert_eq!(reverted_txs(database, Chain::Base, 1_001).await.unwrap(), [short(1_002, ChainTxStatus::Reverted)]);
        assert!(reverted_txs(database, Chain::Base, 1_002).await.unwrap().is_empty(), "final");
    }
}
