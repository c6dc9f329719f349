//! One role of PostgreSQL owns and migrates the tables, another runs the service, with the grants of the documentation.

use payferry_harness::database::TestDatabase;
use reqwest::Method;
use sea_orm::ConnectionTrait;

use crate::process::{Home, Running, complaint, payferry, printed};

/// The page with the grants, in its only block of SQL.
const PAGE: &str = include_str!("../../docs/src/operate/database.md");

#[tokio::test]
async fn service_runs_with_a_role_that_cannot_change_tables() {
    let database = TestDatabase::empty_postgres().await;
    let grants = PAGE.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let superuser = database.connect().await;
    superuser.execute_unprepared(grants).await.unwrap();
    let [owner, service] =
        ["payments_owner", "payments_service"].map(|role| database.url().replace("postgres@", &format!("{role}@")));
    let run = |args: &[&str], url: &str| payferry().args(args).args(["--database-url", url]).output().unwrap();

    // The service's role can neither migrate an empty database nor start on it.
    assert!(complaint(&run(&["migrate"], &service)).contains("permission denied"));
    assert!(printed(&run(&["migrate"], &owner)).contains("applied m0001_schema"));
    printed(&run(&["migrate", "--check"], &service));
    printed(&run(&["migrate"], &service));

    let home = Home::with(database.at(&service));
    let running = Running::start(&home);
    let merchant = running.merchant().await;
    let asked = serde_json::json!({ "merchant_id": merchant, "amount": "1", "currency": "USDC", "chain": "base" });
    let made = running.ok(Method::POST, "/payments/initiate", Some(asked)).await;
    let id = made["payment_id"].as_str().unwrap();
    running.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), None).await;
    running.psp().until_status(id, "settled").await;
    running.stop();
    // Nor can it turn off what keeps the audit log.
    let limited = sea_orm::Database::connect(&service).await.unwrap();
    let refused = limited.execute_unprepared("ALTER TABLE audit_log DISABLE TRIGGER ALL").await.unwrap_err();
    assert!(refused.to_string().contains("must be owner"), "{refused}");
}
