//! Secrets at rest: key rotation, documents, and the audit log.

mod audit;
mod bucket;
mod rotation;
mod secrecy;
mod uploads;

use std::fmt::Write;

use payferry_domain::customer::CustomerKind;
use sea_orm::{DatabaseConnection, DbBackend, Statement};

use crate::prelude::*;

/// Returns the content of every table as text.
async fn dump(connection: &DatabaseConnection) -> String {
    let backend = ConnectionTrait::get_database_backend(connection);
    let texts = async |sql: String| -> Vec<String> {
        let rows = connection.query_all_raw(Statement::from_string(backend, sql)).await.unwrap();
        rows.iter().filter_map(|row| row.try_get_by_index::<Option<String>>(0).unwrap()).collect()
    };
    let tables = match backend {
        DbBackend::Postgres => "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'",
        // The content of a virtual table is in other tables.
        _ => "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL TABLE%'",
    };
    let mut dumped = String::new();
    for table in texts(tables.to_owned()).await {
        let columns = match backend {
            DbBackend::Postgres => {
                format!("SELECT column_name::text FROM information_schema.columns WHERE table_name = '{table}'")
            }
            _ => format!("SELECT name FROM pragma_table_info('{table}')"),
        };
        for column in texts(columns).await {
            let text = match backend {
                DbBackend::Postgres => format!("CAST(\"{column}\" AS TEXT)"),
                _ => format!(
                    "CASE typeof(\"{column}\") WHEN 'blob' THEN hex(\"{column}\") ELSE CAST(\"{column}\" AS TEXT) END"
                ),
            };
            for value in texts(format!("SELECT {text} FROM \"{table}\"")).await {
                writeln!(dumped, "{table}.{column}: {value}").unwrap();
            }
        }
    }
    dumped
}

/// Inserts a customer of the first PSP with these particulars.
async fn add_customer(app: &TestApp, particulars: &str) -> CustomerId {
    app.add_customer(CustomerKind::Individual, particulars).await
}
