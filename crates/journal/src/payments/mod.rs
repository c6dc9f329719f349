//! Mapping between rows and the payment aggregate.
//!
//! Owned here: what the columns of `payments` hold, how payments are found and read back, and what a transition of the
//! domain writes. The `state` column is the whole aggregate as JSON; every other column is derived from it, for queries
//! and for the compare-and-swap. Deliberately absent: decisions, and the writing itself (`writer`).

#[cfg(test)]
mod tests;
mod unapplied;
mod writes;

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::lists::{text_list, texts_of};
use payferry_domain::payment::Payment;
use payferry_domain::{Address, Chain, PaymentId, Timestamp};
use payferry_entities::{Database, find_all, payments, query_all, transfers};
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder, QueryResult, TryGetableMany, Value};
use serde::Serialize;

pub use payferry_entities::StoreError;
pub use unapplied::Unapplied;
pub use writes::{CommandOutcome, RequestRows, SET_ASIDE, applied_write, initiation_write, transition_write};
pub(crate) use writes::{EventSubject, new_event};

/// Maximum number of payments per lookup statement.
const LOOKUP_PAYMENTS_MAX: usize = 512;
/// Maximum number of transfers of one payment that are notified again at a time.
const UNAPPLIED_OF_ONE_MAX: i64 = 100;
/// Initial capacity for a payment's JSON.
const JSON_USUAL_BYTES: usize = 1_536;
/// Maximum number of addresses per lookup statement.
const LOOKUP_ADDRESSES_MAX: usize = 1_000;
/// Number of live payments per statement that reads wallets.
const LIVE_WALLETS_PAGE: u64 = 10_000;

/// Row of a payment.
pub fn row_of(payment: &Payment) -> Result<payments::Model, StoreError> {
    let terms = &payment.terms;
    let unreadable = |error| StoreError::unreadable("payment", &terms.id, &error);
    Ok(payments::Model {
        id: terms.id.to_string(),
        psp_id: terms.psp_id.to_string(),
        purpose: terms.purpose.as_str().to_owned(),
        merchant_id: terms.merchant_id.map(|id| id.to_string()),
        customer_id: terms.customer_id.map(|id| id.to_string()),
        reference: terms.reference.clone(),
        shard: i64::from(terms.id.shard()),
        version: i64::from(payment.version),
        status: payment.status.as_str().to_owned(),
        live: payment.is_live(),
        attention: payment.attention().map(|label| label.as_str().to_owned()),
        labels: (!payment.labels.is_empty()).then(|| json(&payment.labels)).transpose().map_err(unreadable)?,
        chain: terms.chain.as_str().to_owned(),
        token: terms.token.as_str().to_owned(),
        amount: terms.amount.units(),
        amount_received: payment.amount_received().units(),
        wallet: terms.wallet.to_string(),
        link_token: terms.link_token.clone(),
        expires_at: payment.expires_at.as_millis(),
        created_at: terms.created_at.as_millis(),
        updated_at: payment.updated_at.as_millis(),
        state: json(payment).map_err(unreadable)?,
    })
}

/// Serialises to JSON with the usual capacity, to avoid reallocations: a new payment is written twice.
fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(JSON_USUAL_BYTES);
    serde_json::to_writer(&mut bytes, value)?;
    Ok(String::from_utf8(bytes).expect("JSON is UTF-8"))
}

/// Payment in a row. Its id and version must match the columns.
pub fn payment_of(row: &payments::Model) -> Result<Payment, StoreError> {
    read(&row.id, row.version, &row.state)
}

fn read(id: &str, version: i64, state: &str) -> Result<Payment, StoreError> {
    let payment: Payment =
        serde_json::from_str(state).map_err(|error| StoreError::unreadable("payment", &id, &error))?;
    if payment.terms.id.to_string() != id || i64::from(payment.version) != version {
        return Err(StoreError::unreadable("payment", &id, &"its state belongs to another payment or version"));
    }
    Ok(payment)
}

