//! `GET /ledger/entries`.

use axum::extract::State;
use payferry_domain::{Address, Amount, Timestamp, Token};
use payferry_entities::Database;
use payferry_entities::ledger_postings::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Fault, Rule, query, rule};
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{KnownFormat, SchemaFormat};

use super::span::Span;
use crate::http::state::ListOf;
use crate::statements::Tokens;

/// The highest total that is counted.
pub const TOTAL_MAX: u64 = 10_000;

record! {
    fn of(row: Model, tokens: &Tokens) {
        let address = row.token_address.parse::<Address>().ok();
        let token = address.zip(row.chain.parse().ok()).and_then(|(address, chain)| tokens.token(chain, address));
    }

    /// One posting, which moves an amount from one account (debit) to another (credit).
    #[derive(Debug)]
    pub struct EntryRecord {
        /// The position as a text.
        id: String = row.position.to_string(),
        /// Position in the ledger; increasing.
        position: i64 = row.position,
        /// The payment, transfer, payout or withdrawal that caused it; for a deposit or an unknown outbound transfer, its
        /// place on the chain.
        subject: String = row.subject,
        /// received, settled, fee, reserved, sent, returned, delivered, dust, or the reversal of one of them; deposited: a
        /// transfer to your vault that no payment explains; unknown_sent: an outbound transfer that the service had lost
        /// and found on the chain.
        kind: String = row.kind,
        /// external, payment, psp, in_flight, treasury or suspense.
        debit: String = row.debit,
        credit: String = row.credit,
        #[schema(example = "10.00")]
        amount: String = Amount::from_units(row.amount).to_string(),
        chain: String = row.chain,
        /// Null for a contract that is no longer configured.
        currency: Option<&'static str> = token.map(Token::as_str),
        token_address: String = address.map_or(row.token_address, checksummed),
        /// Evidence: a transaction, a refund, or another id.
        reference: String = row.reference,
        at: DateTime = DateTime(row.at),
        /// The same as `at`.
        created_at: DateTime = DateTime(row.at),
        /// The same as `at`: entries never change.
        updated_at: DateTime = DateTime(row.at),
    }
}

/// A page of the ledger.
#[derive(Serialize, ToSchema)]
pub struct EntryList {
    message: &'static str,
    /// Number of matching entries; null with `after` or `cursor`, and if there are more than 10,000.
    total: Option<u64>,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page. To continue later, use `next_after`.
    next_cursor: Option<String>,
    /// Pass it as `after` to get the next page, now or later; null if the page is empty.
    next_after: Option<i64>,
    /// Oldest first.
    entries: Vec<EntryRecord>,
}

/// The position of an entry.
const POSITION: Rule<i64> = Rule {
    read: |value| {
        let position = value.as_str().unwrap_or_default().parse();
        position.map_err(|_| Fault::new("invalid_value", "must be the position of an entry"))
    },
    schema: || {
        ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
    },
};

query! {
    /// Filters of the list.
    pub struct EntryFilters {
        /// Only entries after this position. Not together with `offset`.
        after: i64 = POSITION,
        /// Entries of this payment, transfer, payout or withdrawal.
        subject: String = rule::text(),
        /// At or after this time.
        from: Timestamp = rule::moment(),
        /// Before this time.
        to: Timestamp = rule::moment(),
    }
}

/// Read the ledger
///
/// Every movement of the account's money, in the order in which it was posted. Entries never change: a movement that a
/// reorg orphaned is reversed by an entry in the opposite direction.
#[utoipa::path(
    get, path = "/ledger/entries", tag = "Money", operation_id = "listLedgerEntries", params(EntryFilters, PageParams),
    responses((status = 200, description = "A page, oldest first.", body = EntryList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let EntryFilters { after, subject, from, to } = EntryFilters::read(&mut query);
    let page = Page::read_after("ledger_entries", query, after.is_some())?;
    let after = page.after.or(after);
    let span = Span::of(app.database(), caller.psp_id, from, to).await?;
    let wanted = Condition::all()
        .add(Column::PspId.eq(caller.psp_id.to_string()))
        .add_option(after.map(|after| Column::Position.gt(after)))
        .add_option(subject.map(|subject| Column::Subject.eq(subject)))
        .add_option(from.map(|from| Column::At.gte(from.as_millis())))
        .add_option(to.map(|to| Column::At.lt(to.as_millis())))
        .add_option(span.from.map(|first| Column::Position.gte(first)))
        .add_option(span.to.map(|end| Column::Position.lt(end)));
    let wanted = Entity::find().filter(wanted);
    let total = if after.is_none() { total(app.database(), wanted.clone()).await? } else { None };
    let reader = app.database().reader();
    let rows = wanted.order_by_asc(Column::Position).limit(page.rows_max()).offset(page.offset);
    let mut rows = rows.all(reader).await?;
    let next_cursor = page.next_cursor(&mut rows, |row| row.position)?;
    let next_after = rows.last().map(|row| row.position);
    let tokens = Tokens::of(app.system.chains().running());
    let entries = rows.into_iter().map(|row| EntryRecord::of(row, &tokens)).collect();
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&EntryList { message: "Ledger entries", total, limit, offset, next_cursor, next_after, entries })
}

/// Counts the entries up to [`TOTAL_MAX`]; `None` if there are more, since a ledger only grows.
async fn total(database: &Database, wanted: Select<Entity>) -> Result<Option<u64>, DbErr> {
    let first = wanted.select_only().column(Column::Position).order_by_asc(Column::Position).limit(TOTAL_MAX + 1);
    let found: Vec<i64> = first.into_tuple().all(database.reader()).await?;
    Ok(u64::try_from(found.len()).ok().filter(|count| *count <= TOTAL_MAX))
}
