//! Reads of payments: `GET /payments`, `GET /payments/{payment_id}`, and `GET /payments/{payment_id}/events`, which
//! streams a payment's changes as server-sent events.

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use payferry_domain::payment::{Label, Payment, Status};
use payferry_domain::{Address, Chain, CustomerId, Hash32, MerchantId, PaymentId, PspId, Timestamp, Token};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_entities::{chain_tx_attempts, chain_txs, operations, transfers};
use payferry_httpkit::lists::{NewestKey, Page, PageParams, older};
use payferry_httpkit::live::{STREAMS_PER_PSP, StreamOwner};
use payferry_httpkit::openapi::{EventStream, UnreadableQuery};
use payferry_httpkit::{Answer, ApiError, Path, Read, query, rule};
use payferry_journal::payments::payment_of;
use sea_orm::sea_query::{BinOper, Expr, ExprTrait, Query, SelectStatement, SimpleExpr, UnionType};
use sea_orm::{ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use serde::Serialize;
use utoipa::ToSchema;

use super::{PaymentRecord, own, own_row};
use crate::http::live;
use crate::http::state::{AppShared, ListOf, OneOf};

/// Order of the list.
const ORDER: [Column; 2] = [Column::CreatedAt, Column::Id];

/// Read a payment
///
/// The authoritative state of a payment, independent of webhooks. Returns the record itself.
#[utoipa::path(
    get, path = "/payments/{payment_id}", tag = "Payments", operation_id = "getPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses((status = 200, description = "The complete payment.", body = PaymentRecord)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    Answer::ok(&PaymentRecord::of(&app, &own(&app, caller.psp_id, &payment_id).await?))
}

/// Follow a payment
///
/// Server-sent events. `payment` has the payment as in `GET /payments/{payment_id}`; it is sent at once and after each
/// change (its `id` is the payment's version). `end` is sent once the payment is settled or failed, and ends the
/// stream. The stream also ends after half an hour; open it again. At most 1,024 streams of one account can be open at
/// once.
#[utoipa::path(
    get, path = "/payments/{payment_id}/events", tag = "Payments", operation_id = "followPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(EventStream),
)]
pub async fn events(parts: OneOf<Read>) -> Result<Response, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    let payment = own(&app, caller.psp_id, &payment_id).await?;
    let place = app.stream_limits.take(StreamOwner::Psp(caller.psp_id), STREAMS_PER_PSP)?;
    Ok(live::follow(app, payment, place, Box::new(event)))
}

fn event(app: &AppShared, payment: &Payment) -> Event {
    let event = Event::default().event("payment").id(payment.version.to_string());
    event.json_data(PaymentRecord::of(app, payment)).unwrap_or_else(|error| {
        tracing::error!(%error, "a payment could not be serialised for its stream");
        Event::default().comment("unavailable")
    })
}

query! {
    /// Filters of the list.
    pub struct PaymentFilters {
        /// The status.
        status: Status = rule::name(),
        /// Payments of this merchant.
        merchant_id: MerchantId = rule::id(),
        /// Payments of this customer.
        customer_id: CustomerId = rule::id(),
        /// Payments with exactly this reference.
        reference: String = rule::text(),
        /// The chain of the payment.
        chain: Chain = rule::name(),
        /// The token of the payment.
        currency: Token = rule::name(),
        /// Payments with this label.
        label: Label = rule::name(),
        /// Payments with this transaction: a received transfer, the settlement, or a refund.
        tx_hash: Hash32 = rule::hash(),
        /// The payment of this intermediary wallet.
        wallet: Address = rule::address(),
        /// Changed at or after this time.
        updated_from: Timestamp = rule::moment(),
        /// Created at or after this time.
        created_from: Timestamp = rule::moment(),
        /// Created before this time.
        created_to: Timestamp = rule::moment(),
        /// Only payments older than this one: the `next_after` of the previous page. Not together with `offset`.
        after: PaymentId = rule::id(),
    }
}

/// A page of payments.
#[derive(Serialize, ToSchema)]
pub struct PaymentList {
    message: &'static str,
    /// Number of payments in the whole list; null with `after` or `cursor`.
    total: Option<u64>,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Pass it as `after` to get the next page; null on the last page.
    next_after: Option<String>,
    /// Newest first.
    payments: Vec<PaymentRecord>,
}