fn id_of(id: &str) -> Result<PaymentId, StoreError> {
    id.parse::<PaymentId>().map_err(|error| StoreError::unreadable("payment", &id, &error))
}

fn owner_of(id: &str, wallet: &str) -> Result<(Address, PaymentId), StoreError> {
    let wallet = wallet.parse::<Address>().map_err(|error| StoreError::unreadable("payment", &id, &error))?;
    Ok((wallet, id_of(id)?))
}

/// Loads the payment with this id.
pub async fn load(database: &Database, id: PaymentId) -> Result<Option<Payment>, StoreError> {
    let row = payments::Entity::find_by_id(id.to_string()).one(database.reader()).await?;
    row.as_ref().map(payment_of).transpose()
}

// The condition matches the index, which also has the shard and the wallet.
const LIVE: &str = "FROM payments WHERE live AND id > $1 AND shard >= $2 AND shard <= $3 ORDER BY id LIMIT $4";

/// A live payment in a page.
#[derive(Debug)]
pub enum LivePayment {
    /// It is as it was initiated.
    Initiated(InitiatedPayment),
    /// It has changed.
    Changed(Box<Payment>),
}

/// A payment that has not changed since it was initiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitiatedPayment {
    /// Id.
    pub id: PaymentId,
    /// Chain of its deadline.
    pub chain: Chain,
    /// Time of the initiation.
    pub created_at: Timestamp,
    /// Deadline.
    pub expires_at: Timestamp,
}

impl LivePayment {
    /// Id of the payment.
    pub fn id(&self) -> PaymentId {
        match self {
            Self::Initiated(payment) => payment.id,
            Self::Changed(payment) => payment.id(),
        }
    }
}

/// Columns of [`LivePayment`]. The state of a payment that has not changed follows from its other columns, and is not read.
const LIVE_COLUMNS: &str = "id, version, chain, created_at, expires_at, \
    CASE WHEN version = 1 AND status = 'pending' THEN NULL ELSE state END";
type LiveRow = (String, i64, String, i64, i64, Option<String>);

/// Page of the live payments of these logical shards, by id, after `after`; an empty page is the end. Unreadable rows
/// are skipped and logged: they must not keep the others from starting.
pub async fn load_live(
    database: &Database,
    shards: RangeInclusive<u8>,
    after: Option<PaymentId>,
    limit: u64,
) -> Result<Vec<LivePayment>, StoreError> {
    let mut after = after.map(|after| after.to_string());
    loop {
        let rows: Vec<LiveRow> = live_rows(database, LIVE_COLUMNS, &shards, after, limit).await?;
        let readable: Vec<_> = rows.iter().filter_map(readable).collect();
        if rows.is_empty() || !readable.is_empty() {
            return Ok(readable);
        }
        after = rows.into_iter().next_back().map(|(last, ..)| last);
    }
}

/// Like [`load_live`], but only ids and versions, including those of unreadable rows.
pub async fn live_versions(
    database: &Database,
    shards: RangeInclusive<u8>,
    after: Option<PaymentId>,
    limit: u64,
) -> Result<Vec<(PaymentId, u32)>, StoreError> {
    let after = after.map(|after| after.to_string());
    let rows: Vec<(String, i64)> = live_rows(database, "id, version", &shards, after, limit).await?;
    rows.iter().map(|(id, version)| Ok((id_of(id)?, u32::try_from(*version).unwrap_or(u32::MAX)))).collect()
}

/// Wallets of all live payments, including unreadable ones. A row with an invalid wallet or id is skipped and logged:
/// nothing can be paid to it.
pub async fn live_wallets(database: &Database) -> Result<Vec<(Address, PaymentId)>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let rows: Vec<(String, String)> =
            live_rows(database, "id, wallet", &(0..=u8::MAX), after, LIVE_WALLETS_PAGE).await?;
        for (id, wallet) in &rows {
            match owner_of(id, wallet) {
                Ok(owner) => found.push(owner),
                Err(error) => {
                    tracing::error!(payment.id = %id, %error, "the wallet of a live payment cannot be watched");
                }
            }
        }
        match rows.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None => return Ok(found),
        }
    }
}

