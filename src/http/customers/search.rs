//! Selects the customers of a list, and counts them without reading all customers of the PSP.
//!
//! `migration/src/m0004_customer_search.rs` describes the index of emails and the counts of customers, which the database
//! maintains.

use payferry_accounts::contains;
use payferry_domain::PspId;
use payferry_entities::customers::{Column, Entity};
use payferry_entities::{Database, query_all};
use sea_orm::sea_query::{BinOper, Expr, ExprTrait as _, SimpleExpr};
use sea_orm::{Condition, DbBackend, DbErr, EntityTrait, PaginatorTrait, QueryFilter, Select};

use super::read::CustomerFilters;

#[cfg(test)]
mod tests;

/// Shortest text that the index of emails finds, in characters. A shorter one is compared with every email of the PSP.
const INDEXED_CHARS_MIN: usize = 3;
/// A search that matches at least one of so many customers reads the list in its order until the page is full. This costs less
/// than sorting the matches, and still no more than this number of customers per match.
const CUSTOMERS_PER_MATCH_MAX: u64 = 16;

/// A PSP's customers that match the filters of a list.
pub(super) struct Wanted {
    pub(super) rows: Select<Entity>,
    total: Total,
}

/// Source of the number of customers in a list.
enum Total {
    /// All customers of the PSP.
    All(PspId),
    /// The index has counted them.
    Known(u64),
    /// They must be counted.
    Counted,
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
            _ if status.is_some() || kyc_status.is_some() => Total::Counted,
            (None, _) => Total::All(psp_id),
            (Some(_), Some(matches)) => Total::Known(matches.count),
            (Some(_), None) => Total::Counted,
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
        Ok(Self { rows: Entity::find().filter(wanted), total })
    }

    /// Reads the number of customers in the list.
    pub(super) async fn total(&self, database: &Database) -> Result<u64, DbErr> {
        match self.total {
            Total::All(psp_id) => {
                let rows = query_all(database.reader(), CUSTOMERS, [psp_id.to_string().into()]).await?;
                number(rows.first().map(|row| row.try_get_by_index(0)))
            }
            Total::Known(count) => Ok(count),
            Total::Counted => self.rows.clone().count(database.reader()).await,
        }
    }
}

/// Reads the number of customers of a PSP.
const CUSTOMERS: &str = "SELECT CAST(COALESCE(SUM(customers), 0) AS BIGINT) FROM customer_counts WHERE psp_id = $1";

/// Customers whose email contains a text, according to the index.
struct Matches {
    backend: DbBackend,
    /// Term of the index.
    term: String,
    count: u64,
    /// Customers of the PSP.
    customers: u64,
}

impl Matches {
    async fn count(database: &Database, psp_id: PspId, text: &str) -> Result<Self, DbErr> {
        let backend = database.backend();
        let (term, count) = match backend {
            DbBackend::Postgres => (
                format!("'{psp_id}_{}':*", hex::encode(text)),
                "SELECT COUNT(*) FROM customers WHERE customer_search_tokens(psp_id, email_search) @@ $2::tsquery",
            ),
            _ => (
                format!("{psp_id}_{}*", hex::encode(text)),
                "SELECT COUNT(*) FROM customer_search WHERE customer_search MATCH $2",
            ),
        };
        let values = [psp_id.to_string().into(), term.clone().into()];
        let rows = query_all(database.reader(), &format!("SELECT ({CUSTOMERS}), ({count})"), values).await?;
        let column = |index| number(rows.first().map(|row| row.try_get_by_index(index)));
        Ok(Self { backend, term, count: column(1)?, customers: column(0)? })
    }

    fn are_few(&self) -> bool {
        self.count.saturating_mul(CUSTOMERS_PER_MATCH_MAX) < self.customers
    }

    /// Condition that a customer is one of them.
    fn condition(&self) -> SimpleExpr {
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

/// The number in a row of a count.
fn number(read: Option<Result<i64, DbErr>>) -> Result<u64, DbErr> {
    let count = read.transpose()?.unwrap_or_default();
    u64::try_from(count).map_err(|_| DbErr::Custom(format!("customer_counts has {count} customers, which is negative")))
}