/// List payments
///
/// Newest first.
#[utoipa::path(
    get, path = "/payments", tag = "Payments", operation_id = "listPayments", params(PaymentFilters, PageParams),
    responses((status = 200, description = "A page of payments.", body = PaymentList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let filters = PaymentFilters::read(&mut query);
    let after = filters.after;
    let wanted = wanted(filters, caller.psp_id);
    let page: Page<NewestKey> = Page::read_after("payments", query, after.is_some())?;
    let reader = app.database().reader();
    let key = match (&page.after, after) {
        (Some(key), _) => Some(key.clone()),
        (None, Some(after)) => Some(key_of(&app, caller.psp_id, after).await?),
        (None, None) => None,
    };
    let (total, wanted) = match key {
        None => (Some(wanted.clone().count(reader).await?), wanted),
        Some(key) => (None, wanted.filter(older::<Entity>(ORDER, key))),
    };
    let mut rows = newest(wanted).limit(page.rows_max()).offset(page.offset).all(reader).await?;
    let next_cursor = page.next_cursor(&mut rows, |row| (row.created_at, row.id.clone()))?;
    let next_after = rows.last().filter(|_| next_cursor.is_some()).map(|row| row.id.clone());
    let record = |row: &Model| Ok(PaymentRecord::of(&app, &payment_of(row)?));
    let payments = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&PaymentList { message: "Payments", total, limit, offset, next_cursor, next_after, payments })
}

fn wanted(filters: PaymentFilters, psp_id: PspId) -> Select<Entity> {
    let of_transaction = filters.tx_hash.map(|hash| Column::Id.in_subquery(of_transaction(hash)));
    let of_wallet = filters.wallet.map(|wallet| Column::Id.in_subquery(of_wallet(wallet)));
    let psp = Expr::col((Entity, Column::PspId));
    // No index has this text, so the query begins with the few payments of the transaction or the wallet.
    let names_few = of_transaction.is_some() || of_wallet.is_some();
    let psp = if names_few { psp.binary(BinOper::Custom("||"), "") } else { psp };
    let wanted = Condition::all()
        .add(psp.eq(psp_id.to_string()))
        .add(Column::Purpose.eq(super::PAY_IN))
        .add_option(filters.status.map(|status| Column::Status.eq(status.as_str())))
        .add_option(filters.merchant_id.map(|id| Column::MerchantId.eq(id.to_string())))
        .add_option(filters.customer_id.map(|id| Column::CustomerId.eq(id.to_string())))
        .add_option(filters.reference.map(|reference| Column::Reference.eq(reference)))
        .add_option(filters.chain.map(|chain| Column::Chain.eq(chain.as_str())))
        .add_option(filters.currency.map(|token| Column::Token.eq(token.as_str())))
        .add_option(filters.label.map(labelled))
        .add_option(of_transaction)
        .add_option(of_wallet)
        .add_option(filters.updated_from.map(|from| Column::UpdatedAt.gte(from.as_millis())))
        .add_option(filters.created_from.map(|from| Column::CreatedAt.gte(from.as_millis())))
        .add_option(filters.created_to.map(|to| Column::CreatedAt.lt(to.as_millis())));
    Entity::find().filter(wanted)
}

/// Condition for the payments with a label. The column holds a JSON list of names; without the first part, SQLite does
/// not use the index of payments with labels.
fn labelled(label: Label) -> SimpleExpr {
    Column::Labels.is_not_null().and(Column::Labels.contains(format!("\"{}\"", label.as_str())))
}

/// The payment of a wallet. On SQLite, live and finished payments are in separate indexes.
fn of_wallet(wallet: Address) -> SelectStatement {
    let part = |live: bool| {
        let live = if live { Column::Live.into_expr() } else { Column::Live.into_expr().not() };
        let wallet = Column::Wallet.eq(wallet.to_string());
        Query::select().column(Column::Id).from(Entity).and_where(live).and_where(wallet).take()
    };
    part(false).union(UnionType::All, part(true)).take()
}

