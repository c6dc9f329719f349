//! Query plans of SQLite, and the round trip of rows in both databases.

use super::*;
use crate::writer::bind::{Column, Row, RowStatement};
use crate::writer::write::Writer;
use payferry_harness::database::query_plan;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sea_orm::{DbBackend, Statement, Value};

/// Returns the shortest and the longest text.
fn texts<R>(statement: &RowStatement<R>) -> [&str; 2] {
    [&statement.texts[0].1, &statement.texts[statement.texts.len() - 1].1]
}

/// Updates must find their rows by a key. A scan would take longer with every row of the table.
#[tokio::test]
async fn no_update_scans_its_table() {
    let env = Env::new().await;
    if !env.is_sqlite() {
        return;
    }
    let statements = Statements::new(DbBackend::Sqlite);
    for (name, texts, table) in [
        ("payments_advance", texts(&statements.payments_advance), "payments"),
        ("sendings_advance", texts(&statements.sendings_advance), "sendings"),
        ("cursors_advance", texts(&statements.cursors_advance), "chain_cursors"),
        ("operations_submit", texts(&statements.operations_submit), "operations"),
        ("operations_cancel", texts(&statements.operations_cancel), "operations"),
        ("operations_succeed", texts(&statements.operations_succeed), "operations"),
        ("operations_outcome", texts(&statements.operations_outcome), "operations"),
        ("operations_refuse", texts(&statements.operations_refuse), "operations"),
        ("chain_txs_outcome", texts(&statements.chain_txs_outcome), "chain_txs"),
        ("deliveries_insert", texts(&statements.deliveries_insert), "e"),
        ("deliveries_update", texts(&statements.deliveries_update), "deliveries"),
        ("transfers_elsewhere", texts(&statements.transfers_elsewhere), "transfers"),
        ("deposits_elsewhere", texts(&statements.deposits_elsewhere), "deposits"),
        ("transfers_orphan", texts(&statements.transfers_orphan), "transfers"),
        ("deposits_orphan", texts(&statements.deposits_orphan), "deposits"),
        ("deposits_post", texts(&statements.deposits_post), "deposits"),
        ("transfers_apply", texts(&statements.transfers_apply), "transfers"),
        ("headers_drop", texts(&statements.headers_drop), "chain_headers"),
        ("headers_forget", texts(&statements.headers_forget), "h"),
    ] {
        for sql in texts {
            let plan = query_plan(env.database.reader(), Statement::from_string(DbBackend::Sqlite, sql)).await;
            let searched = plan.iter().any(|line| line.starts_with(&format!("SEARCH {table} USING")));
            let scanned =
                plan.iter().any(|line| *line == format!("SCAN {table}") || line.starts_with(&format!("SCAN {table} ")));
            assert!(searched && !scanned, "{name}: {plan:#?}");
        }
    }
}

type Plain = (String, Option<String>, i64, Option<i64>, bool, Option<bool>);

#[derive(Debug)]
struct Sample(Plain);

impl Row for Sample {
    fn columns() -> Vec<Column> {
        vec![
            Column::of::<&str>("text"),
            Column::of::<Option<&str>>("maybe_text"),
            Column::of::<i64>("number"),
            Column::of::<Option<i64>>("maybe_number"),
            Column::of::<bool>("bit"),
            Column::of::<Option<bool>>("maybe_bit"),
        ]
    }

    fn bind(&self, values: &mut Vec<Value>) {
        let (text, maybe_text, number, maybe_number, bit, maybe_bit) = self.0.clone();
        values.extend([text.into(), maybe_text.into(), number.into(), maybe_number.into()]);
        values.extend([bit.into(), maybe_bit.into()]);
    }
}

/// Any text and any NULL, with more rows than the longest list of SQLite.
#[tokio::test]
async fn rows_round_trip_in_order() {
    let env = Env::new().await;
    let backend = env.database.backend();
    let select = RowStatement::<Sample>::new(backend, "SELECT {columns} FROM {rows} WHERE true {in_order}");

    // Neither database accepts NUL in a text, and the API rejects it.
    let text = || prop_oneof!["[\"\\\\{}, \n'NUL]{0,8}", "[^\0]{0,12}", Just("NULL".to_owned())];
    let row = (
        text(),
        proptest::option::of(text()),
        any::<i64>(),
        any::<Option<i64>>(),
        any::<bool>(),
        any::<Option<bool>>(),
    );
    let rows = proptest::collection::vec(row.prop_map(Sample), 300).new_tree(&mut TestRunner::deterministic()).unwrap();
    let rows = rows.current();

    let transaction = env.database.begin().await.unwrap();
    let statements = Statements::new(backend);
    let writer = Writer { backend, transaction: &transaction, statements: &statements };
    for count in [1, 5, rows.len()] {
        let given: Vec<&Sample> = rows.iter().take(count).collect();
        let found = writer.run(&select, &given).await.unwrap();
        let found: Vec<Plain> = found.iter().map(|row| row.try_get_many_by_index().unwrap()).collect();
        assert_eq!(found, given.iter().map(|row| row.0.clone()).collect::<Vec<_>>());
    }
    transaction.rollback().await.unwrap();
}
