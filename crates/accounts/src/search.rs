//! Text search in SQL.

use sea_orm::DbBackend;
use sea_orm::sea_query::{Expr, ExprTrait, Func, IntoColumnRef, SimpleExpr};

/// Condition that a column contains `text`. No character of it is a wildcard.
pub fn contains(backend: DbBackend, column: impl IntoColumnRef, text: String) -> SimpleExpr {
    let position = if backend == DbBackend::Postgres { "strpos" } else { "instr" };
    Expr::expr(Func::cust(position).arg(Expr::col(column)).arg(text)).gt(0)
}
