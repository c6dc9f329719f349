//! How SQLite would run the statements.

use super::*;
use sea_orm::{ConnectionTrait, DbBackend, Statement};

/// Updates must find their rows by a key: a scan would grow with the table.
#[tokio::test]
async fn no_update_scans_its_table() {
    let world = World::new().await;
    if !world.is_sqlite() {
        return;
    }
    let statements = Statements::new(DbBackend::Sqlite);
    for (name, texts, table) in [
        ("payments_advance", statements.payments_advance.texts(), "payments"),
        ("cursors_advance", [statements.cursors_advance.as_str(); 2], "chain_cursors"),
        ("operations_submit", statements.operations_submit.texts(), "operations"),
        ("operations_lose_number", [statements.operations_lose_number.as_str(); 2], "operations"),
        ("operations_number", [statements.operations_number.as_str(); 2], "operations"),
        ("operations_existing", statements.operations_existing.texts(), "operations"),
        ("operations_cancel", statements.operations_cancel.texts(), "operations"),
        ("operations_succeed", statements.operations_succeed.texts(), "operations"),
        ("operations_outcome", statements.operations_outcome.texts(), "operations"),
        ("operations_refuse", statements.operations_refuse.texts(), "operations"),
        ("chain_txs_outcome", [statements.chain_txs_outcome.as_str(); 2], "chain_txs"),
        ("deliveries_update", statements.deliveries_update.texts(), "deliveries"),
        ("transfers_orphan", [statements.transfers_orphan.as_str(); 2], "transfers"),
        ("transfers_apply", statements.transfers_apply.texts(), "transfers"),
        ("headers_forget", [statements.headers_forget.as_str(); 2], "h"),
    ] {
        for sql in texts {
            let explain =
                Statement::from_sql_and_values(DbBackend::Sqlite, format!("EXPLAIN QUERY PLAN {sql}"), ["[]".into()]);
            let plan = world.database.reader().query_all_raw(explain).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect();
            let searched = plan.iter().any(|line| line.starts_with(&format!("SEARCH {table} USING")));
            let scanned =
                plan.iter().any(|line| *line == format!("SCAN {table}") || line.starts_with(&format!("SCAN {table} ")));
            assert!(searched && !scanned, "{name}: {plan:#?}");
        }
    }
}