/// The live payments among these.
pub async fn live_among(database: &Database, ids: &[PaymentId]) -> Result<HashSet<PaymentId>, StoreError> {
    let sql = format!("SELECT id FROM payments WHERE live AND id IN ({})", texts_of(database.backend(), 1));
    let ids: Vec<String> = rows_of(database, &sql, [text_list(ids)?]).await?;
    ids.iter().map(|id| id_of(id)).collect()
}

async fn live_rows<R: TryGetableMany>(
    database: &Database,
    columns: &str,
    shards: &RangeInclusive<u8>,
    after: Option<String>,
    limit: u64,
) -> Result<Vec<R>, StoreError> {
    let values = [
        // An empty id sorts before all others.
        after.unwrap_or_default().into(),
        i64::from(*shards.start()).into(),
        i64::from(*shards.end()).into(),
        i64::try_from(limit).unwrap_or(i64::MAX).into(),
    ];
    rows_of(database, &format!("SELECT {columns} {LIVE}"), values).await
}

async fn rows_of<R: TryGetableMany, const N: usize>(
    database: &Database,
    sql: &str,
    values: [Value; N],
) -> Result<Vec<R>, StoreError> {
    let rows = query_all(database.reader(), sql, values).await?;
    Ok(rows.iter().map(QueryResult::try_get_many_by_index).collect::<Result<_, _>>()?)
}

fn readable((id, version, chain, created_at, expires_at, state): &LiveRow) -> Option<LivePayment> {
    let live = match state {
        Some(state) => read(id, *version, state).map(|payment| LivePayment::Changed(Box::new(payment))),
        None => id_of(id).and_then(|id| {
            let chain = chain.parse().map_err(|error| StoreError::unreadable("payment", &id, &error))?;
            let (created_at, expires_at) = (Timestamp(*created_at), Timestamp(*expires_at));
            Ok(LivePayment::Initiated(InitiatedPayment { id, chain, created_at, expires_at }))
        }),
    };
    live.inspect_err(|error| tracing::error!(payment.id = %id, %error, "payment {id} cannot be read")).ok()
}

/// Position of a transfer among the transfers of its chain, oldest block first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferPosition {
    block_number: i64,
    log_index: i64,
    tx_hash: String,
    block_hash: String,
}

impl TransferPosition {
    /// Position of this row.
    pub fn of(row: &transfers::Model) -> Self {
        Self {
            block_number: row.block_number,
            log_index: row.log_index,
            tx_hash: row.tx_hash.clone(),
            block_hash: row.block_hash.clone(),
        }
    }
}

/// Transfers on these chains that the payment has set aside because its list is full, highest amount first.
pub async fn set_aside_of(
    database: &Database,
    id: PaymentId,
    chains: impl Iterator<Item = Chain>,
    limit: u64,
) -> Result<Vec<transfers::Model>, StoreError> {
    let chains: Vec<String> = chains.map(|chain| format!("'{}'", chain.as_str())).collect();
    // The condition matches the index.
    let sql = format!(
        "SELECT * FROM transfers WHERE payment_id = $1 AND applied_version = 0 AND applied_revision > 0 \
         AND presence = 'present' AND chain IN ({}) ORDER BY amount DESC, block_number, log_index, tx_hash LIMIT $2",
        chains.join(", ")
    );
    let values = [id.to_string().into(), i64::try_from(limit).unwrap_or(i64::MAX).into()];
    Ok(find_all(database.reader(), &sql, values).await?)
}

