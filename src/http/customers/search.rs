//! Selects the customers of a list, and counts them without reading all customers of the PSP.
//!
//! `migration/src/m0004_customer_search.rs` describes the index of emails and the counts of customers, which the database
//! maintains.

use payferry_accounts::contains;
use payferry_domain::PspId;
use payferry_entities::Database;
use payferry_entities::customers::{Column, Entity};
use payferry_httpkit::lists::count;
use sea_orm::sea_query::{BinOper, Expr, ExprTrait as _, Query};
use sea_orm::{Condition, ConnectionTrait as _, DbBackend, DbErr, EntityTrait, QueryFilter, Select};

use super::read::CustomerFilters;

#[cfg(test)]
mod tests;

/// Shortest text that the index of emails finds, in characters. A shorter one is compared with every email of the PSP.
const INDEXED_CHARS_MIN: usize = 3;
/// A search that matches at least one of so many customers reads the list in its order until the page is full. This costs less
/// than sorting the matches, and still no more than this number of customers per match.
const CUSTOMERS_PER_MATCH_MAX: i64 = 16;

/// A PSP's customers that match the filters of a list.
pub(super) struct Wanted {
    pub(super) rows: Select<Entity>,
    /// SQL expression for their number.
    pub(super) total: Expr,
}

impl Wanted {
    /// Selects the customers for these filters.
    pub(super) async fn find(database: &Database, psp_id: PspId, filters: CustomerFilters) -> Result<Self, DbErr> {
        let CustomerFilters { search, status, kyc_status } = filters;
        let text = search.map(|search| search.to_lowercase());
        let indexed = text.as_deref().filter(|text| text.chars().count() >= INDEXED_CHARS_MIN);
        let matches = match indexed {
            Some(text) => Some(Matches::count(database, psp_id, text).await?),
            None => None,
        };
        let total = match (&text, &matches) {
            _ if status.is_some() || kyc_status.is_some() => None,
            (None, _) => Some(customers(psp_id)),
            (Some(_), Some(matches)) => Some(Expr::value(matches.count)),
            (Some(_), None) => None,
        };
        let few = matches.filter(Matches::are_few);
        // SQLite would read the list in its order, because it cannot know that the matches are few.
        let column = |column: Column| match &few {
            Some(_) => Expr::col((Entity, column)).binary(BinOper::Custom("||"), ""),
            None => Expr::col((Entity, column)),
        };
        let email = match (&few, text) {
            (Some(matches), _) => Some(matches.condition()),
            (None, text) => text.map(|text| contains(database.backend(), Column::EmailSearch, text)),
        };
        let wanted = Condition::all()
            .add(column(Column::PspId).eq(psp_id.to_string()))
            .add_option(email)
            .add_option(kyc_status.map(|kyc_status| column(Column::KycStatus).eq(kyc_status.as_str())))
            .add_option(status.map(|is_active| Expr::col((Entity, Column::IsActive)).eq(is_active)));
        let rows = Entity::find().filter(wanted);
        Ok(Self { total: total.unwrap_or_else(|| count(&rows, Column::Id)), rows })
    }
}

/// SQL expression for the number of customers of a PSP.
fn customers(psp_id: PspId) -> Expr {
    let sum = Expr::cust("CAST(COALESCE(SUM(customers), 0) AS BIGINT)");
    Query::select()
        .expr(sum)
        .from("customer_counts")
        .and_where(Expr::col("psp_id").eq(psp_id.to_string()))
        .take()
        .into()
}

/// Customers whose email contains a text, according to the index.
struct Matches {
    backend: DbBackend,
    /// Term of the index.
    term: String,
    count: i64,
    /// Customers of the PSP.
    customers: i64,
}

impl Matches {
    async fn count(database: &Database, psp_id: PspId, text: &str) -> Result<Self, DbErr> {
        let backend = database.backend();
        let (term, found) = match backend {
            DbBackend::Postgres => (
                format!("'{psp_id}_{}':*", hex::encode(text)),
                "(SELECT COUNT(*) FROM customers WHERE customer_search_tokens(psp_id, email_search) @@ $1::tsquery)",
            ),
            _ => (
                format!("{psp_id}_{}*", hex::encode(text)),
                "(SELECT COUNT(*) FROM customer_search WHERE customer_search MATCH ?)",
            ),
        };
        let mut counts = Query::select();
        counts.expr(Expr::cust_with_values(found, [term.clone()])).expr(customers(psp_id));
        let row = database.reader().query_one(&counts).await?;
        let number = |index| row.as_ref().map_or(Ok(0), |row| row.try_get_by_index(index));
        Ok(Self { backend, term, count: number(0)?, customers: number(1)? })
    }

    fn are_few(&self) -> bool {
        self.count.saturating_mul(CUSTOMERS_PER_MATCH_MAX) < self.customers
    }

    /// Condition that a customer is one of them.
    fn condition(&self) -> Expr {
        let sql = match self.backend {
            // As an array, PostgreSQL reads the matches before the list.
            DbBackend::Postgres => {
                "customers.id = ANY (ARRAY (SELECT found.id FROM customers AS found
                 WHERE customer_search_tokens(found.psp_id, found.email_search) @@ $1::tsquery))"
            }
            _ => {
                "customers.id IN (SELECT customer_numbers.customer_id FROM customer_search
                 JOIN customer_numbers ON customer_numbers.number = customer_search.rowid
                 WHERE customer_search MATCH ?)"
            }
        };
        Expr::cust_with_values(sql, [self.term.clone()])
    }
}
