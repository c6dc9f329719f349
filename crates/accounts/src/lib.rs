//! The accounts of a service: PSPs with their API keys and logos, operators, the documents of customers, and reading of the
//! audit log.
//!
//! The PSP API, the operator listener and the command line share this code. Deliberately absent: HTTP, and everything about
//! payments.

pub mod audit;
pub mod documents;
pub mod keys;
pub mod logos;
pub mod operators;
pub mod tenants;

use derive_more::{Display, From};
use payferry_domain::Timestamp;
use sea_orm::DbBackend;
use sea_orm::sea_query::{Expr, ExprTrait, Func, IntoColumnRef, SimpleExpr};
use serde_with::SerializeDisplay;

/// A timestamp that is serialized as ISO 8601.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, From, SerializeDisplay)]
pub struct Moment(pub Timestamp);

/// Condition that a column contains `text`. No character of it is a wildcard.
pub fn contains(backend: DbBackend, column: impl IntoColumnRef, text: String) -> SimpleExpr {
    let position = if backend == DbBackend::Postgres { "strpos" } else { "instr" };
    Expr::expr(Func::cust(position).arg(Expr::col(column)).arg(text)).gt(0)
}