const UNAPPLIED: &str = "SELECT * FROM (SELECT transfers.*, ROW_NUMBER() OVER \
    (PARTITION BY payment_id ORDER BY block_number, log_index, tx_hash, block_hash) AS nth \
    FROM transfers WHERE chain = $1 AND applied_revision < revision) AS unapplied \
    WHERE nth <= $2 AND (block_number, log_index, tx_hash, block_hash) > ($3, $4, $5, $6) \
    ORDER BY block_number, log_index, tx_hash, block_hash LIMIT $7";

/// Page of the transfers on a chain that their payment has not applied at their current revision, oldest block first,
/// after `after`. Contains only the first few of each payment, so that a payment that applies nothing leaves room for
/// others.
pub async fn unapplied_on(
    database: &Database,
    chain: Chain,
    after: Option<&TransferPosition>,
    limit: u64,
) -> Result<Vec<transfers::Model>, StoreError> {
    let (block_number, log_index, tx_hash, block_hash) = after
        .map_or((-1, -1, "", ""), |place| (place.block_number, place.log_index, &place.tx_hash, &place.block_hash));
    let values = [
        chain.as_str().into(),
        UNAPPLIED_OF_ONE_MAX.into(),
        block_number.into(),
        log_index.into(),
        tx_hash.into(),
        block_hash.into(),
        i64::try_from(limit).unwrap_or(i64::MAX).into(),
    ];
    Ok(find_all(database.reader(), UNAPPLIED, values).await?)
}

/// Every transfer that these payments have not applied, oldest block first. Without a limit: the caller must know all
/// of them.
pub async fn unapplied_of(database: &Database, ids: &[PaymentId]) -> Result<Vec<transfers::Model>, StoreError> {
    let mut found = Vec::new();
    for ids in ids.chunks(LOOKUP_PAYMENTS_MAX) {
        let Some(last) = ids.last() else { continue };
        // Few distinct lengths, so that prepared statements are reused.
        let places = ids.len().next_power_of_two();
        let ids = ids.iter().chain(std::iter::repeat(last)).take(places).map(PaymentId::to_string);
        let query = unapplied().filter(transfers::Column::PaymentId.is_in(ids));
        found.extend(query.all(database.reader()).await?);
    }
    Ok(found)
}

fn unapplied() -> sea_orm::Select<transfers::Entity> {
    transfers::Entity::find()
        .filter(Expr::col(transfers::Column::AppliedRevision).lt(Expr::col(transfers::Column::Revision)))
        .order_by_asc(transfers::Column::BlockNumber)
        .order_by_asc(transfers::Column::LogIndex)
}

/// Payments to search for wallets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletScope {
    /// At least ended payments: for callers that know the wallets of live ones.
    Over,
    /// All payments. On SQLite this reads the wallets of all live payments.
    All,
}

fn by_wallets_sql(backend: DbBackend, among: WalletScope) -> String {
    let select = "SELECT id, wallet FROM payments WHERE";
    let listed = format!("wallet IN ({})", texts_of(backend, 1));
    match (backend, among) {
        (DbBackend::Postgres, _) => format!("{select} {listed}"),
        (_, WalletScope::Over) => format!("{select} NOT live AND {listed}"),
        // Each part uses the index that holds its wallets.
        (_, WalletScope::All) => format!("{select} NOT live AND {listed} UNION ALL {select} live AND {listed}"),
    }
}

/// Payments of these wallets, as far as they exist.
pub async fn by_wallets(
    database: &Database,
    wallets: &[Address],
    among: WalletScope,
) -> Result<Vec<(Address, PaymentId)>, StoreError> {
    let sql = by_wallets_sql(database.backend(), among);
    let mut found = Vec::new();
    for wallets in wallets.chunks(LOOKUP_ADDRESSES_MAX) {
        let rows: Vec<(String, String)> = rows_of(database, &sql, [text_list(wallets)?]).await?;
        for (id, wallet) in rows {
            found.push(owner_of(&id, &wallet)?);
        }
    }
    Ok(found)
}