/// The payments that received money in a transaction, or that the service settled or refunded in it.
fn of_transaction(hash: Hash32) -> SelectStatement {
    let chains = Chain::ALL.map(Chain::as_str);
    let mut received = Query::select()
        .column(transfers::Column::PaymentId)
        .from(transfers::Entity)
        .and_where(transfers::Column::Chain.is_in(chains))
        .and_where(transfers::Column::TxHash.eq(hash.to_string()))
        .take();
    // Operations have no index by hash, so this begins with the attempts, whose key is the hash.
    let same = |column, other| Expr::col((chain_txs::Entity, column)).equals((chain_tx_attempts::Entity, other));
    let of_attempt = Condition::all()
        .add(same(chain_txs::Column::Chain, chain_tx_attempts::Column::Chain))
        .add(same(chain_txs::Column::Sender, chain_tx_attempts::Column::Sender))
        .add(same(chain_txs::Column::Nonce, chain_tx_attempts::Column::Nonce));
    let chain_tx = Expr::col((chain_txs::Entity, chain_txs::Column::Id));
    let sent = Query::select()
        .column((operations::Entity, operations::Column::PaymentId))
        .from(chain_tx_attempts::Entity)
        .inner_join(chain_txs::Entity, of_attempt)
        .inner_join(operations::Entity, chain_tx.equals((operations::Entity, operations::Column::ChainTxId)))
        .and_where(chain_tx_attempts::Column::TxHash.eq(hash.to_string()))
        .and_where(operations::Column::TxHash.eq(hash.to_string()))
        .take();
    received.union(UnionType::Distinct, sent).take()
}

fn newest(payments: Select<Entity>) -> Select<Entity> {
    ORDER.into_iter().fold(payments, QueryOrder::order_by_desc)
}

/// The key of the PSP's own payment in the list.
async fn key_of(app: &AppShared, psp_id: PspId, id: PaymentId) -> Result<NewestKey, ApiError> {
    let row = own_row(app, psp_id, &id.to_string()).await.map_err(|error| match error {
        ApiError::NotFound(_) => ApiError::parameter("after", "unknown_value", "is not a payment of this account"),
        other => other,
    })?;
    Ok((row.created_at, row.id))
}

#[cfg(test)]
mod tests {
    use payferry_harness::database::{TestDatabase, query_plan};
    use payferry_httpkit::QueryFields;
    use sea_orm::{DbBackend, QueryTrait};

    use super::*;

    /// A list reads no rows that the filter excludes, except with a filter by chain or token, which needs the index alone.
    #[tokio::test]
    async fn every_filter_uses_an_index() {
        let test_database = TestDatabase::create().await;
        let database = payferry_entities::Database::open(test_database.url()).await.unwrap();
        if database.backend() != DbBackend::Sqlite {
            return;
        }
        let hash = format!("tx_hash=0x{}", "ab".repeat(32));
        let wallet = format!("wallet=0x{}", "ab".repeat(20));
        for (query, expected) in [
            ("", &["payments_list"][..]),
            ("chain=base", &["payments_list"]),
            ("currency=USDC", &["payments_list"]),
            ("label=LATE", &["payments_labelled"]),
            ("updated_from=2026-01-31T12:00:00Z", &["payments_updated"]),
            (&wallet, &["payments_over", "COVERING INDEX payments_live", "sqlite_autoindex_payments_1"]),
            (
                &hash,
                &["sqlite_autoindex_transfers_1", "sqlite_autoindex_chain_tx_attempts_1", "operations_chain_tx_id"],
            ),
        ] {
            let mut fields = QueryFields::of(&format!("/payments?{query}").parse().unwrap());
            let wanted = wanted(PaymentFilters::read(&mut fields), PspId::generate());
            fields.finish().unwrap();
            let plan = query_plan(database.reader(), newest(wanted).limit(50).build(DbBackend::Sqlite)).await;
            for index in expected {
                assert!(plan.iter().any(|step| step.contains(index)), "{query}: no {index} in {plan:#?}");
            }
            assert!(plan.iter().all(|step| !step.starts_with("SCAN") || step.contains("payments_live")), "{plan:#?}");
        }
    }
}
